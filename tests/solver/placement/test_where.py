"""Where gangs lie when several places would do: replicas apart, GPUs in line on their rails, near the data that they read."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.capacity.free_capacity import FreeCapacity
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.model.cluster import NodeName
from solver.model.quantities import Instant
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import (
    Bundle,
    Job,
    JobName,
    JobSpec,
    QueueName,
    Spread,
    TaskGroup,
    TaskPlacement,
    Together,
    TopologyRequest,
)
from solver.placement.placement import place
from solver.plan.plan import Bind
from solver.policy.policy import PriorityClass, Queue, policy_of
from solver.quota.options import Option
from solver.round.solve import solve
from tests.solver.worlds import job, node

Q = QueueName("q")
POLICY = policy_of((Queue(Q),), (PriorityClass(""), PriorityClass("apart", placement="spread")))


def gang(tasks: int, gpus: int, topology: TopologyRequest) -> tuple[JobSpec, Option]:
    shape = Shape(gpus=gpus)
    spec = JobSpec(Q, (TaskGroup("worker", tasks, shape),), topology=topology)
    return spec, Option((node("n", 1).gpu_type,), 0, (0.0,), (shape,), {}, {})


def indexes(room: FreeCapacity, tasks: tuple[TaskPlacement, ...]) -> list[tuple[int, ...]]:
    at = {gpu.id: gpu.index for known in room.nodes for gpu in known.gpus}
    return [tuple(at[device] for device in task.devices) for task in tasks]


def half_used(*free: list[int]) -> FreeCapacity:
    """One node for each list: these of its eight GPUs are free."""
    room = FreeCapacity.empty(tuple(node(f"n{number}", 8) for number in range(len(free))))
    for number, places in enumerate(free):
        devices = tuple(gpu.id for gpu in room.nodes[number].gpus if gpu.index not in places)
        room.occupy([(TaskPlacement("other", 0, NodeName(f"n{number}"), devices), Shape(gpus=len(devices)))])
    return room


APART = TopologyRequest(spread=Spread("node", 1))


def test_a_gang_takes_the_same_places_of_every_node() -> None:
    room = half_used([0, 1, 2, 3, 6, 7], [2, 3, 4, 5, 6, 7])
    placed = place(room, *gang(2, 4, APART))
    assert placed is not None
    assert indexes(room, placed.tasks) == [(2, 3, 6, 7), (2, 3, 6, 7)]
    assert room.free_devices == [["n0/0", "n0/1"], ["n1/4", "n1/5"]]


@given(st.lists(st.sets(st.integers(0, 7), min_size=1), min_size=2, max_size=4), st.integers(1, 4))
def test_in_line_wherever_enough_is_free_at_the_same_places(free: list[set[int]], gpus: int) -> None:
    room = half_used(*(sorted(places) for places in free))
    placed = place(room, *gang(len(free), gpus, APART))
    assert (placed is not None) == all(len(places) >= gpus for places in free)
    if placed is not None:
        taken = indexes(room, placed.tasks)
        assert all(set(one) <= set().union(*free) for one in taken)
        assert len(set(taken)) == 1 or len(set.intersection(*free)) < gpus


def replicas(name: str, tasks: int, **of_spec: object) -> Job:
    known = job(name, "q", tasks, 1)
    return msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, **of_spec))


@given(st.integers(1, 6), st.lists(st.integers(0, 4), min_size=1, max_size=4), st.booleans())
def test_replicas_are_on_as_many_nodes_as_can_be(tasks: int, free: list[int], by_class: bool) -> None:
    nodes = [node(f"n{number}", gpus, rack=f"r{number // 2}") for number, gpus in enumerate(free)]
    kind = {"priority_class": "apart"} if by_class else {"type": "service"}
    world = snapshot_of(Instant(0), nodes, [replicas("j", tasks, **kind)])
    plan = solve(world, POLICY, optimise)
    assert violations(world, POLICY, plan) == ()
    for step in plan.steps:
        assert isinstance(step, Bind)
        hosts = {task.node for task in step.tasks}
        assert len(hosts) == min(len(step.tasks), sum(gpus > 0 for gpus in free))


def near(world: Snapshot, plan_job: str, name: str) -> bool:
    """Whether all tasks of a started job are where some data are near."""
    steps = [step for step in solve(world, POLICY, optimise).steps if isinstance(step, Bind) and step.job == plan_job]
    data = {known.name: known.data for known in world.nodes}
    return all(name in data[task.node] for step in steps for task in step.tasks)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=5), st.integers(1, 5))
def test_a_job_goes_near_its_data_if_it_fits_there_and_else_elsewhere(free: list[tuple[int, bool]], tasks: int) -> None:
    nodes = [
        msgspec.structs.replace(node(f"n{number}", gpus), data=("images",) if has else ())
        for number, (gpus, has) in enumerate([*free, (0, True)])
    ]
    world = snapshot_of(Instant(0), nodes, [replicas("j", tasks, data=("images",))])
    plan = solve(world, POLICY, optimise)
    assert violations(world, POLICY, plan) == ()
    assert bool(plan.steps) == (sum(gpus for gpus, _ in free) >= tasks)
    if sum(gpus for gpus, has in free if has) >= tasks:
        assert near(world, "j", "images")


def test_the_checker_counts_data_that_are_far() -> None:
    nodes = [node("n0", 2), msgspec.structs.replace(node("n1", 2), data=("images",))]
    world = snapshot_of(Instant(0), nodes, [replicas("j", 1, data=("images",))])
    plan = solve(world, POLICY, optimise)
    (step,) = plan.steps
    assert isinstance(step, Bind)
    far = tuple(
        msgspec.structs.replace(task, node=NodeName("n0"), devices=(nodes[0].gpus[0].id,)) for task in step.tasks
    )
    moved = msgspec.structs.replace(plan, steps=(msgspec.structs.replace(step, tasks=far),))
    assert violations(world, POLICY, plan) == ()
    assert {found.rule for found in violations(world, POLICY, moved)} == {"fit"}


@pytest.mark.parametrize(
    "topology",
    [
        TopologyRequest(group=Bundle(2, "island", "rack")),
        TopologyRequest(together=(Together(("a", "b"), "island", "rack"),)),
    ],
    ids=["bundle", "together"],
)
def test_a_level_that_is_had_in_any_case_is_no_wish(topology: TopologyRequest) -> None:
    """Documents that say so are refused; a job of which a round is told all the same waits for the level that it requires."""
    sizes = (2,) if topology.group else (1, 1)
    groups = tuple(TaskGroup(name, count, Shape(gpus=2)) for name, count in zip("ab", sizes, strict=False))
    wide = Job(JobName("wide"), Instant(0), JobSpec(QueueName("q"), groups, topology=topology))
    nodes = [node("n0", 4, rack="r"), node("n1", 3, rack="r"), node("n2", 3, rack="r")]
    held = job("held", "q", 1, 2)
    placement = (TaskPlacement("worker", 0, NodeName("n0"), tuple(gpu.id for gpu in nodes[0].gpus[:2])),)
    held = msgspec.structs.replace(held, phase="running", attempt=1, placement=placement)
    world, policy = snapshot_of(Instant(1), nodes, [held, wide]), policy_of((Queue(QueueName("q")),))
    for optimiser in (None, optimise):
        plan = solve(world, policy, optimiser)
        assert violations(world, policy, plan) == ()
        assert not any(isinstance(step, Bind) for step in plan.steps)
