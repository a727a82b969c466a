"""The small protocols between rooms: what runs tasks, and what keeps jobs, holdings, history and decisions."""
