"""Bounds of entitled layers where somebody is evicted: no round is above them, in whatever order its takers are served."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from unittest.mock import patch

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import solver.milp.bounding
from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.partitioning import pool_rules
from solver.capacity.sharing import sharing_of
from solver.milp.bounding import Bounding
from solver.milp.highs import optimise
from solver.milp.optimiser import Effort, Program, Solution
from solver.model.arrays import Floats
from solver.model.quantities import Instant, MilliGpu
from solver.model.round_cache import RoundCache
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.placement.starts import ENTITLED
from solver.plan.plan import Bind, Evict
from solver.policy.division import SharingPolicy
from solver.policy.harm import Evictions
from solver.policy.ordering import Ordering
from solver.policy.policy import Policy, Queue, Reclaim, SchedulingPolicy, policy_of
from solver.preemption.eviction_candidates import EvictionCandidates
from solver.preemption.eviction_rules import EvictionRules
from solver.queueing.demand import in_order, sub_layers_of
from solver.round.decision import decide_with_evictions, soon_free
from solver.round.solve import competing, solve, standing
from tests.drawn import counted, worlds
from tests.solver.preemption.test_least_harm import CLASSES, GPU_TYPE, QUEUES, runners
from tests.solver.worlds import HOUR_MS, job, node, policies, quota_of, sharing_policies, snapshots, with_fractions

ORDERS_MAX = 24
EXAMPLES = counted(1000)


@st.composite
def contended(draw: st.DrawFn) -> tuple[Snapshot, Policy]:
    """Nodes that are mostly held by jobs of three queues, and a few jobs of these that wait."""
    nodes = [node(f"n{number}", draw(st.sampled_from([2, 4])), GPU_TYPE) for number in range(draw(st.integers(1, 3)))]
    running = [known for on in nodes for known in draw(runners(on))]
    waiting = [
        job(
            f"taker-{number}",
            draw(st.sampled_from(QUEUES)),
            draw(st.integers(1, 2)),
            draw(st.sampled_from([1, 1, 2, 4])),
            priority_class=draw(st.sampled_from(["low", "middle", "high"])),
        )
        for number in range(draw(st.integers(1, 4)))
    ]
    queues = (Queue(QueueName(name), quota=(quota_of(GPU_TYPE, draw(st.integers(0, 8))),)) for name in QUEUES)
    reclaim: Reclaim = draw(st.sampled_from(["fair-share", "guaranteed"]))
    evictions = Evictions(moves_per_round=draw(st.sampled_from([0, 4])))
    policy = policy_of(tuple(queues), CLASSES, SchedulingPolicy("low", reclaim=reclaim, evictions=evictions))
    return snapshot_of(Instant(0), nodes, [*running, *waiting]), policy


def judging(program: Program, start: Floats, effort: Effort) -> Solution | None:
    """HiGHS; a round that evicts has to be a point of the program that bounds it."""
    assert not effort.bounding or program.is_satisfied_by(start)
    return optimise(program, start, effort)


@worlds(300)
@given(snapshots(elastic=True, close=True, held_one_in=1), policies() | policies(keeping=True))
def test_a_round_that_evicts_is_a_point_of_its_program(snapshot: Snapshot, policy: Policy) -> None:
    plan = solve(snapshot, policy, judging)
    assert all(layer.value <= layer.bound for layer in plan.certificate.layers)


def test_so_is_one_in_which_a_job_without_gpus_starts() -> None:
    on = node("n1", 4, GPU_TYPE)
    held = (TaskPlacement("worker", 0, on.name, tuple(gpu.id for gpu in on.gpus)),)
    spec = JobSpec(QueueName("left"), (TaskGroup("worker", 1, Shape(4)),), "low")
    runs = Job(JobName("runs"), Instant(0), spec, "", "running", 1, Instant(-HOUR_MS), held)
    waiting = [job("taker", "owner", 1, 4, priority_class="low"), job("no-gpus", "left", 1, 0, priority_class="low")]
    queues = (Queue(QueueName(name), quota=(quota_of(GPU_TYPE, 4 if name == "owner" else 0),)) for name in QUEUES)
    policy = policy_of(tuple(queues), CLASSES, SchedulingPolicy("low"))
    plan = solve(snapshot_of(Instant(0), [on], [runs, *waiting]), policy, judging)
    assert {(type(step), step.job) for step in plan.steps if isinstance(step, Bind | Evict)} == {
        (Evict, "runs"),
        (Bind, "no-gpus"),
    }


def test_so_is_one_in_which_a_job_passes_another_of_its_strict_queue_on_a_type_that_one_does_not_want() -> None:
    nodes = [node("a", 4, "A100"), node("h", 2, "H100")]
    held = (TaskPlacement("worker", 0, nodes[0].name, tuple(gpu.id for gpu in nodes[0].gpus)),)
    spec = JobSpec(QueueName("left"), (TaskGroup("worker", 1, Shape(4)),), "low")
    runs = Job(JobName("runs"), Instant(0), spec, "", "running", 1, Instant(-HOUR_MS), held)
    waiting = [
        job("taker", "owner", 1, 4, types=["A100"], priority_class="low"),
        job("stays", "left", 1, 1, types=["A100"], priority_class="low", submitted=-2),
        job("passes", "left", 1, 1, types=["A100", "H100"], priority_class="low", submitted=-1),
    ]
    owner = Queue(QueueName("owner"), quota=(quota_of("A100", 4),))
    left = Queue(QueueName("left"), quota=(quota_of("A100", 0),), ordering=Ordering("fifo", strict=True))
    policy = policy_of((owner, left), CLASSES, SchedulingPolicy("low"))
    plan = solve(snapshot_of(Instant(0), nodes, [runs, *waiting]), policy, judging)
    assert {(type(step), step.job) for step in plan.steps if isinstance(step, Bind | Evict)} == {
        (Evict, "runs"),
        (Bind, "passes"),
    }


def test_so_is_one_in_which_a_gang_leaves_whole_gpus_and_a_part_of_another() -> None:
    nodes = [node("whole", 2, GPU_TYPE), node("divided", 1, GPU_TYPE)]
    half = Shape(gpu_fraction=MilliGpu(500))
    spec = JobSpec(QueueName("left"), (TaskGroup("worker", 1, Shape(2)), TaskGroup("aside", 1, half)), "low")
    held = (
        TaskPlacement("worker", 0, nodes[0].name, tuple(gpu.id for gpu in nodes[0].gpus)),
        TaskPlacement("aside", 0, nodes[1].name, (nodes[1].gpus[0].id,), MilliGpu(500), "mps"),
    )
    runs = Job(JobName("runs"), Instant(0), spec, "", "running", 1, Instant(-HOUR_MS), held)
    queues = (Queue(QueueName(name), quota=(quota_of(GPU_TYPE, 2 if name == "owner" else 0),)) for name in QUEUES)
    sharing = SharingPolicy("parts", (nodes[0].pool,), "mps")
    policy = policy_of(tuple(queues), CLASSES, SchedulingPolicy("low"), sharing=(sharing,))
    taker = job("taker", "owner", 1, 2, priority_class="low")
    plan = solve(snapshot_of(Instant(0), nodes, [runs, taker]), policy, judging)
    assert [step.job for step in plan.steps if isinstance(step, Evict)] == ["runs"]


@worlds(200)
@given(snapshots(elastic=True, held_one_in=1).flatmap(with_fractions), policies().flatmap(sharing_policies))
def test_so_is_one_with_parts_of_gpus(snapshot: Snapshot, policy: Policy) -> None:
    solve(snapshot, policy, judging)


@worlds(100)
@given(contended())
def test_of_larger_programs_gangs_may_be_parts_and_bounds_are_no_tighter(world: tuple[Snapshot, Policy]) -> None:
    def asked(program: Program, start: Floats, effort: Effort) -> Solution | None:
        assert not (effort.bounding and evicts and program.integer.any())
        return optimise(program, start, effort)

    whole = solve(*world, optimise)
    evicts = any(isinstance(step, Evict) for step in whole.steps)
    with patch.object(solver.milp.bounding, "WHOLE_COLUMNS_MAX", 0):
        in_parts = solve(*world, asked)
    assert in_parts.steps == whole.steps
    for mine, other in zip(in_parts.certificate.layers, whole.certificate.layers, strict=True):
        assert mine.value == other.value
        assert mine.bound >= other.bound - 1e-5


def rounds_in_any_order(snapshot: Snapshot, policy: Policy) -> Iterator[tuple[Bounding, tuple[float, ...]]]:
    """Rounds that serve those who wait in different orders, each with its values in entitled layers."""
    shares, admissions = standing(snapshot, policy)
    candidates = in_order(competing(snapshot, admissions), policy, shares, snapshot.time)
    sub_layers, domain = sub_layers_of(candidates), sharing_of(policy, shares.tree, snapshot.nodes).domain
    room = FreeCapacity.of(snapshot, domain, pool_rules(policy, snapshot))
    soon = soon_free(snapshot, domain, pool_rules(policy, snapshot), room)
    begun = (
        snapshot,
        policy,
        candidates,
        shares,
        EvictionCandidates(EvictionRules.of(snapshot, policy, shares)),
        room,
        soon,
    )
    for order, _ in zip(permutations(candidates), range(ORDERS_MAX), strict=False):
        made = decide_with_evictions(snapshot, policy, order, shares, None, frozenset(), {}, RoundCache())
        reached = {layer.name: layer.value for layer in made.certificate.layers}
        values = tuple(reached.get(f"{ENTITLED}{layer}", 0.0) for layer in sub_layers if not layer.growth)
        yield Bounding(*begun, made.starts, made.promises, made.displacing), values


def best_by_program(bounding: Bounding) -> tuple[float, ...]:
    """What the program could reach at most, layer by layer."""
    stated = bounding.stated()
    program = stated.builder.build()
    found = optimise(program, np.zeros(stated.builder.columns), Effort(0.0, 60.0, 0, exact=True))
    assert found is not None
    return tuple(round(layer.bound, 6) for layer in found.reached)


def test_no_order_of_service_is_above_the_bounds_and_most_rounds_reach_them() -> None:
    evicting = reached = 0

    @seed(1)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(contended())
    def compare(world: tuple[Snapshot, Policy]) -> None:
        nonlocal evicting, reached
        rounds = list(rounds_in_any_order(*world))
        if not any(bounding.nominations for bounding, _ in rounds):
            return
        most = best_by_program(rounds[0][0])
        for bounding, values in rounds:
            stated = bounding.stated()
            assert stated.builder.build().is_satisfied_by(bounding.point(stated))
            assert not values > tuple(bound + 1e-5 for bound in most)
        evicting += 1
        best = max(values for _, values in rounds)
        reached += all(abs(mine - bound) < 1e-4 for mine, bound in zip(best, most, strict=True))

    compare()
    assert evicting > EXAMPLES / 5
    assert reached > 0.7 * evicting
