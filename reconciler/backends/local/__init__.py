"""Runs tasks as real processes of this machine, on GPUs that are declared rather than detected."""

from reconciler.backends.local.backend import LocalBackend
from reconciler.backends.local.disk import StateFolderError

__all__ = ["LocalBackend", "StateFolderError"]
