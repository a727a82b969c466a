"""What every backend says of how far tasks are, and of their memory; see Progress and MemoryUse in protocols/backend.py."""

from __future__ import annotations

import re

import msgspec

from reconciler.protocols.backend import MemoryUse, Progress, StartGang
from solver.model.quantities import Memory
from solver.model.workload import JobName
from tests.contracts.backend_world import BackendWorld, Command, Watcher, start, stop

JOB = JobName("job")


def asking_for(world: BackendWorld, memory: str, command: Command) -> StartGang:
    order = start(world, "job", command, (0, (0,)))
    group = order.spec.task_groups[0]
    shape = msgspec.structs.replace(group.shape, memory=Memory.parse(memory))
    spec = msgspec.structs.replace(order.spec, task_groups=(msgspec.structs.replace(group, shape=shape),))
    return msgspec.structs.replace(order, spec=spec)


def progress(watcher: Watcher) -> Progress | None:
    known = watcher.tasks.get((JOB, 1, "worker", 0))
    return known.progress if known else None


def memory(watcher: Watcher) -> MemoryUse | None:
    known = watcher.tasks.get((JOB, 1, "worker", 0))
    return known.memory if known else None


def step(watcher: Watcher) -> int:
    said = progress(watcher)
    return said.step if said else -1


def test_a_task_says_how_far_it_is_and_the_last_of_it_stays(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(start(world, "job", world.trains(), (0, (0,))))
    watcher.until(lambda: step(watcher) >= 1)
    first = progress(watcher)
    assert first is not None
    watcher.until(lambda: step(watcher) > first.step)
    later = progress(watcher)
    assert later is not None
    assert later.at > first.at
    assert later.rate > 0
    watcher.send(stop("job"))
    watcher.until(lambda: watcher.is_stopped("job"))
    assert step(watcher) >= later.step


def test_nothing_is_known_of_a_task_that_says_nothing(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(start(world, "job", world.succeeds(), (0, (0,))))
    watcher.until(lambda: watcher.states("job") == ["succeeded"])
    assert progress(watcher) is None


def test_a_task_with_more_memory_than_it_asked_for_is_ended(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(asking_for(world, "64Mi", world.hogs()))
    watcher.until(lambda: watcher.states("job") == ["failed"])
    task, used = watcher.tasks[JOB, 1, "worker", 0], memory(watcher)
    assert used is not None
    assert used.exceeded
    assert used.peak > used.limit == Memory.parse("64Mi")
    assert task.exit_code == 137
    # It may have been seen on its way.
    assert re.fullmatch(r"used \d[\d.]*Mi of 64Mi memory, and was ended for it", task.detail)


def test_one_with_less_goes_on_and_is_measured(world: BackendWorld, watcher: Watcher) -> None:
    watcher.send(asking_for(world, "512Mi", world.hogs()))
    watcher.until(lambda: (memory(watcher) or MemoryUse(Memory(0))).peak > Memory.parse("64Mi"))
    used = memory(watcher)
    assert used is not None
    assert not used.exceeded
    assert used.limit == Memory.parse("512Mi")
    assert watcher.states("job") == ["running"]
