"""What processes of pytest-xdist that run these tests together tell each other, by files: their audit logs, and how they ended."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

INSTALLED = ("shipped", "fenced")
"""Folders of the clusters where Quorate runs with the rights that are shipped; each process has its own."""
PATIENCE_S = 600.0


def folder_of_all(factory: pytest.TempPathFactory) -> Path:
    """The folder in which all processes of this run have theirs."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def audit_logs(folder: Path) -> list[Path]:
    """Of all clusters of all processes where Quorate is installed."""
    return sorted(log for log in folder.rglob("audit.log") if log.parent.name.rstrip("0123456789") in INSTALLED)


def tell_end(folder: Path, failed: int) -> None:
    """This process has run its last test, after so many that failed."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    written = folder / f"writing-{name}"
    written.write_text(str(failed))
    written.rename(folder / f"ended-{name}")  # whole, for who looks meanwhile


def failed_elsewhere(folder: Path) -> int:
    """Waits until all other processes have ended; how many tests failed there. Raises TimeoutError."""
    others = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) - 1
    until_s = time.monotonic() + PATIENCE_S
    while len(ended := list(folder.glob("ended-*"))) < others:
        if time.monotonic() > until_s:
            raise TimeoutError(f"{folder}: {len(ended)} of {others} processes that run tests have ended")
        time.sleep(0.1)
    return sum(int(each.read_text()) for each in ended)
