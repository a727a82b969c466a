"""Fractions fill GPUs that are divided before another one is: in one round, over rounds, and beside jobs with whole GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.milp.optimiser import Optimiser
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.quantities import MILLI_PER_GPU, Cpu, Instant, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.policy.division import SharingPolicy
from solver.policy.policy import Queue, policy_of
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.aftermath import applied
from tests.solver.worlds import job, node, quota_of

POLICY = policy_of(
    (Queue(QueueName("q"), quota=(quota_of("H100", 64),)),), sharing=(SharingPolicy("parts", ("h100",), "mps"),)
)
SIZES = (125, 200, 250, 300, 400, 500, 600, 700)
OPTIMISERS = pytest.mark.parametrize("optimiser", [None, optimise], ids=["greedy", "program"])


def part(name: str, milli: int, cpu: int = 0) -> Job:
    group = TaskGroup("worker", 1, Shape(gpu_fraction=MilliGpu(milli), cpu=Cpu(1000 * cpu)))
    return Job(JobName(name), Instant(0), JobSpec(QueueName("q"), (group,)))


def parts(sizes: Iterable[int], name: str = "part") -> list[Job]:
    """In this order of policy: all came at one time."""
    return [part(f"{name}-{number:02}", milli) for number, milli in enumerate(sizes)]


def there(sizes: Iterable[int]) -> list[Job]:
    """Each runs alone on a GPU of the first node."""
    return [
        msgspec.structs.replace(
            part(f"there-{number}", milli),
            phase="running",
            attempt=1,
            started_at=Instant(1),
            placement=(
                TaskPlacement("worker", 0, NodeName("n0"), (DeviceId(f"n0/{number}"),), MilliGpu(milli), sharing="mps"),
            ),
        )
        for number, milli in enumerate(sizes)
    ]


def after_a_round(world: Snapshot, optimiser: Optimiser | None) -> Snapshot:
    plan = solve(world, POLICY, optimiser)
    assert violations(world, POLICY, plan) == ()
    return applied(world, plan)


def divided(world: Snapshot) -> int:
    """GPUs of which somebody has a part."""
    tasks = (task for known in world.jobs for task in known.placement if task.share is not None)
    return len({device for task in tasks for device in task.devices})


def rounds(nodes: Sequence[Node], coming: Iterable[Sequence[Job]], optimiser: Optimiser | None) -> list[int]:
    """How many GPUs are divided after each round."""
    world, found = snapshot_of(Instant(0), nodes, ()), []
    for jobs in coming:
        world = after_a_round(snapshot_of(Instant(world.time + 1000), nodes, [*world.jobs, *jobs]), optimiser)
        assert all(known.placement for known in world.jobs)
        found.append(divided(world))
    return found


def by_decreasing_size(sizes: Iterable[int], left: Sequence[int], *, best: bool) -> int:
    """How many GPUs are divided beside those with so much left: first fit (or best fit), the largest first."""
    gaps, fresh = list(left), 0
    for size in sorted(sizes, reverse=True):
        able = [number for number, gap in enumerate(gaps) if gap >= size]
        if able:
            gaps[min(able, key=lambda number: gaps[number]) if best else able[0]] -= size
        else:
            gaps.append(MILLI_PER_GPU - size)
            fresh += 1
    return fresh


@OPTIMISERS
@pytest.mark.parametrize("nodes", [(8,), (4, 4), (2, 2, 2, 2)])
def test_eight_quarters_divide_two_gpus(nodes: tuple[int, ...], optimiser: Optimiser | None) -> None:
    inventory = [node(f"n{number}", gpus) for number, gpus in enumerate(nodes)]
    at_once, one_by_one = [parts([250] * 8)], [[known] for known in parts([250] * 8)]
    assert rounds(inventory, at_once, optimiser) == [2]
    assert rounds(inventory, one_by_one, optimiser) == [1, 1, 1, 1, 2, 2, 2, 2]


@OPTIMISERS
def test_beside_whole_gpus_and_round_after_round(optimiser: Optimiser | None) -> None:
    """Two rounds of fractions beside two whole GPUs leave room for two more such pairs."""
    nodes = [node("n0", 4), node("n1", 4)]
    first = [job("pair", "q", 1, 2), *parts([500, 250], "a")]
    second = [*parts([250, 500], "b"), *parts([500], "c")]
    third = [job("pair-2", "q", 1, 2), job("pair-3", "q", 1, 2)]
    assert rounds(nodes, [first, second, third], optimiser) == [1, 2, 2]


@OPTIMISERS
def test_what_a_node_has_no_cores_for_divides_a_gpu_elsewhere(optimiser: Optimiser | None) -> None:
    nodes = [node("n0", 2, cpu=4), node("n1", 2, cpu=4)]
    assert rounds(nodes, [[part("a", 250, cpu=3)], [part("b", 250, cpu=3)]], optimiser) == [1, 2]


@worlds(1000)
@given(
    st.lists(st.sampled_from(SIZES), max_size=12),
    st.lists(st.sampled_from(SIZES), max_size=2),
    st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=3),
    st.lists(st.sampled_from([1, 2]), max_size=2),
)
def test_no_more_gpus_are_divided_than_in_decreasing_size(
    sizes: list[int], running: list[int], gpus: list[int], whole: list[int]
) -> None:
    """At equal prices, which without an optimiser all are. Which of both fits is better differs in one world of hundreds."""
    nodes = [node(f"n{number}", 2 + count) for number, count in enumerate(gpus)]
    jobs = [*there(running), *parts(sizes), *(job(f"whole-{n}", "q", 1, size) for n, size in enumerate(whole))]
    world = after_a_round(snapshot_of(Instant(1000), nodes, jobs), None)
    left = [MILLI_PER_GPU - milli for milli in running]
    if all(known.placement for known in world.jobs):
        most = max(by_decreasing_size(sizes, left, best=best) for best in (False, True))
        assert divided(world) - len(running) <= most


@worlds(200)
@given(
    st.sampled_from([(250,), (400,), (250, 500), (125, 250, 500)]),
    st.lists(st.integers(0, 2), min_size=1, max_size=12),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
)
def test_sizes_that_divide_each_other_have_one_price(
    family: tuple[int, ...], drawn: list[int], gpus: list[int]
) -> None:
    """Where nothing of a GPU need be lost, prices are equal with an optimiser too, and the fewest are divided."""
    sizes = [family[number % len(family)] for number in drawn]
    nodes = [node(f"n{number}", 3 + count) for number, count in enumerate(gpus)]
    for optimiser in (None, optimise):
        world = after_a_round(snapshot_of(Instant(1000), nodes, parts(sizes)), optimiser)
        if all(known.placement for known in world.jobs):
            assert divided(world) <= by_decreasing_size(sizes, (), best=False)


def test_packing_anew_starts_the_same_jobs() -> None:
    """Three small ones come first, then three large ones, one of which would divide a fourth GPU."""
    world = snapshot_of(Instant(1000), [node("n0", 4)], parts([300, 300, 300, 700, 700, 700]))
    after = after_a_round(world, None)
    held = Counter(device for known in after.jobs for task in known.placement for device in task.devices)
    assert sorted(held.values()) == [2, 2, 2]
