"""Kills the control plane at every door to the world, over many seeds, and looks for what must never happen."""
