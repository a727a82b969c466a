"""Every backend partitions GPUs as it is told, and never under a task; see reconciler/protocols/backend.py."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.protocols.backend import GpuPartitioned, PartitionGpu, StaleEpochError
from solver.model.cluster import DeviceId, MigInstance
from solver.model.workload import JobName
from tests.contracts.backend_world import BackendWorld, Watcher, instance, partition, start, start_on, stop

TWO = ("3g.40gb@0", "1g.10gb@4")


@pytest.fixture
def gpu(world: BackendWorld) -> DeviceId:
    """The first GPU of the first node."""
    return world.nodes[0].gpus[0].id


def made(world: BackendWorld, watcher: Watcher, order: PartitionGpu) -> PartitionGpu:
    """Ask for it, again with the next number where it fails, until it is done; what was done in the end."""
    for attempt in range(order.attempt, order.attempt + 50):
        asked = msgspec.structs.replace(order, attempt=attempt)
        done = answered(watcher, asked)
        assert done.instances == watcher.instances(asked.device), "its node is reported no later"
        if not done.refused:
            assert done.instances == asked.instances
            return asked
    raise AssertionError("it always failed")


def answered(watcher: Watcher, asked: PartitionGpu) -> GpuPartitioned:
    """Ask for it, and wait for what came of it."""
    watcher.partition(asked)
    watcher.until(lambda: _is_answered(watcher, asked))
    return watcher.partitioned[asked.device]


def _is_answered(watcher: Watcher, asked: PartitionGpu) -> bool:
    done = watcher.partitioned.get(asked.device)
    return done is not None and done.attempt >= asked.attempt


def test_a_gpu_has_exactly_the_instances_it_was_told(world: BackendWorld, watcher: Watcher, gpu: DeviceId) -> None:
    watcher.until(lambda: bool(watcher.nodes))
    assert watcher.instances(gpu) is None
    done = made(world, watcher, partition(world, 0, 1, *TWO))
    assert watcher.instances(gpu) == tuple(map(instance, TWO))
    done = made(world, watcher, partition(world, 0, done.attempt + 1, "1g.10gb@4", "2g.20gb@0"))
    assert set(watcher.instances(gpu) or ()) == {MigInstance("1g.10gb", 4), MigInstance("2g.20gb", 0)}
    made(world, watcher, msgspec.structs.replace(done, attempt=done.attempt + 1, instances=None))
    assert watcher.instances(gpu) is None
    assert watcher.instances(world.nodes[0].gpus[1].id) is None


def test_an_older_order_changes_nothing_and_the_same_one_neither(
    world: BackendWorld, watcher: Watcher, gpu: DeviceId
) -> None:
    first = made(world, watcher, partition(world, 0, 1, *TWO))
    second = made(world, watcher, partition(world, 0, first.attempt + 1, "7g.80gb@0"))
    watcher.partition(first)
    watcher.partition(second)
    watcher.partition(msgspec.structs.replace(first, attempt=second.attempt))
    watcher.until_quiet()
    assert watcher.instances(gpu) == (MigInstance("7g.80gb", 0),)
    assert watcher.partitioned[gpu].attempt == second.attempt


def test_tasks_run_on_instances_which_are_never_taken_from_them(
    world: BackendWorld, watcher: Watcher, gpu: DeviceId
) -> None:
    attempt = made(world, watcher, partition(world, 0, 1, *TWO)).attempt
    watcher.send(start_on(world, "job", world.runs(), 0, "1g.10gb@4"))
    watcher.until(lambda: watcher.states("job") == ["running"])
    for order in (partition(world, 0, attempt + 1, "1g.10gb@5"), partition(world, 0, attempt + 2)):
        assert answered(watcher, msgspec.structs.replace(order, instances=order.instances or None)).refused
        assert watcher.instances(gpu) == tuple(map(instance, TWO))
    made(world, watcher, partition(world, 0, attempt + 3, "1g.10gb@4", "1g.10gb@5"))  # beside it anything may change
    assert watcher.states("job") == ["running"]
    watcher.send(stop("job"))
    watcher.until(lambda: watcher.is_stopped("job"))
    made(world, watcher, partition(world, 0, attempt + 60))


def test_a_gpu_that_a_task_has_as_a_whole_is_not_partitioned(
    world: BackendWorld, watcher: Watcher, gpu: DeviceId
) -> None:
    watcher.send(start(world, "job", world.runs(), (0, (0,))))
    watcher.until(lambda: watcher.states("job") == ["running"])
    assert answered(watcher, partition(world, 0, 1, *TWO)).refused
    assert watcher.instances(gpu) is None
    assert watcher.states("job") == ["running"]


def test_what_is_not_there_is_not_begun_on(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(start_on(world, "job", world.runs(), 0, "1g.10gb@4"))
    watcher.until(lambda: watcher.states("job") == ["lost"])
    made(world, watcher, partition(world, 1, 1, *TWO))
    watcher.send(start(world, "whole", world.runs(), (0, (1,))))
    watcher.until(lambda: watcher.states("whole") == ["lost"])


def test_a_new_backend_object_knows_what_gpus_are(world: BackendWorld, watcher: Watcher, gpu: DeviceId) -> None:
    done = made(world, watcher, partition(world, 0, 1, *TWO))
    world.restart()
    again = Watcher(world)
    again.until(lambda: bool(again.nodes) and _is_answered(again, done))
    assert again.instances(gpu) == done.instances
    again.partition(msgspec.structs.replace(done, attempt=done.attempt - 1, instances=None))
    again.until_quiet()
    assert again.instances(gpu) == done.instances


def test_partitioning_under_an_older_epoch_is_refused(world: BackendWorld, watcher: Watcher, gpu: DeviceId) -> None:
    watcher.forget("other", epoch=3)
    with pytest.raises(StaleEpochError):
        watcher.partition(partition(world, 0, 1, *TWO), epoch=2)
    watcher.until_quiet()
    assert watcher.instances(gpu) is None


def test_a_task_learns_which_instance_it_has(world: BackendWorld, watcher: Watcher) -> None:
    made(world, watcher, partition(world, 0, 1, "1g.10gb@4", "1g.10gb@5"))
    watcher.send(start_on(world, "job", world.runs(), 0, "1g.10gb@4", "1g.10gb@5"))
    watcher.until(lambda: watcher.states("job") == ["running", "running"])
    seen = [world.environment(JobName("job"), 1, "worker", index) for index in (0, 1)]
    first, second = seen
    if first is None or second is None:
        pytest.skip("this backend starts nothing that has an environment")
    assert first["CUDA_VISIBLE_DEVICES"].startswith("MIG-")
    assert first["CUDA_VISIBLE_DEVICES"] != second["CUDA_VISIBLE_DEVICES"]
    assert first["QUORATE_DEVICES"] == f"{world.nodes[0].gpus[0].id}/1g.10gb@4"
