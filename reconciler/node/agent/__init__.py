"""The node agent: runs the tasks of one machine for a control plane on another, and goes on when that is away."""
