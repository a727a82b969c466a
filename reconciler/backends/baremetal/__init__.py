"""The control plane's side of agents on many machines, and what both sides say to each other."""
