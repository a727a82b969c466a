"""What runs on a node: the agent, local processes and containers, and NVIDIA's GPUs."""
