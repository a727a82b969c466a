"""Faults between a scheduler and its API server, over many seeds, and what came of it: see `__main__`."""
