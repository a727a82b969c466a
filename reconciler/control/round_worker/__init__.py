"""Decides complete rounds of large clusters in a process of its own, so that nothing else waits for the interpreter meanwhile."""

from reconciler.control.round_worker.parent import FROM_GPUS, RoundWorker

__all__ = ["FROM_GPUS", "RoundWorker"]
