"""What every backend that watches tasks says of what they do; see Activity in reconciler/protocols/backend.py."""

from __future__ import annotations

import msgspec

from reconciler.lifecycle.jobs.idleness import idle_for
from reconciler.protocols.backend import StartGang
from solver.model.workload import JobName
from tests.contracts.backend_world import BackendWorld, Command, Place, Watcher, start


def watched(world: BackendWorld, job: str, command: Command, *places: Place) -> StartGang:
    return msgspec.structs.replace(start(world, job, command, *places), watch=world.idle_limit)


def test_nothing_is_said_of_a_task_that_nobody_asks_about(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(start(world, "job", world.works(), (0, (0,))))
    watcher.until(lambda: watcher.states("job") == ["running"])
    watcher.until_quiet()
    assert watcher.tasks[JobName("job"), 1, "worker", 0].activity is None


def test_a_task_is_watched_from_when_it_runs(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(watched(world, "job", world.runs(), (0, (0,))))
    watcher.until(lambda: watcher.states("job") == ["running"])
    begin = watcher.activity("job")
    assert begin.active_at <= begin.seen_at


def test_one_that_does_nothing_is_told_from_one_that_works(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(watched(world, "sleeps", world.runs(), (0, (0,)), (1, (0,))))
    watcher.send(watched(world, "works", world.works(), (0, (1,))))
    watcher.until(lambda: [*watcher.states("sleeps"), *watcher.states("works")] == ["running"] * 3)
    began = watcher.activity("works").seen_at
    watcher.until(lambda: all(idle_for(watcher.activity("sleeps", index)) >= world.idle_limit for index in (0, 1)))
    watcher.until(lambda: watcher.activity("works").seen_at >= began.after(world.idle_limit))
    assert idle_for(watcher.activity("works")) < world.idle_limit
    assert watcher.activity("works").active_at > began


def test_a_new_backend_object_still_knows_since_when_a_task_is_idle(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(watched(world, "job", world.runs(), (0, (0,))))
    watcher.until(lambda: watcher.states("job") == ["running"])
    watcher.until(lambda: idle_for(watcher.activity("job")) >= world.idle_limit)
    world.restart()
    again = Watcher(world)
    again.until(lambda: again.states("job") == ["running"])
    assert idle_for(again.activity("job")) >= world.idle_limit
