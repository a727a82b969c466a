"""Checkpoints: what tasks hand in, what the control plane makes of it, and every way in which it goes wrong."""
