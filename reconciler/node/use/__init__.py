"""What the GPUs of a node do: samples ▸ minutes, kept for a while until they are told."""
