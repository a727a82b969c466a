"""Groups that keep together, with bundles inside or in units: where every choice is tried, none has a place that was not found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random

import pytest

from solver.checker.check import violations
from solver.model.cluster import DeviceId, Level, Node
from solver.model.quantities import Instant
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import (
    Bundle,
    GroupTopology,
    Job,
    JobName,
    JobSpec,
    QueueName,
    TaskGroup,
    TaskPlacement,
    Together,
    TopologyRequest,
)
from solver.plan.plan import Bind
from solver.policy.policy import PriorityClass, Queue, policy_of
from solver.round.solve import solve
from tests.drawn import counted
from tests.solver.worlds import node

Set = tuple[str, int, Level | None]
"""Tasks that are together, by a name and a number, and at which level."""


def sets_of(spec: JobSpec, group: TaskGroup, index: int) -> Iterator[Set]:
    """Those that a task is in."""
    (known,) = spec.topology.together
    yield "together", index // (group.replicas // known.units) if known.units > 1 else 0, known.within
    bundle = group.topology.group
    if isinstance(bundle, Bundle):
        yield group.name, index // bundle.tasks, bundle.within


def finds_place(spec: JobSpec, nodes: Mapping[str, Node], free: Mapping[str, int]) -> bool:
    """Whether any way to place its tasks, one after the other, keeps its sets together."""
    tasks = [(group, index) for group in spec.task_groups for index in range(group.replicas)]

    def placed(number: int, free: Mapping[str, int], kept: Mapping[Set, str]) -> bool:
        if number == len(tasks):
            return True
        (group, index), gpus = tasks[number], tasks[number][0].shape.gpus
        for name, left in free.items():
            domains = {known: nodes[name].domain(known[2]) for known in sets_of(spec, group, index) if known[2]}
            is_apart = any(kept.get(known, domain) != domain for known, domain in domains.items())
            if left >= gpus and not is_apart and placed(number + 1, {**free, name: left - gpus}, {**kept, **domains}):
                return True
        return False

    return placed(0, free, {})


LOST = (13, 193, 256, 805, 930)
"""Worlds in which groups with bundles find no place if they are placed in one order alone."""

QUEUE = QueueName("research")
POLICY = policy_of((Queue(QUEUE, None, ()),), (PriorityClass("training", 100, "standard"),))


def world(random: Random, spec: JobSpec) -> tuple[Snapshot, bool]:
    """Racks of two nodes, partly held, and a gang that waits; with whether there is a place for it."""
    number = random.choice([4, 4, 8])
    nodes = {f"n{at}": node(f"n{at}", 4, rack=f"r{at // 2}", block=f"b{at // 4}") for at in range(number)}
    jobs, free = [Job(JobName("gang"), Instant(0), spec)], dict[str, int]()
    for name, known in nodes.items():
        held = random.randint(0, 4)
        free[name] = 4 - held
        if held:
            group = TaskGroup("worker", 1, Shape(held))
            task = TaskPlacement("worker", 0, known.name, tuple(DeviceId(f"{name}/{at}") for at in range(held)))
            own = JobSpec(QUEUE, (group,), "training")
            jobs.append(Job(JobName(f"on-{name}"), Instant(-1), own, "", "running", 1, Instant(-1), (task,)))
    return snapshot_of(Instant(0), nodes.values(), jobs), finds_place(spec, nodes, free)


def with_bundles(random: Random) -> JobSpec:
    """Two groups in one block, each with bundles of two tasks, or without."""

    def group(name: str) -> TaskGroup:
        level: Level | None = random.choice(["rack", "rack", "island", None])
        topology = GroupTopology(group=Bundle(2, level)) if level else GroupTopology()
        return TaskGroup(name, random.choice([2, 2, 3, 4]), Shape(random.choice([1, 1, 2])), topology=topology)

    asked = TopologyRequest(together=(Together(("g0", "g1"), "block"),))
    return JobSpec(QUEUE, (group("g0"), group("g1")), "training", asked)


def in_units(random: Random) -> JobSpec:
    """Two or three units of two groups."""
    level: Level = random.choice(["rack", "rack", "block", "island"])
    units = random.choice([2, 3])
    first = TaskGroup("g0", units * random.choice([1, 1, 2]), Shape(random.choice([1, 2, 3])))
    second = TaskGroup("g1", units * random.choice([1, 2, 3]), Shape(random.choice([1, 1, 2])))
    return JobSpec(
        QUEUE, (first, second), "training", TopologyRequest(together=(Together(("g0", "g1"), level, None, units),))
    )


@pytest.mark.thorough
@pytest.mark.parametrize("drawn", [with_bundles, in_units])
def test_whatever_has_a_place_starts(drawn: Callable[[Random], JobSpec]) -> None:
    started = 0
    for seed in range(counted(1000)):
        random = Random(seed)
        snapshot, has_place = world(random, drawn(random))
        plan = solve(snapshot, POLICY, None)
        assert violations(snapshot, POLICY, plan) == ()
        assert any(isinstance(step, Bind) for step in plan.steps) == has_place, f"seed {seed}"
        started += has_place
    assert started >= counted(1000) // 6


def test_so_does_what_has_none_in_one_order_of_its_groups() -> None:
    for seed in LOST:
        random = Random(seed)
        snapshot, has_place = world(random, with_bundles(random))
        assert has_place
        assert any(isinstance(step, Bind) for step in solve(snapshot, POLICY, None).steps)
