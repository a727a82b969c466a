"""What the storage suites need of an implementation, and the documents they store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from reconciler.backend import Epoch
from reconciler.store.protocols import Claim, History, JobSource, Ledger
from reconciler.store.sql.store import open_store
from solver.world.cluster import DeviceId, NodeName
from solver.world.inflight import Intent, IntentKind
from solver.world.quantities import Duration, Instant
from solver.world.workload import JobName, JobSpec, QueueName, Shape, TaskGroup, TaskPlacement

NOW = Instant.parse("2026-03-01T12:00:00Z")
LEASE = Duration(10_000)
SPEC = JobSpec(QueueName("q"), (TaskGroup("worker", 2, Shape(gpus=1)),), command=("true",), env={"NAME": "wert ü"})


class Stores(Protocol):
    """The three protocols over one state. Register an implementation in tests/contracts/conftest.py."""

    @property
    def jobs(self) -> JobSource:
        """What wants to run."""

    @property
    def ledger(self) -> Ledger:
        """Who holds which device."""

    @property
    def history(self) -> History:
        """What happened."""

    def reopen(self) -> None:
        """Drop every object, as a crash would, and make new ones on the same state."""


class SqliteStores:
    """Implements Stores on one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._store = open_store(path)

    @property
    def jobs(self) -> JobSource:
        return self._store.jobs

    @property
    def ledger(self) -> Ledger:
        return self._store.ledger

    @property
    def history(self) -> History:
        return self._store.history

    def reopen(self) -> None:
        self.close()
        self._store = open_store(self._path)

    def close(self) -> None:
        self._store.close()


@contextmanager
def sqlite_stores(folder: Path) -> Iterator[SqliteStores]:
    """A fresh SQLite file."""
    stores = SqliteStores(folder / "quorate.db")
    yield stores
    stores.close()


def submit(stores: Stores, name: str) -> JobName:
    """Accept a job of SPEC."""
    return stores.jobs.submit(JobName(name), SPEC, "ada", NOW, f"key-of-{name}").name


def lead(stores: Stores, holder: str = "first", now: Instant = NOW) -> Epoch:
    """Become or stay the leader."""
    return stores.ledger.lead(holder, now, LEASE)


def claim_of(job: str, *devices: str, attempt: int = 1) -> Claim:
    """One task per device, on node n1."""
    tasks = tuple(
        TaskPlacement("worker", index, NodeName("n1"), (DeviceId(device),)) for index, device in enumerate(devices)
    )
    return Claim(JobName(job), attempt, tasks, since=NOW)


def intent_of(claim: Claim, kind: IntentKind = "start") -> Intent:
    """An intent for the claimed attempt."""
    return Intent(kind, claim.job, claim.attempt, NOW, NOW.after(300_000), claim.tasks)


def take(stores: Stores, epoch: Epoch, claim: Claim) -> None:
    """Claim with the start intent."""
    stores.ledger.claim(epoch, claim, intent_of(claim))
