"""How many units leave, and how many join where others leave for them, beside every choice that there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from random import Random
from typing import NamedTuple

import msgspec
import pytest

from solver.checker.alarm import findings
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Instant
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement, Together, TopologyRequest
from solver.plan.plan import Evict, Grow, Nominate, Plan, Shrink
from solver.policy.harm import Evictions
from solver.policy.policy import Policy, PriorityClass, Queue, SchedulingPolicy, policy_of
from solver.round.solve import solve
from tests.drawn import counted
from tests.solver.worlds import job, node, quota_of

WORLDS = counted(400)
"""How many numbers are tried; not every one of them makes a world."""


class Unit(NamedTuple):
    """GPUs of its task in each of two groups."""

    first: int
    second: int


Free = Mapping[str, int]


def fits(free: Free, tasks: Sequence[int]) -> bool:
    """Whether tasks of so many GPUs find nodes."""
    if not tasks:
        return True
    gpus, *rest = tasks
    return any(left >= gpus and fits({**free, name: left - gpus}, rest) for name, left in free.items())


def policy(guaranteed: int) -> Policy:
    """Of an owner, and of another who has no guarantee. No job moves."""
    scheduling = SchedulingPolicy(evictions=Evictions(moves_per_round=0))
    owner = Queue(QueueName("owner"), None, (quota_of("H100", guaranteed, guaranteed),))
    other = Queue(QueueName("borrower"), None, (quota_of("H100", 0),))
    return policy_of((owner, other), (PriorityClass("training", 100, "standard"),), scheduling)


class Ground:
    """Nodes on which tasks are put, from their first GPUs on."""

    def __init__(self, nodes: int, gpus: int, name: str = "n") -> None:
        self.nodes = [node(f"{name}{number}", gpus, rack="r", block="b") for number in range(nodes)]
        self.free = {str(known.name): gpus for known in self.nodes}
        self._next = dict.fromkeys(self.free, 0)

    def put(self, group: str, index: int, on: str, gpus: int) -> TaskPlacement:
        first = self._next[on]
        self._next[on], self.free[on] = first + gpus, self.free[on] - gpus
        devices = tuple(DeviceId(f"{on}/{number}") for number in range(first, first + gpus))
        return TaskPlacement(group, index, NodeName(on), devices)

    def room(self, gpus: int) -> list[str]:
        """The nodes with so many GPUs free."""
        return [name for name, left in self.free.items() if left >= gpus]


def running(name: str, queue: str, spec: JobSpec, placement: Sequence[TaskPlacement]) -> Job:
    """A job that runs for an hour."""
    began = Instant(-3_600_000)
    spec = msgspec.structs.replace(spec, queue=QueueName(queue), priority_class="training")
    return Job(JobName(name), began, spec, "", "running", 1, began, tuple(placement))


def gang(unit: Unit, units: int, least: int, placement: Sequence[TaskPlacement], queue: str) -> Job:
    """A running gang of units of one task of each of two groups."""
    groups = (TaskGroup("p", units, Shape(unit.first)), TaskGroup("d", units, Shape(unit.second)))
    topology = TopologyRequest(together=(Together(("p", "d"), units=units, min_units=least),))
    return running("serving", queue, JobSpec(QueueName(queue), groups, topology=topology), placement)


def plans(snapshot: Snapshot, known: Policy) -> Iterator[Plan]:
    """By search, and by the program; both keep every rule."""
    for optimiser in (None, optimise):
        plan = solve(snapshot, known, optimiser)
        assert violations(snapshot, known, plan) == ()
        yield plan


UNITS = (Unit(1, 1), Unit(2, 1), Unit(2, 2), Unit(1, 2))


def leaving(random: Random, beside: int) -> tuple[Snapshot, int | None] | None:
    """A gang that borrows, an owner's job, and how many units have to leave for it; None: more than there are beyond the least.

    `beside`: so many more nodes are full of the owner's own jobs.
    """
    ground, unit, units = Ground(random.randint(2, 3), 4), random.choice(UNITS), random.randint(3, 4)
    placed = list[TaskPlacement]()
    for number in range(units):
        for group, gpus in zip("pd", unit, strict=True):
            able, first = ground.room(gpus), placed[-1].node if group == "d" else ""
            if not able:
                return None
            apart = [name for name in able if name != first] if random.random() < 0.7 else []
            placed.append(ground.put(group, number, random.choice(apart or able), gpus))
    least, (tasks, gpus) = random.randint(1, units - 1), random.choice([(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2)])
    mine = job("mine", "owner", tasks, gpus, priority_class="training")
    full, jobs = Ground(beside, 4, "full"), [gang(unit, units, least, placed, "borrower"), mine]
    spec = JobSpec(QueueName("owner"), (TaskGroup("worker", 1, Shape(4)),))
    jobs += [running(f"held-{name}", "owner", spec, [full.put("worker", 0, name, 4)]) for name in list(full.free)]
    world = snapshot_of(Instant(0), [*ground.nodes, *full.nodes], jobs)

    def without(numbers: Sequence[int]) -> Counter[str]:
        free = Counter(ground.free)
        for task in placed:
            free[task.node] += len(task.devices) if task.index in numbers else 0
        return free

    for count in range(units - least + 1):
        if any(fits(without(gone), [gpus] * tasks) for gone in combinations(range(least, units), count)):
            return world, count
    return world, None


@pytest.mark.thorough
@pytest.mark.parametrize("beside", [0, 8])
def test_as_few_units_leave_as_do(beside: int) -> None:
    """Also where that is more than one unit beyond what is gained. With so many nodes beside the program counts otherwise."""
    seen, exceed = Counter[int | None](), 0
    for seed in range(WORLDS):
        drawn = leaving(Random(seed), beside)
        if drawn is None:
            continue
        snapshot, expected = drawn
        for plan in plans(snapshot, policy(8 + 4 * beside)):
            shrinks = [step for step in plan.steps if isinstance(step, Shrink)]
            left = sum(len(step.tasks) for step in shrinks) // 2
            whole = any(isinstance(step, Evict) for step in plan.steps)
            assert (None if whole else left) == expected, f"seed {seed}"
            assert not findings(snapshot, policy(8 + 4 * beside), plan), f"seed {seed}"
            gained = sum(task.gpus for step in plan.steps if isinstance(step, Nominate) for task in step.tasks)
            exceed += any(step.gpus - step.gpus // left >= gained for step in shrinks)
        seen[expected] += 1
    assert all(seen[count] for count in (0, 1, 2, None))
    assert exceed


def test_one_unit_leaves_where_that_does_though_the_last_ones_would() -> None:
    ground = Ground(4, 2)
    on = [("n0", "n0"), ("n1", "n1"), ("n2", "n3"), ("n2", "n3")]
    placed = [
        ground.put(group, number, name, 1)
        for number, names in enumerate(on)
        for group, name in zip("pd", names, strict=True)
    ]
    mine = job("mine", "owner", 1, 2, priority_class="training")
    snapshot = snapshot_of(Instant(0), ground.nodes, [gang(Unit(1, 1), 4, 1, placed, "borrower"), mine])
    for plan in plans(snapshot, policy(2)):
        (shrink,) = (step for step in plan.steps if isinstance(step, Shrink))
        assert {(task.index, task.node) for task in shrink.tasks} == {(1, "n1")}


def joining(random: Random) -> tuple[Snapshot, Policy, Unit, int, int] | None:
    """A gang that lacks units, beside jobs that borrow its guarantee; how many join at once, and how many at all."""
    ground, unit, units = Ground(random.randint(2, 3), random.randint(2, 4)), random.choice(UNITS), random.randint(2, 3)
    if ground.free["n0"] < sum(unit):
        return None
    placed = [ground.put(group, 0, "n0", gpus) for group, gpus in zip("pd", unit, strict=True)]
    jobs, lent = [gang(unit, units, 1, placed, "owner")], list[TaskPlacement]()
    for name in ground.free:
        while ground.free[name] and random.random() < 0.85:
            task = ground.put("worker", 0, name, random.randint(1, ground.free[name]))
            lent.append(task)
            spec = JobSpec(QueueName("borrower"), (TaskGroup("worker", 1, Shape(len(task.devices))),))
            jobs.append(running(f"lent-{len(lent)}", "borrower", spec, [task]))
    guaranteed = random.randint(sum(unit), units * sum(unit))
    inside = min(units, guaranteed // sum(unit)) - 1
    now = max(count for count in range(inside + 1) if fits(ground.free, [*unit] * count))

    def found(count: int) -> bool:
        """Whether others leave for so many, GPU for GPU."""
        for gone in (gone for size in range(len(lent) + 1) for gone in combinations(lent, size)):
            free = Counter(ground.free)
            free.update({str(task.node): 0 for task in gone})
            for task in gone:
                free[task.node] += len(task.devices)
            given = sum(len(task.devices) for task in gone)
            if given <= (count - now) * sum(unit) and fits(free, [*unit] * count):
                return True
        return False

    most = max(count for count in range(now, inside + 1) if found(count))
    return snapshot_of(Instant(0), ground.nodes, jobs), policy(guaranteed), unit, now, most


@pytest.mark.thorough
def test_as_many_units_join_as_can_inside_the_guarantee() -> None:
    seen = Counter[bool]()
    for seed in range(WORLDS):
        drawn = joining(Random(seed))
        if drawn is None:
            continue
        snapshot, known, unit, now, most = drawn
        gpus = {known.name: known.spec.gpus for known in snapshot.jobs}
        for plan in plans(snapshot, known):
            joined = sum(len(step.tasks) for step in plan.steps if isinstance(step, Grow)) // 2
            gone = [step for step in plan.steps if isinstance(step, Evict)]
            assert (joined, bool(gone)) == (now, most > now), f"seed {seed}"
            assert sum(gpus[step.job] for step in gone) <= (most - now) * sum(unit) * 1000
            seen[most > now] += 1
    assert all(seen[evicts] for evicts in (False, True))
