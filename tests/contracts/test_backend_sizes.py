"""Every backend lets tasks join and leave a gang that runs; see reconciler/protocols/backend.py."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.protocols.backend import StaleEpochError, StartGang
from solver.model.workload import JobName
from tests.contracts.backend_world import BackendWorld, Watcher, grow, let_another_job_run, start, stop, stop_workers

JOB = JobName("job")


@pytest.fixture
def started(world: BackendWorld, watcher: Watcher) -> StartGang:
    """A gang of two that runs."""
    order = start(world, "job", world.runs(), (0, (0,)), (1, (0,)))
    watcher.send(order)
    watcher.until(lambda: watcher.states("job") == ["running", "running"])
    _all_signed(world, 2)
    return order


def test_tasks_join_a_gang_that_runs(world: BackendWorld, watcher: Watcher, started: StartGang) -> None:
    order = grow(world, started, 1, (2, (0, (1,))))
    watcher.send(order)
    watcher.send(order)
    watcher.until(lambda: watcher.states("job") == ["running"] * 3)
    assert watcher.tasks[JOB, 1, "worker", 2].growth == 1
    watcher.send(order)
    let_another_job_run(world, watcher)
    assert [world.starts(JOB, 1, "worker", index) for index in range(3)] == [1, 1, 1]


def test_tasks_that_leave_end_and_the_others_go_on(world: BackendWorld, watcher: Watcher, started: StartGang) -> None:
    watcher.send(stop_workers("job", 1))
    watcher.send(stop_workers("job", 1))
    watcher.until(lambda: watcher.has_left("job", 1))
    assert watcher.states("job") == ["running", "stopped"]
    assert not watcher.is_stopped("job")
    watcher.send(started)  # a start that was long on its way
    let_another_job_run(world, watcher)
    assert watcher.states("job") == ["running", "stopped"]
    assert world.starts(JOB, 1, "worker", 1) == 1


def test_a_task_that_ended_by_itself_has_left_too(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(start(world, "job", world.fails(7), (0, (0,))))
    watcher.until(lambda: watcher.states("job") == ["failed"])
    watcher.send(stop_workers("job", 0))
    watcher.until(lambda: watcher.has_left("job", 0))
    assert watcher.states("job") == ["failed"]


def test_a_task_that_ended_by_itself_begins_again_with_the_next_growth(world: BackendWorld, watcher: Watcher) -> None:
    started = start(world, "job", world.fails(7), (0, (0,)), (1, (0,)))
    watcher.send(started)
    watcher.until(lambda: watcher.states("job") == ["failed", "failed"])
    order = msgspec.structs.replace(grow(world, started, 1), tasks=started.tasks[:1])
    watcher.send(order)
    watcher.send(order)
    watcher.until(lambda: watcher.tasks[JOB, 1, "worker", 0].growth == 1 and watcher.states("job") == ["failed"] * 2)
    assert [world.starts(JOB, 1, "worker", index) for index in range(2)] == [2, 1]


def test_what_was_told_to_leave_before_it_came_never_starts(
    world: BackendWorld, watcher: Watcher, started: StartGang
) -> None:
    watcher.send(stop_workers("job", 2, growth=1))
    watcher.until(lambda: watcher.has_left("job", 2, growth=1))
    watcher.send(grow(world, started, 1, (2, (0, (1,)))))
    let_another_job_run(world, watcher)
    assert world.starts(JOB, 1, "worker", 2) == 0
    assert "running" not in watcher.states("job")[2:]


def test_who_has_left_may_join_again_elsewhere(world: BackendWorld, watcher: Watcher, started: StartGang) -> None:
    watcher.send(stop_workers("job", 1))
    watcher.until(lambda: watcher.has_left("job", 1))
    watcher.send(grow(world, started, 1, (1, (0, (1,)))))
    watcher.until(lambda: watcher.states("job") == ["running", "running"])
    again = watcher.tasks[JOB, 1, "worker", 1]
    assert (again.node, again.growth) == (world.nodes[0].name, 1)
    watcher.send(stop_workers("job", 1))  # the order to its former life, long on its way
    watcher.send(started)
    let_another_job_run(world, watcher)
    assert watcher.states("job") == ["running", "running"]
    watcher.send(stop_workers("job", 1, growth=1))
    watcher.until(lambda: watcher.has_left("job", 1, growth=1))
    assert watcher.states("job") == ["running", "stopped"]


def test_a_new_backend_object_knows_who_joined_and_who_left(
    world: BackendWorld, watcher: Watcher, started: StartGang
) -> None:
    order = grow(world, started, 1, (2, (0, (1,))))
    watcher.send(order)
    watcher.send(stop_workers("job", 1, growth=1))
    watcher.until(lambda: watcher.states("job") == ["running", "stopped", "running"] and watcher.has_left("job", 1, 1))
    world.restart()
    again = Watcher(world)
    again.until(lambda: again.states("job") == ["running", "stopped", "running"] and again.has_left("job", 1, 1))
    again.send(order)
    again.send(stop_workers("job", 1, growth=1))
    let_another_job_run(world, again)
    assert [world.starts(JOB, 1, "worker", index) for index in range(3)] == [1, 1, 1]


def test_a_stop_ends_those_who_joined_too(world: BackendWorld, watcher: Watcher, started: StartGang) -> None:
    watcher.send(grow(world, started, 1, (2, (0, (1,)))))
    watcher.until(lambda: watcher.states("job") == ["running"] * 3)
    watcher.send(stop_workers("job", 1, growth=1, grace_ms=600_000))
    watcher.send(stop("job"))
    watcher.until(lambda: watcher.is_stopped("job"))
    assert watcher.states("job") == ["stopped"] * 3
    watcher.send(grow(world, started, 2, (3, (1, (1,)))))
    let_another_job_run(world, watcher)
    assert world.starts(JOB, 1, "worker", 3) == 0


def test_orders_about_sizes_under_an_older_epoch_are_refused(
    world: BackendWorld, watcher: Watcher, started: StartGang
) -> None:
    watcher.forget("other", epoch=3)
    with pytest.raises(StaleEpochError):
        watcher.send(grow(world, started, 1, (2, (0, (1,)))), epoch=2)
    with pytest.raises(StaleEpochError):
        watcher.send(stop_workers("job", 1), epoch=2)
    let_another_job_run(world, watcher, epoch=3)
    assert watcher.states("job") == ["running", "running"]


def test_who_joins_learns_of_the_gang_as_it_is_then(world: BackendWorld, watcher: Watcher, started: StartGang) -> None:
    watcher.send(grow(world, started, 1, (2, (1, (1,)))))
    watcher.until(lambda: watcher.states("job") == ["running"] * 3)
    first, joined = (world.environment(JOB, 1, "worker", index) for index in (0, 2))
    if first is None or joined is None:
        pytest.skip("this backend starts nothing that has an environment")
    assert [(seen["RANK"], seen["WORLD_SIZE"]) for seen in (first, joined)] == [("0", "2"), ("2", "3")]
    assert joined["LOCAL_RANK"] == "1"
    assert joined["CUDA_VISIBLE_DEVICES"] == "1"
    assert first["MASTER_PORT"] == joined["MASTER_PORT"]


def _all_signed(world: BackendWorld, tasks: int) -> None:
    """A command that is stopped as soon as it starts may not have come to signing."""
    assert [world.starts(JOB, 1, "worker", index) for index in range(tasks)] == [1] * tasks
