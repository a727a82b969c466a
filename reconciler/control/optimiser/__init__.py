"""Runs the optimiser in a child process that can be killed."""

from reconciler.control.optimiser.parent import KillableOptimiser

__all__ = ["KillableOptimiser"]
