"""Dominant shares in a table that can be checked by hand, and that they order without making anything lawful."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.model.cluster import GpuType
from solver.model.snapshot import Snapshot
from solver.model.workload import QueueName
from solver.policy.policy import Policy
from solver.policy.tree import QuotaLine
from solver.queueing.demand import in_order
from solver.quota.dominance import ClusterTotals, HostUse, Owed
from solver.quota.entitlement import gpus_by_type
from solver.round.solve import competing, standing
from tests.drawn import worlds
from tests.solver.worlds import policies, snapshots

H, A = GpuType("H100"), GpuType("A100")
Q = QueueName("q")
CLUSTER = ClusterTotals({H: 16, A: 4}, HostUse(100, 1000))


@pytest.mark.parametrize(
    ("why", "held", "beside", "guaranteed", "expected"),
    [
        ("nothing held", {}, HostUse(), {}, 0.0),
        ("the scarcer type dominates", {H: 4, A: 2}, HostUse(), {}, 0.5),
        ("only what is above the guarantee", {H: 12}, HostUse(), {H: 8}, 0.25),
        ("not below zero", {H: 2}, HostUse(), {H: 8}, 0.0),
        ("CPU dominates", {H: 4}, HostUse(60, 10), {}, 0.6),
        ("memory dominates", {H: 4}, HostUse(10, 700), {}, 0.7),
        ("a quarter of the GPUs guaranteed is a quarter of the CPU", {}, HostUse(60, 10), {H: 5}, 0.35),
    ],
)
def test_dominant_share(
    why: str, held: dict[GpuType, int], beside: HostUse, guaranteed: dict[GpuType, int], expected: float
) -> None:
    lines = {QuotaLine(Q, gpu_type): gpus for gpu_type, gpus in guaranteed.items()}
    assert Owed.to(Q, lines, CLUSTER).dominant_share(held, beside) == pytest.approx(expected), why


def test_a_guarantee_of_a_heavy_type_is_a_larger_part_of_the_cpu() -> None:
    weighed = replace(CLUSTER, weights={A: 4.0})
    lines = {QuotaLine(Q, A): 2}
    assert Owed.to(Q, lines, CLUSTER).dominant_share({}, HostUse(60, 10)) == pytest.approx(0.6 - 2 / 20)
    assert Owed.to(Q, lines, weighed).dominant_share({}, HostUse(60, 10)) == pytest.approx(0.6 - 8 / 32)


@given(st.integers(0, 16), st.integers(0, 4), st.integers(0, 100), st.integers(0, 8), st.integers(0, 100))
def test_holding_more_never_lowers_it(h: int, a: int, cpu: int, guaranteed: int, more: int) -> None:
    lines = {QuotaLine(Q, H): guaranteed}
    least = Owed.to(Q, lines, CLUSTER).dominant_share({H: h, A: a}, HostUse(cpu, 0))
    assert 0 <= least <= Owed.to(Q, lines, CLUSTER).dominant_share({H: h, A: a}, HostUse(cpu + more, more))


def cluster_of(snapshot: Snapshot, gpus: Mapping[GpuType, int]) -> ClusterTotals:
    """Add up a snapshot; `gpus` are its GPUs by type."""
    cpu: dict[QueueName, int] = {}
    memory: dict[QueueName, int] = {}
    for job in snapshot.jobs:
        queue, shapes = job.spec.queue, {group.name: group.shape for group in job.spec.task_groups}
        for task in job.placement:
            if task.group in shapes:
                cpu[queue] = cpu.get(queue, 0) + shapes[task.group].cpu
                memory[queue] = memory.get(queue, 0) + shapes[task.group].memory
    whole = HostUse(sum(node.cpu for node in snapshot.nodes), sum(node.memory for node in snapshot.nodes))
    return ClusterTotals(gpus, whole, {queue: HostUse(cpu[queue], memory[queue]) for queue in cpu})


@worlds(60)
@given(snapshots(), policies())
def test_it_orders_inside_a_sub_layer_and_changes_nothing_else(snapshot: Snapshot, policy: Policy) -> None:
    shares, admissions = standing(snapshot, policy)
    jobs = competing(snapshot, admissions)
    assert shares.cluster == cluster_of(snapshot, gpus_by_type(snapshot))
    hogs = {name: HostUse(10**9, 10**15) for name in (QueueName("left"), QueueName("r1"))}
    other = replace(shares, cluster=replace(shares.cluster, held_beside=hogs))
    here, there = (in_order(jobs, policy, known, snapshot.time) for known in (shares, other))
    assert {(c.job.name, c.sub_layer, c.options) for c in here} == {(c.job.name, c.sub_layer, c.options) for c in there}
