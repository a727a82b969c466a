"""What the storage suites need of an implementation, and the documents they store."""

from __future__ import annotations

import atexit
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Protocol

from sqlalchemy import create_engine, insert, text
from sqlalchemy.schema import CreateSchema, DropSchema

from reconciler.protocols.agents import Agents
from reconciler.protocols.alerts import AlertDeliveries
from reconciler.protocols.backend import Epoch
from reconciler.protocols.capacity import Capacities
from reconciler.protocols.checkpoints import CheckpointRegistry
from reconciler.protocols.git_decisions import AcceptedPlans, FollowingDecisions
from reconciler.protocols.gone_pods import GonePods
from reconciler.protocols.gpu_use import GpuUses
from reconciler.protocols.health import NodeHealths
from reconciler.protocols.history import History
from reconciler.protocols.interventions import Interventions
from reconciler.protocols.job_source import JobSource
from reconciler.protocols.ledger import Claim, Ledger
from reconciler.protocols.past_jobs import PastJobs
from reconciler.protocols.placements import Placements
from reconciler.protocols.pod_placements import PodPlacements
from reconciler.protocols.sessions import Sessions
from reconciler.store.database import Database
from reconciler.store.engines import postgresql_url
from reconciler.store.schema import metadata
from reconciler.store.store import open_store
from reconciler.store.tables import leadership
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import Intent, IntentKind, Reservation
from solver.model.quantities import Duration, Instant
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from tests.fresh_store import fresh_store

POSTGRESQL_URL = "QUORATE_TEST_POSTGRESQL"
"""Names the environment variable with a URL such as postgresql://user@host/database; `python -m hack.postgresql` sets it."""

NOW = Instant.parse("2026-03-01T12:00:00Z")
LEASE = Duration(10_000)
SPEC = JobSpec(QueueName("q"), (TaskGroup("worker", 2, Shape(gpus=1)),), command=("true",), env={"NAME": "wert ü"})


class Stores(Protocol):
    """The protocols over one state. Register an implementation in tests/contracts/conftest.py."""

    @property
    def jobs(self) -> JobSource:
        """What wants to run."""

    @property
    def ledger(self) -> Ledger:
        """Who holds which device."""

    @property
    def history(self) -> History:
        """What happened."""

    @property
    def checkpoints(self) -> CheckpointRegistry:
        """What jobs have saved."""

    @property
    def alerts(self) -> AlertDeliveries:
        """How far webhooks are."""

    @property
    def following(self) -> FollowingDecisions:
        """What people decided about following Git."""

    @property
    def plans(self) -> AcceptedPlans:
        """Plans that people accepted."""

    @property
    def gone_pods(self) -> GonePods:
        """What pods took with them."""

    @property
    def interventions(self) -> Interventions:
        """What people did by hand."""

    @property
    def health(self) -> NodeHealths:
        """What speaks against nodes."""

    @property
    def agents(self) -> Agents:
        """Which nodes have an agent."""

    @property
    def sessions(self) -> Sessions:
        """Who is signed in."""

    @property
    def placements(self) -> Placements:
        """What was held of which node."""

    @property
    def pod_placements(self) -> PodPlacements:
        """What pods held, and what gangs were."""

    @property
    def capacities(self) -> Capacities:
        """Which GPUs there were."""

    @property
    def past_jobs(self) -> PastJobs:
        """What there was of jobs."""

    @property
    def gpu_uses(self) -> GpuUses:
        """What GPUs did."""

    def reopen(self) -> None:
        """Drop every object, as a crash would, and make new ones on the same state."""


class SqlStores:
    """Implements Stores on one database."""

    def __init__(self, where: Path | str) -> None:
        self._where = where
        # The suites say what time it is.
        self._store = (
            fresh_store(where, "caller") if isinstance(where, Path) else open_store(where, lease_clock="caller")
        )

    @property
    def jobs(self) -> JobSource:
        return self._store.jobs

    @property
    def ledger(self) -> Ledger:
        return self._store.ledger

    @property
    def gone_pods(self) -> GonePods:
        return self._store.gone_pods

    @property
    def history(self) -> History:
        return self._store.history

    @property
    def checkpoints(self) -> CheckpointRegistry:
        return self._store.checkpoints

    @property
    def alerts(self) -> AlertDeliveries:
        return self._store.alerts

    @property
    def following(self) -> FollowingDecisions:
        return self._store.following

    @property
    def plans(self) -> AcceptedPlans:
        return self._store.plans

    @property
    def interventions(self) -> Interventions:
        return self._store.interventions

    @property
    def health(self) -> NodeHealths:
        return self._store.health

    @property
    def agents(self) -> Agents:
        return self._store.agents

    @property
    def sessions(self) -> Sessions:
        return self._store.sessions

    @property
    def placements(self) -> Placements:
        return self._store.placements

    @property
    def pod_placements(self) -> PodPlacements:
        return self._store.pod_placements

    @property
    def capacities(self) -> Capacities:
        return self._store.capacities

    @property
    def past_jobs(self) -> PastJobs:
        return self._store.past_jobs

    @property
    def gpu_uses(self) -> GpuUses:
        return self._store.gpu_uses

    @property
    def database(self) -> Database:
        return self._store.database

    def reopen(self) -> None:
        self.close()
        self._store = open_store(self._where, lease_clock="caller")

    def close(self) -> None:
        self._store.close()


@contextmanager
def sqlite_stores(folder: Path) -> Iterator[SqlStores]:
    """A fresh SQLite file."""
    stores = SqlStores(folder / "quorate.db")
    yield stores
    stores.close()


@contextmanager
def postgresql_stores(_: Path) -> Iterator[SqlStores]:
    """One schema of the PostgreSQL database that POSTGRESQL_URL names, emptied for each test: making tables takes longest."""
    stores = SqlStores(_one_schema())
    with stores._store.database.engine.begin() as connection:
        tables = ", ".join(table.name for table in metadata.sorted_tables if table.name != "schema_version")
        connection.execute(text(f"TRUNCATE {tables} RESTART IDENTITY CASCADE"))
        connection.execute(insert(leadership).values(id=1, holder="", epoch=0, until=0))
    yield stores
    stores.close()


@cache
def _one_schema() -> str:
    made = postgresql_schema()
    atexit.register(made.__exit__, None, None, None)
    return made.__enter__()


@contextmanager
def postgresql_schema() -> Iterator[str]:
    """The URL of a fresh schema of the PostgreSQL database that POSTGRESQL_URL names, which goes afterwards."""
    server, schema = create_engine(postgresql_url(os.environ[POSTGRESQL_URL])), f"quorate_test_{uuid.uuid4().hex}"
    with server.begin() as connection:
        connection.execute(CreateSchema(schema))
    url = server.url.update_query_dict({"options": f"-csearch_path={schema}"})
    yield url.render_as_string(hide_password=False)
    with server.begin() as connection:
        connection.execute(DropSchema(schema, cascade=True))
    server.dispose()


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


def reservation_of(name: str, node: str) -> Reservation:
    """One GPU kept for a job from an hour ahead, for a minute."""
    tasks = (TaskPlacement("worker", 0, NodeName(node), (DeviceId(f"{node}/0"),)),)
    return Reservation(JobName(name), tasks, NOW.after(3_600_000), NOW.after(3_660_000))
