"""What a capacity report says, on worlds whose answer is known by hand; and that every millisecond waited counts once."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.analysis.backtest.backtest import Backtest, PolicyCandidate
from reconciler.analysis.capacity.account import case_of
from reconciler.analysis.capacity.addition import NodeAddition, nodes_of_type, read_addition
from reconciler.analysis.capacity.report import CapacityCase
from reconciler.analysis.capacity.rows import findings
from reconciler.analysis.capacity.search import SmallestNumber
from reconciler.analysis.capacity.target import JudgedWait, WaitTarget, read_target
from solver.model.cluster import GpuType, Node
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName, QueueName, TopologyRequest
from solver.policy.policy import Policy, PriorityClass, Queue, SchedulingPolicy, policy_of
from solver.simulation.trace import TraceJob
from tests.reconciler.analysis.backtest.backtests import HOUR, LENT, MINUTE, silently, traced
from tests.solver.worlds import node, quota_of

END = Instant(40 * HOUR)
ONE_QUEUE = policy_of((Queue(QueueName("research")),))
THREE = tuple(traced(f"job-{place}", "research", place * MINUTE, 2) for place in range(3))
"""Each wants all 8 GPUs of a node for 2 hours: on one node they wait 0, 119 and 238 minutes, on three not at all."""


def case(
    jobs: tuple[TraceJob, ...], nodes: tuple[Node, ...], policy: Policy = ONE_QUEUE, end: Instant = END
) -> CapacityCase:
    backtest = Backtest(jobs, Instant(0), end, Duration(MINUTE), None, forecasts=False)
    return case_of(backtest, PolicyCandidate("case", policy, nodes), silently)[0]


def spent(found: CapacityCase) -> Mapping[str, float]:
    return {str(line.bottleneck): round(line.gpu_hours, 3) for line in found.bottlenecks}


def smallest(
    jobs: tuple[TraceJob, ...], nodes: tuple[Node, ...], target: WaitTarget, of: NodeAddition
) -> dict[int, bool]:
    """Which numbers were tried, and whether each meets the target; the last that does is the answer."""
    backtest = Backtest(jobs, Instant(0), END, Duration(MINUTE), None, forecasts=False)
    tried = dict[int, JudgedWait]()
    search = SmallestNumber(tried, 64)
    while (number := search.next) is not None:
        candidate = PolicyCandidate("case", ONE_QUEUE, of.to(nodes, number))
        tried[number] = target.judge(backtest.replayed(candidate, silently)[0])
    return {number: judged.is_met for number, judged in tried.items()}


def test_what_is_asked_for_held_and_waited_for_is_as_worked_out_by_hand() -> None:
    found = case(THREE, (node("n", 8),))
    (demand,), (used,), (peak,) = found.demand, found.types, found.peaks
    assert (demand.jobs, demand.gpu_hours, demand.peak_gpus, demand.peak_at) == (3, 48, 24, 2 * MINUTE)
    assert (used.held_gpu_hours, used.held_part, used.full_part) == (48, 6 / 40, 6 / 40)
    assert spent(found) == {"H100": round(8 * (119 + 238) / 60, 3)}
    assert (peak.at, peak.jobs, peak.gpus, peak.until) == (2 * MINUTE, 2, 16, 4 * HOUR)
    assert found.bottlenecks[0].example == "job-2: needs 8 H100, 0 free"


def test_three_gangs_on_one_node_need_exactly_two_nodes_more() -> None:
    nodes = (node("n", 8),)
    of = nodes_of_type("H100", nodes)
    assert of is not None
    target = read_target("max wait < 1h", THREE, ONE_QUEUE)
    assert smallest(THREE, nodes, target, of) == {0: False, 1: False, 2: True}


def test_memory_beside_gpus_is_named() -> None:
    one, two = (_with_memory(traced(name, "research", at, 2, gpus=1)) for name, at in (("one", 0), ("two", MINUTE)))
    assert case((one, two), (node("n", 8),)).bottlenecks[0].bottleneck.what == "memory beside H100"


def test_the_shape_of_a_gang_is_named_where_enough_is_free_but_not_in_one_rack() -> None:
    racks = tuple(_labelled(node(f"n{place}", 8, rack=f"r{place // 2}")) for place in range(4))
    halves = [_in_rack(traced(f"half-{place}", "research", 0, 9), f"r{place}") for place in (0, 1)]
    wide = traced("wide", "research", MINUTE, 2)
    group = msgspec.structs.replace(wide.job.spec.task_groups[0], replicas=2)
    spec = msgspec.structs.replace(wide.job.spec, task_groups=(group,), topology=TopologyRequest(required="rack"))
    wide = msgspec.structs.replace(wide, job=msgspec.structs.replace(wide.job, spec=spec))
    found = case((*halves, wide), racks)
    assert found.bottlenecks[0].bottleneck.what == "H100 in one rack"


def _with_memory(one: TraceJob) -> TraceJob:
    group = one.job.spec.task_groups[0]
    shape = msgspec.structs.replace(group.shape, memory=type(group.shape.memory)(900 * 2**30))
    return _with_group(one, msgspec.structs.replace(group, shape=shape))


def _in_rack(one: TraceJob, rack: str) -> TraceJob:
    group = one.job.spec.task_groups[0]
    shape = msgspec.structs.replace(group.shape, node_labels=(f"rack={rack}",))
    return _with_group(one, msgspec.structs.replace(group, shape=shape))


def _with_group(one: TraceJob, group: object) -> TraceJob:
    spec = msgspec.structs.replace(one.job.spec, task_groups=(group,))
    return msgspec.structs.replace(one, job=msgspec.structs.replace(one.job, spec=spec))


def _labelled(one: Node) -> Node:
    return msgspec.structs.replace(one, labels=(f"rack={one.rack}",))


def test_a_limit_of_a_queue_is_named_and_no_node_helps_there() -> None:
    quota = msgspec.structs.replace(quota_of("H100", 8), max=MilliGpu.gpus(8))
    found = case(THREE, (node("n1", 8), node("n2", 8)), policy_of((Queue(QueueName("research"), quota=(quota,)),)))
    first = found.bottlenecks[0].bottleneck
    assert (first.kind, first.what) == ("quota", "max of queue research")
    assert "More nodes need not change that: it is the policy that says so." in findings(found)


def test_a_job_that_can_never_run_is_counted_apart() -> None:
    found = case((*THREE[:1], traced("huge", "research", MINUTE, 1, gpus=16)), (node("n", 8),))
    assert (found.never, found.bottlenecks[0].bottleneck.kind) == (1, "refused")
    assert found.peaks == ()


@st.composite
def traces(draw: st.DrawFn) -> tuple[TraceJob, ...]:
    """Up to eight jobs of two queues, of one to eight GPUs, that arrive at different moments."""
    one = st.tuples(st.sampled_from(["lender", "borrower"]), st.integers(1, 8), st.integers(1, 5))
    sizes = draw(st.lists(one, min_size=1, max_size=8))
    gaps = draw(st.lists(st.integers(1, 90), min_size=len(sizes), max_size=len(sizes)))
    times = [sum(gaps[: place + 1]) * MINUTE for place in range(len(sizes))]
    return tuple(
        traced(f"job-{place}", queue, at, hours, gpus=gpus)
        for place, ((queue, gpus, hours), at) in enumerate(zip(sizes, times, strict=True))
    )


@pytest.mark.long
@given(traces())
@settings(max_examples=25, deadline=None)
def test_every_moment_that_a_job_waited_counts_for_one_thing(jobs: tuple[TraceJob, ...]) -> None:
    """A job waits where it holds nothing: with evictions too, what is waited and held of each adds up to its time there."""
    backtest = Backtest(jobs, Instant(0), Instant(12 * HOUR), Duration(MINUTE), None, forecasts=False)
    found, outcome = case_of(backtest, PolicyCandidate("case", LENT, (node("n", 8),)), silently)
    there = sum(((run.ended_at or outcome.end) - run.submitted_at) * run.gpus for run in outcome.replay.runs.values())
    waited = sum(line.gpu_hours for line in found.bottlenecks)
    held = sum(line.held_gpu_hours for line in found.types)
    assert waited + held == pytest.approx(there / 1000 / HOUR)
    assert sum(line.gpu_hours for line in found.waiting) == pytest.approx(waited)


@pytest.mark.long
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(1, 6))
@settings(max_examples=15, deadline=None)
def test_one_node_less_misses_the_target(gaps: list[int], hours: int) -> None:
    jobs = tuple(
        traced(f"job-{place}", "research", sum(gaps[: place + 1]) * MINUTE, hours) for place in range(len(gaps))
    )
    nodes = (node("n", 8),)
    of = nodes_of_type("H100", nodes)
    assert of is not None
    tried = smallest(jobs, nodes, read_target("p90 wait < 30m", jobs, ONE_QUEUE), of)
    met = min(number for number, is_met in tried.items() if is_met)
    assert met == 0 or tried[met - 1] is False


def test_other_names_change_no_figure() -> None:
    classes = policy_of(
        (Queue(QueueName("research")), Queue(QueueName("product"))),
        (PriorityClass("standard", 10),),
        SchedulingPolicy(default_priority_class="standard"),
    )
    other = policy_of(
        (Queue(QueueName("alpha")), Queue(QueueName("zeta"))),
        (PriorityClass("a", 10),),
        SchedulingPolicy(default_priority_class="a"),
    )
    jobs = (*THREE, traced("late", "product", 5 * MINUTE, 1, gpus=4))
    names = {"research": "zeta", "product": "alpha"}
    renamed = tuple(_renamed(one, f"x{9 - place}", names) for place, one in enumerate(jobs))
    one = case(jobs, (node("n", 8), node("m", 8)), classes)
    two = case(renamed, (node("a", 8, "GB200"), node("b", 8, "GB200")), other)
    assert _figures(one) == _figures(two)


def _renamed(one: TraceJob, name: str, queues: Mapping[str, str]) -> TraceJob:
    group = one.job.spec.task_groups[0]
    types = tuple(GpuType("GB200") for _ in group.shape.gpu_types)
    shape = msgspec.structs.replace(group.shape, gpu_types=types)
    again = _with_group(one, msgspec.structs.replace(group, shape=shape))
    spec = msgspec.structs.replace(again.job.spec, queue=QueueName(queues[one.job.spec.queue]))
    return msgspec.structs.replace(again, job=msgspec.structs.replace(again.job, name=JobName(name), spec=spec))


def _figures(found: CapacityCase) -> object:
    return (
        [(line.jobs, line.gpu_hours, line.peak_gpus, line.peak_at, line.waits) for line in found.demand],
        [(line.gpus, line.held_gpu_hours, line.full_part) for line in found.types],
        [(line.bottleneck.kind, line.jobs, line.gpu_hours) for line in found.bottlenecks],
        [(line.at, line.jobs, line.gpus, line.until) for line in found.peaks],
        [one.gpus for one in found.over_time],
    )


def test_added_nodes_are_like_those_of_the_pool_in_racks_of_their_own() -> None:
    nodes = tuple(node(f"n{place}", 8, rack=f"r{place // 2}", block="b", pool="h100-a") for place in range(4))
    found = read_addition("16xH100-node:3", nodes)
    added = found.to(nodes, 3)[4:]
    assert [len(one.gpus) for one in added] == [16, 16, 16]
    assert [one.rack for one in added] == ["added-1-r1", "added-1-r1", "added-1-r2"]
    assert [one.block for one in added] == ["added-1"] * 3
    assert (added[0].cpu, added[0].memory) == (2 * nodes[0].cpu, 2 * nodes[0].memory)
    assert len({gpu.id for one in found.to(nodes, 3) for gpu in one.gpus}) == 4 * 8 + 3 * 16
