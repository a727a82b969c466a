"""Every backend tells the tasks of a gang what they are to do, each task at most once; see TellGang in protocols/backend.py."""

from __future__ import annotations

import pytest

from reconciler.protocols.backend import StaleEpochError, StartGang
from solver.model.workload import JobName
from tests.contracts.backend_world import BackendWorld, Watcher, grow, let_another_job_run, start, stop, tell

JOB = JobName("job")


@pytest.fixture
def started(world: BackendWorld, watcher: Watcher) -> StartGang:
    """A gang of two that runs and listens."""
    order = start(world, "job", world.listens(), (0, (0,)), (1, (0,)))
    watcher.send(order)
    watcher.until(lambda: watcher.states("job") == ["running", "running"])
    _all_listen(world, 2)
    return order


def test_every_task_is_told_once(world: BackendWorld, watcher: Watcher, started: StartGang) -> None:
    assert watcher.told("job") == [0, 0]
    for _ in range(3):
        watcher.send(tell("job", 1))
    watcher.until(lambda: watcher.told("job") == [1, 1])
    watcher.send(tell("job", 1))
    let_another_job_run(world, watcher)
    _until_heard(world, watcher, [[1], [1]])
    watcher.send(tell("job", 2))
    watcher.until(lambda: watcher.told("job") == [2, 2])
    _until_heard(world, watcher, [[1, 2], [1, 2]])
    assert watcher.states("job") == ["running", "running"]


def test_an_older_order_than_the_newest_is_not_done(world: BackendWorld, watcher: Watcher, started: StartGang) -> None:
    watcher.send(tell("job", 5))
    watcher.until(lambda: watcher.told("job") == [5, 5])
    watcher.send(tell("job", 4))
    let_another_job_run(world, watcher)
    _until_heard(world, watcher, [[5], [5]])
    assert watcher.told("job") == [5, 5]


def test_a_new_backend_object_tells_nobody_twice(world: BackendWorld, watcher: Watcher, started: StartGang) -> None:
    watcher.send(tell("job", 1))
    watcher.until(lambda: watcher.told("job") == [1, 1])
    world.restart()
    again = Watcher(world)
    again.send(tell("job", 1))
    again.until(lambda: again.told("job") == [1, 1])
    let_another_job_run(world, again)
    _until_heard(world, watcher, [[1], [1]])


def test_another_attempt_is_not_told(world: BackendWorld, watcher: Watcher) -> None:
    first = start(world, "job", world.listens(), (0, (0,)))
    watcher.send(first)
    watcher.until(lambda: watcher.states("job") == ["running"])
    _all_listen(world, 1)
    watcher.send(stop("job"))
    watcher.until(lambda: watcher.is_stopped("job"))
    watcher.send(start(world, "job", world.listens(), (0, (0,)), attempt=2))
    watcher.until(lambda: watcher.states("job", 2) == ["running"])
    watcher.send(tell("job", 1))
    let_another_job_run(world, watcher)
    assert (watcher.told("job", 1), watcher.told("job", 2)) == ([0], [0])
    assert world.told(JOB, 2, 0) == []


def test_who_joins_later_is_told_only_what_comes_later(
    world: BackendWorld, watcher: Watcher, started: StartGang
) -> None:
    watcher.send(tell("job", 1))
    watcher.until(lambda: watcher.told("job") == [1, 1])
    _until_heard(world, watcher, [[1], [1]])
    watcher.send(grow(world, started, 1, (2, (0, (1,)))))
    watcher.until(lambda: watcher.states("job") == ["running"] * 3)
    _all_listen(world, 3)
    watcher.send(tell("job", 1))
    let_another_job_run(world, watcher)
    assert watcher.told("job") == [1, 1, 0]
    watcher.send(tell("job", 2))
    watcher.until(lambda: watcher.told("job") == [2, 2, 2])
    _until_heard(world, watcher, [[1, 2], [1, 2], [2]])


def test_before_the_start_has_come_nobody_is_told_and_the_order_can_be_repeated(
    world: BackendWorld, watcher: Watcher
) -> None:
    watcher.send(tell("job", 1))
    let_another_job_run(world, watcher)
    watcher.send(start(world, "job", world.listens(), (0, (0,))))
    watcher.until(lambda: watcher.states("job") == ["running"])
    _all_listen(world, 1)
    watcher.until(lambda: _sent_again(watcher) and watcher.told("job") == [1])
    _until_heard(world, watcher, [[1]])


def test_an_order_under_an_older_epoch_is_refused(world: BackendWorld, watcher: Watcher, started: StartGang) -> None:
    watcher.forget("other", epoch=3)
    with pytest.raises(StaleEpochError):
        watcher.send(tell("job", 1), epoch=2)
    let_another_job_run(world, watcher, epoch=3)
    assert watcher.told("job") == [0, 0]


def _sent_again(watcher: Watcher) -> bool:
    """As the loop would, until its effect is seen: in an unkind world the order that got lost was acknowledged by nobody."""
    watcher.send(tell("job", 1))
    return True


def _heard(world: BackendWorld, tasks: int) -> list[list[int]]:
    return [world.told(JOB, 1, index) for index in range(tasks)]


def _until_heard(world: BackendWorld, watcher: Watcher, heard: list[list[int]]) -> None:
    """A signal was sent before it is said so, but its handler may not have come to writing it down."""
    watcher.until(lambda: _heard(world, len(heard)) == heard)


def _all_listen(world: BackendWorld, tasks: int) -> None:
    assert [world.starts(JOB, 1, "worker", index) for index in range(tasks)] == [1] * tasks
