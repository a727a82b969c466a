"""Runs tasks as real processes of this machine, on GPUs that are declared rather than detected."""

from reconciler.node.local.backend import LocalBackend
from reconciler.node.local.disk import StateFolderError

__all__ = ["LocalBackend", "StateFolderError"]
