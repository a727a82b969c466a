"""An empty store, from a copy of one: describing forty tables to SQLite takes longer than most tests that need a store."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from reconciler.store.database import LeaseClock
from reconciler.store.store import SqlStore, open_store


def fresh_store(path: Path, lease_clock: LeaseClock | None = None) -> SqlStore:
    """Opened as `open_store` opens a file that isn't there yet; one that is there stays as it is."""
    if not path.exists():
        path.touch(_empty()[0])
        path.write_bytes(_empty()[1])
    return open_store(path, lease_clock=lease_clock)


@cache
def _empty() -> tuple[int, bytes]:
    """The mode of a new store's file, and what is in it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "quorate.db"
        open_store(path).close()
        assert os.listdir(folder) == [path.name], "something of it lies elsewhere"
        return path.stat().st_mode & 0o777, path.read_bytes()
