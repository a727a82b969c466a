"""Finds the data files that belong to Quorate (schemas, the example policy), installed or in a checkout."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def shipped(folder: str) -> Path:
    """The folder `schemas`, `policies` or `cluster-state`; in a wheel they lie inside the package, in a checkout beside it."""
    package = Path(str(files("reconciler")))
    installed = package / "shipped" / folder
    return installed if installed.is_dir() else package.parent / folder
