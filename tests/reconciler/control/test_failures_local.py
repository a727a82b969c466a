"""Failures of real processes: one is killed and rejoins, one is killed and the gang goes on, one runs out of memory and says so."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.control.control import ControlPlane, PolicyInForce
from reconciler.control.ledger_site import one_pass
from reconciler.control.recording import solver_with
from reconciler.documents.operations import Operations
from reconciler.model.clock import SystemClock
from reconciler.model.job_record import JobRecord
from reconciler.model.retry_policy import Backoff, RetryPolicy
from reconciler.store.store import SqlStore, open_store
from solver.model.quantities import Duration, Memory
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from solver.policy.policy import Queue, policy_of
from tests.contracts.local_worlds import LocalWorld, local_world
from tests.contracts.simulated_worlds import NODES

JOB = JobName("job")
PASSES_MAX = 600


class InForce:
    """Implements PolicySource: jobs that name it may begin again twice, at once."""

    def current(self) -> PolicyInForce:
        policy = RetryPolicy("training", 2, Backoff(Duration(1), max=Duration(1)))
        return PolicyInForce("revision", policy_of((Queue(QueueName("q")),)), NODES, Operations(retry=(policy,)))


class Site:
    """A control plane over real processes."""

    def __init__(self, world: LocalWorld, store: SqlStore) -> None:
        self.world, self.store, backend = world, store, world.backend
        stores = store.jobs, store.ledger, store.history, store.checkpoints, store.interventions, store.health
        self.plane = ControlPlane("only", *stores, backend, backend, InForce(), solver_with(None), SystemClock())

    def submit(self, command: tuple[str, ...], group: TaskGroup) -> None:
        spec = JobSpec(QueueName("q"), (group,), command=command, retry_policy="training")
        self.store.jobs.submit(JOB, spec, "ada", self.plane.clock.now(), "key")

    def until(self, reached: Callable[[], bool]) -> None:
        for _ in range(PASSES_MAX):
            one_pass(self.plane)
            if reached():
                return
            time.sleep(0.05)
        raise AssertionError("it never came about")

    def starts(self, *, attempt: int = 1) -> list[int]:
        return [self.world.starts(JOB, attempt, "worker", index) for index in range(3)]

    def runs(self) -> bool:
        return any(claim.running_since is not None for claim in self.store.ledger.claims())

    def kill(self, index: int) -> None:
        """As the kernel would: the task's own process, and not its supervisor."""
        assert all(self.starts())
        marks = (f"QUORATE_JOB={JOB}".encode(), f"QUORATE_INDEX={index}".encode())
        for pid in self.world.processes():
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if set(marks) <= set(environment) and b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                return
        raise AssertionError(f"no process of task {index}")

    def events(self) -> list[str]:
        return [event.kind for event in self.store.history.events(JOB)]

    @property
    def record(self) -> JobRecord:
        return self.store.jobs.job(JOB)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    store = open_store(tmp_path / "quorate.db")
    with local_world(tmp_path) as world:
        yield Site(world, store)
    store.close()


def test_a_killed_process_begins_again_beside_the_others(site: Site) -> None:
    site.submit(site.world.runs(), TaskGroup("worker", 3, Shape(gpus=1), rejoin=True))
    site.until(site.runs)
    site.kill(1)
    site.until(lambda: site.starts() == [1, 2, 1])
    (failure,) = site.record.failures
    assert (failure.kind, failure.exit_code, failure.outlived) == ("signal", 128 + signal.SIGKILL, 1)
    assert site.store.ledger.attempts() == {JOB: 1}


def test_an_elastic_gang_outlives_a_killed_process_and_gets_another(site: Site) -> None:
    site.submit(site.world.runs(), TaskGroup("worker", 3, Shape(gpus=1), min_replicas=1))
    site.until(lambda: site.runs() and len(site.store.ledger.claims()[0].tasks) == 3)
    site.kill(1)
    site.until(lambda: site.starts() == [1, 2, 1])
    assert [kind for kind in site.events() if kind in ("outlived", "shrunk")] == ["outlived", "shrunk"]
    assert [failure.outlived for failure in site.record.failures] == [1]
    assert site.store.ledger.attempts() == {JOB: 1}


def test_a_rigid_gang_stops_whole_and_is_its_next_attempt(site: Site) -> None:
    site.submit(site.world.runs(), TaskGroup("worker", 3, Shape(gpus=1)))
    site.until(site.runs)
    site.kill(1)
    site.until(lambda: site.store.ledger.attempts() == {JOB: 2} and site.runs())
    assert (site.starts(), site.starts(attempt=2)) == ([1, 1, 1], [1, 1, 1])


def test_a_task_with_more_memory_than_it_asked_for_fails_with_advice(site: Site) -> None:
    site.submit(site.world.hogs(), TaskGroup("worker", 1, Shape(memory=Memory(20 * 2**20))))
    site.until(lambda: site.record.outcome is not None)
    outcome = site.record.outcome
    assert outcome is not None
    assert (outcome.state, site.record.failures) == ("failed", ())
    assert "of 20Mi memory, and was ended for it (out-of-memory). Ask for `memory: " in outcome.message


def test_what_its_log_says_of_gpu_memory_is_believed(site: Site) -> None:
    command = site.world.shell("echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1")
    site.submit(command, TaskGroup("worker", 1, Shape(gpus=1)))
    site.until(lambda: site.record.outcome is not None)
    outcome = site.record.outcome
    assert outcome is not None
    assert (outcome.state, site.record.failures) == ("failed", ())
    assert "smaller batch size, gradient checkpointing" in outcome.message
