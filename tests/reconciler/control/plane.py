"""A whole control plane in miniature for tests: SQLite, the simulated backend in a kind world, a clock that stands still."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from reconciler.backends.simulated.backend import SimulatedBackend
from reconciler.backends.simulated.behaviour import KIND, Faults
from reconciler.backends.simulated.cluster import SimulatedCluster
from reconciler.control.control import ControlPlane, PolicyInForce
from reconciler.control.ledger_site import one_pass
from reconciler.control.passes import Pass
from reconciler.control.recording import solver_with
from reconciler.documents.operations import Operations
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.lifecycle.jobs.states import state_of
from reconciler.model.clock import VirtualClock
from reconciler.model.job_record import JobState
from reconciler.protocols.backend import Cursor, TaskState
from solver.model.quantities import Duration
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from solver.policy.policy import Queue, SchedulingPolicy, policy_of
from tests.contracts.simulated_worlds import NODES
from tests.fresh_store import fresh_store

START_DEADLINE = Duration(60_000)


class Site:
    """Implements PolicySource too: what Git says is a field."""

    def __init__(self, path: Path, faults: Faults = KIND) -> None:
        self.clock = VirtualClock()
        self.store = fresh_store(path)
        self.cluster = SimulatedCluster(NODES, self.clock, random.Random(1), faults)
        self.backend = SimulatedBackend(self.cluster)
        self.policy = policy_of((Queue(QueueName("q")),), (), SchedulingPolicy(start_deadline=START_DEADLINE))
        self.declared = NODES
        self.operations = Operations()
        self.only_plane = self.plane("only")

    def current(self) -> PolicyInForce:
        return PolicyInForce("revision", self.policy, self.declared, self.operations)

    def plane(self, holder: str) -> ControlPlane:
        """One more control plane on the same store and backend."""
        return ControlPlane(
            holder,
            self.store.jobs,
            self.store.ledger,
            self.store.history,
            self.store.checkpoints,
            self.store.interventions,
            self.store.health,
            self.backend,
            self.backend,
            self,
            solver_with(None),
            self.clock,
            reading=self.store.database.reading_together,
            together=self.store.database.together,
        )

    def submit(
        self,
        name: str,
        command: tuple[str, ...],
        tasks: int = 1,
        gpus: int = 1,
        limit_s: int | None = None,
        queue: str = "q",
    ) -> JobName:
        """Accept a gang of `tasks` tasks."""
        group = TaskGroup("worker", tasks, Shape(gpus=gpus))
        limit = None if limit_s is None else Duration(limit_s * 1_000)
        spec = JobSpec(QueueName(queue), (group,), time_limit=limit, command=command)
        return self.store.jobs.submit(JobName(name), spec, "ada", self.clock.now(), f"key-of-{name}").name

    def one_pass(self, after_s: int = 1) -> Pass:
        """Let some time pass, then take one pass."""
        self.clock.advance(after_s * 1_000)
        return one_pass(self.only_plane)

    def rest(self, passes_max: int = 50) -> None:
        """Take passes until one has nothing to do."""
        for _ in range(passes_max):
            if self.one_pass().idle:
                return
        raise AssertionError("the loop does not come to rest")

    def state(self, name: str) -> JobState:
        """Where a job stands."""
        claim = next((claim for claim in self.store.ledger.claims() if claim.job == name), None)
        ledger, record = self.store.ledger, self.store.jobs.job(JobName(name))
        last = ledger.attempts().get(record.name, 0)
        return state_of(record, claim, ledger.intents(), ledger.reservations(), last)

    def passes(self, number: int) -> None:
        """Some passes, a second apart."""
        for _ in range(number):
            self.one_pass()

    def until(self, name: str, state: JobState) -> None:
        """Passes until a job is in a state; a minute of them is long enough for anything."""
        for _ in range(60):
            if self.state(name) == state:
                return
            self.one_pass()
        raise AssertionError(f"{name} is {self.state(name)}, not {state}")

    def states(self, name: str) -> list[str]:
        """The states of a job, one after another, as its events say."""
        said = [event.state for event in self.store.history.events(name, 1_000) if event.state]
        return [state for place, state in enumerate(said) if not place or said[place - 1] != state]

    def ran(self, name: str) -> list[TaskState]:
        """How the tasks of a job that ever began stand, in the order in which they began."""
        return [interval.state for interval in self.cluster.intervals if interval.job == name]

    def sighted(self) -> BackendReports:
        """What the backend reports now."""
        return BackendReports.of(self.backend.changes(Cursor(0)))

    def events(self, name: str) -> list[str]:
        """The kinds of what happened to a job."""
        return [event.kind for event in self.store.history.events(name)]

    def faults(self, **changed: object) -> None:
        """Make the world less kind from here on."""
        self.cluster.faults = msgspec.structs.replace(self.cluster.faults, **changed)


@contextmanager
def site_at(path: Path) -> Iterator[Site]:
    """A site on a fresh file."""
    made = Site(path)
    yield made
    made.store.close()
