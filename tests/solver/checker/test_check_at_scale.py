"""The checker finds a single fault among hundreds of steps, and its work grows with the snapshot and the plan, no faster."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import TypeVar

import msgspec
import pytest

from hack.rounds.world import World
from solver.checker.check import violations
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, TaskPlacement
from solver.plan.plan import Bind, Evict, Nominate, Plan, Starts, Step
from solver.round.solve import solve

EMPTY = World(64, pending=0)
SMALL = World(1024, pending=256)
LARGE = World(4096, pending=1024)
MORE_FOR_EACH = 1.25
"""How often as much as an item of the small world one of the large may cost; n squared would be 4. Draws differ: 1.03 to 1.18."""


@cache
def judged(world: World) -> tuple[Snapshot, Plan]:
    snapshot = world.snapshot
    return snapshot, solve(snapshot, world.policy, None)


def instructions(action: Callable[[], object]) -> int:
    """The instructions of Python that it takes: what loops inside comprehensions do counts too."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def size(snapshot: Snapshot, plan: Plan) -> int:
    tasks = sum(len(job.placement) for job in snapshot.jobs) + sum(len(tasks_of(step)) for step in plan.steps)
    return len(snapshot.nodes) + len(snapshot.jobs) + len(plan.steps) + tasks


def tasks_of(step: Step) -> tuple[TaskPlacement, ...]:
    return step.tasks if isinstance(step, Bind | Nominate) else ()


def work(world: World) -> int:
    snapshot, plan = judged(world)
    return instructions(lambda: violations(snapshot, world.policy, plan))


def test_work_grows_with_the_snapshot_and_the_plan() -> None:
    """But for what the policy takes alone, an item of a world four times as large costs about as much."""
    of_policy = work(EMPTY)
    each = [(work(world) - of_policy) / size(*judged(world)) for world in (SMALL, LARGE)]
    assert sum(isinstance(step, Bind | Nominate | Evict) for step in judged(LARGE)[1].steps) > 400
    assert each[1] < MORE_FOR_EACH * each[0]


Damage = Callable[[random.Random, list[Step]], str]
"""Does one thing to the steps; says whom it concerns."""


Kind = TypeVar("Kind", bound=Bind | Nominate | Evict)


def one_of(chance: random.Random, steps: list[Step], kind: type[Kind]) -> tuple[int, Kind]:
    return chance.choice([(place, step) for place, step in enumerate(steps) if isinstance(step, kind)])


def changed(kind: type[Bind | Nominate | Evict], **fields: object) -> Damage:
    def damage(chance: random.Random, steps: list[Step]) -> str:
        place, step = one_of(chance, steps, kind)
        steps[place] = spoilt = msgspec.structs.replace(step, **fields)
        return spoilt.job

    return damage


def dropped(kind: type[Bind | Nominate | Evict]) -> Damage:
    def damage(chance: random.Random, steps: list[Step]) -> str:
        place, step = one_of(chance, steps, kind)
        del steps[place]
        return step.job

    return damage


def said_twice(kind: type[Bind | Nominate | Evict]) -> Damage:
    def damage(chance: random.Random, steps: list[Step]) -> str:
        _, step = one_of(chance, steps, kind)
        steps.append(step)
        return step.job

    return damage


def with_task(kind: type[Bind | Nominate], change: Callable[[TaskPlacement, TaskPlacement], TaskPlacement]) -> Damage:
    """The last task of one gang becomes something that has to do with the first of another."""

    def damage(chance: random.Random, steps: list[Step]) -> str:
        place, step = one_of(chance, steps, kind)
        _, other = one_of(chance, [known for known in steps if known is not step], kind)
        steps[place] = msgspec.structs.replace(step, tasks=(*step.tasks[:-1], change(step.tasks[-1], other.tasks[0])))
        return step.job

    return damage


def moved(mine: TaskPlacement, theirs: TaskPlacement) -> TaskPlacement:
    return msgspec.structs.replace(mine, node=theirs.node)


def on_devices_of_another(mine: TaskPlacement, theirs: TaskPlacement) -> TaskPlacement:
    return msgspec.structs.replace(mine, node=theirs.node, devices=theirs.devices)


def with_a_device_twice(mine: TaskPlacement, _: TaskPlacement) -> TaskPlacement:
    return msgspec.structs.replace(mine, devices=(*mine.devices, mine.devices[0]))


DAMAGES: dict[str, tuple[set[str], Damage]] = {
    "a start is missing": ({"verdicts"}, dropped(Bind)),
    "a start is there twice": ({"S2"}, said_twice(Bind)),
    "a start is of a later attempt": ({"S2"}, changed(Bind, attempt=7)),
    "a start is of somebody who runs": ({"S2"}, changed(Bind, job=JobName("runs-000000"))),
    "a start is of nobody": ({"S2"}, changed(Bind, job=JobName("nobody"))),
    "an eviction is missing": ({"verdicts"}, dropped(Evict)),
    "an eviction is there twice": ({"S8"}, said_twice(Evict)),
    "an eviction is for nobody": ({"S8"}, changed(Evict, beneficiary=None)),
    "an eviction is for one that is promised nothing": ({"S8"}, changed(Evict, beneficiary=JobName("runs-000000"))),
    "an eviction is of an earlier attempt": ({"S11"}, changed(Evict, attempt=0)),
    "a promise is there twice": ({"S2"}, said_twice(Nominate)),
    "a started task is elsewhere": ({"S1", "S2"}, with_task(Bind, moved)),
    "a promised task is elsewhere": ({"S1", "S2"}, with_task(Nominate, moved)),
    "a started task takes another's devices": ({"S1"}, with_task(Bind, on_devices_of_another)),
    "a promised task takes another's devices": ({"S1"}, with_task(Nominate, on_devices_of_another)),
    "a started task has a device twice": ({"S2"}, with_task(Bind, with_a_device_twice)),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_one_fault_among_hundreds_of_steps_is_found(what: str) -> None:
    rules, damage = DAMAGES[what]
    (snapshot, plan), chance = judged(SMALL), random.Random(what)
    assert violations(snapshot, SMALL.policy, plan) == ()
    assert sum(isinstance(verdict, Starts) for verdict in plan.verdicts) > 20
    for _ in range(3):
        steps = list(plan.steps)
        job = damage(chance, steps)
        found = violations(snapshot, SMALL.policy, msgspec.structs.replace(plan, steps=tuple(steps)))
        assert any(known.rule in rules and job in f"{known.subject} {known.problem}" for known in found), found
