"""Real agents and control planes in virtual time, over a network that is cut and slow, on machines that die and come back."""
