"""GPUs count as free only once they are clean: a driver that is a table here, and real tasks and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from reconciler.node.local.cleanup import (
    CLEAN_WITHIN,
    MEMORY_SLACK,
    GpuCleanup,
    GpuUnreadableError,
    Verified,
    whole_gpus,
    why_unclean,
)
from reconciler.protocols.backend import Cursor, Epoch, StartGang, StopGang, TaskStatus
from solver.model.cluster import DeviceId, MigInstance, Node, NodeName
from solver.model.quantities import Duration, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, MigSlot, QueueName, TaskGroup, TaskPlacement
from tests.contracts.local_worlds import LocalWorld, eventually, local_world

JOB, ONE = JobName("job"), Epoch(1)
GPU = DeviceId("n1/0")
GIB = 2**30


class Driver:
    """Implements GpuUse: what a test writes into it."""

    def __init__(self) -> None:
        self.left: tuple[int, ...] = ()
        self.used = GIB // 2
        self.silent = ""

    def processes(self, device: DeviceId) -> tuple[int, ...]:
        if self.silent:
            raise GpuUnreadableError(self.silent)
        return self.left if device == GPU else ()

    def memory_used(self, device: DeviceId) -> Memory:
        if self.silent:
            raise GpuUnreadableError(self.silent)
        return Memory(self.used if device == GPU else 0)


@pytest.mark.parametrize(
    ("left", "used", "before", "why"),
    [
        ((), GIB, GIB, ""),
        ((), GIB + MEMORY_SLACK, GIB, ""),
        ((), GIB + MEMORY_SLACK + 1, GIB, "1.1Gi of its memory are in use by no process, and 1Gi were before"),
        ((), 80 * GIB, None, ""),
        ((9, 7), 0, GIB, "processes 7, 9 are still on it"),
    ],
)
def test_a_gpu_is_clean_without_processes_and_with_its_memory_back(
    left: tuple[int, ...], used: int, before: int | None, why: str
) -> None:
    assert why_unclean(left, Memory(used), None if before is None else Memory(before)) == why


def test_what_is_not_clean_is_waited_for_and_then_nobodys(tmp_path: Path) -> None:
    driver, task = Driver(), tmp_path / "task"
    task.mkdir()
    cleanup = GpuCleanup(tmp_path / "quarantine", driver, Duration(1_000))
    before = cleanup.before([GPU])
    assert before == {GPU: Memory(GIB // 2)}
    driver.used = 3 * GIB
    waiting = "GPU n1/0: 3Gi of its memory are in use by no process, and 512Mi were before"
    assert cleanup.verify(task, [GPU], before, Instant(5_000), Instant(5_999)) == waiting
    assert cleanup.quarantined() == {}
    assert cleanup.verify(task, [GPU], before, Instant(5_000), Instant(6_000)) == Verified(Instant(6_000), waiting)
    assert cleanup.quarantined().keys() == {GPU}
    driver.used = GIB // 2
    assert cleanup.quarantined() == {}, "it has become clean"
    assert not list((tmp_path / "quarantine").iterdir())
    assert cleanup.verify(task, [GPU], before, Instant(5_000), Instant(9_000)) == Verified(Instant(6_000), waiting)


def test_a_driver_that_does_not_say_is_no_proof(tmp_path: Path) -> None:
    driver = Driver()
    driver.silent = "the GPU has fallen off the bus"
    cleanup = GpuCleanup(tmp_path / "quarantine", driver, Duration(1_000))
    assert cleanup.before([GPU]) == {}
    assert cleanup.verify(tmp_path, [GPU], {}, Instant(0), Instant(10)) == f"GPU n1/0: {driver.silent}"
    assert isinstance(cleanup.verify(tmp_path, [GPU], {}, Instant(0), Instant(1_000)), Verified)
    assert cleanup.quarantined()[GPU].why == driver.silent


def test_of_declared_gpus_there_is_nothing_to_verify(tmp_path: Path) -> None:
    cleanup = GpuCleanup(tmp_path / "quarantine")
    assert cleanup.before([GPU]) == {}
    assert cleanup.verify(tmp_path, [GPU], {}, Instant(0), Instant(1)) == Verified(Instant(1))
    assert cleanup.quarantined() == {}
    assert not list(tmp_path.iterdir())


def test_only_gpus_of_its_own_are_a_tasks_to_leave_clean() -> None:
    one = TaskPlacement("w", 0, NodeName("n1"), (GPU,))
    assert whole_gpus(one) == (GPU,)
    assert whole_gpus(TaskPlacement("w", 0, NodeName("n1"), (GPU,), share=MilliGpu(500), sharing="mps")) == ()
    slot = MigSlot(GPU, MigInstance("1g.10gb", 0), MilliGpu(125))
    assert whole_gpus(TaskPlacement("w", 0, NodeName("n1"), (DeviceId("n1/0/1g.10gb@0"),), mig=slot)) == ()


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def world(tmp_path: Path, driver: Driver) -> Iterator[LocalWorld]:
    with local_world(tmp_path) as made:
        made.gpu_use = driver
        made.restart()
        yield made
        driver.left = ()


def test_a_task_has_not_ended_while_something_of_it_is_on_its_gpu(world: LocalWorld, driver: Driver) -> None:
    driver.left = (4711,)
    run(world, "exit 3")
    eventually(lambda: "waited for: GPU n1/0: processes 4711" in task(world).detail)
    assert (task(world).state, task(world).exit_code) == ("running", None)
    world.backend.submit(StopGang(JOB, 1, Duration(0)), ONE)
    assert world.backend.changes(Cursor(0)).stopped == ()
    assert healthy(world)
    driver.left = ()
    assert (task(world).state, task(world).exit_code) == ("failed", 3)
    assert len(world.backend.changes(Cursor(0)).stopped) == 1
    driver.left = (4712,)
    world.restart()
    assert task(world).state == "failed", "what others do there later is none of its business"
    assert healthy(world)


def test_a_gpu_that_stays_unclean_is_reported_unhealthy_with_the_end_of_its_task(
    world: LocalWorld, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.left = (4711,)
    run(world, "exit 0")
    eventually(lambda: "waited for" in task(world).detail)
    monkeypatch.setattr(GpuCleanup, "verify", late(GpuCleanup.verify))
    told = world.backend.changes(Cursor(0))
    (ended,) = told.tasks
    assert (ended.state, ended.detail) == ("succeeded", "GPU n1/0: processes 4711 are still on it")
    assert not told_healthy(told.nodes), "no later than the end of the task"
    world.restart()
    assert not healthy(world), "it is on the disk"
    driver.left = ()
    assert healthy(world), "let go once it is clean"


Verify = Callable[[GpuCleanup, Path, Iterable[DeviceId], dict[DeviceId, Memory], Instant, Instant], str | Verified]


def late(verify: Verify) -> Verify:
    """As if the task had ended a minute before."""
    return lambda cleanup, task, devices, before, ended_at, now: verify(
        cleanup, task, devices, before, Instant(ended_at - CLEAN_WITHIN), now
    )


def run(world: LocalWorld, script: str) -> None:
    spec = JobSpec(QueueName("q"), (TaskGroup("w", 1, Shape(gpus=1)),), command=("sh", "-c", script))
    world.backend.submit(StartGang(JOB, 1, (TaskPlacement("w", 0, NodeName("n1"), (GPU,)),), spec), ONE)


def task(world: LocalWorld) -> TaskStatus:
    (status,) = world.backend.changes(Cursor(0)).tasks
    return status


def healthy(world: LocalWorld) -> bool:
    return told_healthy(world.backend.changes(Cursor(0)).nodes)


def told_healthy(nodes: tuple[Node, ...]) -> bool:
    return next(gpu for node in nodes for gpu in node.gpus if gpu.id == GPU).healthy
