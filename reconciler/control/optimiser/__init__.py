"""Runs the optimiser in a child process that can be killed."""

from reconciler.control.optimiser.killable import KillableOptimiser

__all__ = ["KillableOptimiser"]
