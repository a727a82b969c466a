"""What would help a job that waits, in words."""

from __future__ import annotations

import typing

import pytest

from solver.model.cluster import GpuType
from solver.model.inflight import declared_holder
from solver.model.quantities import Cpu, Instant, Memory, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.plan.hopes import what_would_help
from solver.plan.mig_reasons import MigGeometryReason
from solver.plan.reasons import (
    AnyReason,
    AwaitsRelease,
    BeyondGuarantee,
    Bundles,
    CapacityReason,
    EntitledDemandFirst,
    FallbackLater,
    GuaranteeFragmented,
    HeldReason,
    HostResources,
    NoRoomReason,
    Outranked,
    Protected,
    QuotaChanges,
    QuotaMax,
    ReservedFor,
    RoundCutShort,
    ScarceResource,
    StrictOrder,
    TooClose,
    Topology,
    UserShare,
)

H100 = GpuType("H100")
TEAM = QueueName("team")
FIRST = JobName("first")
NONE, FOUR, SIX, EIGHT = MilliGpu(0), MilliGpu.gpus(4), MilliGpu.gpus(6), MilliGpu.gpus(8)
AT = Instant.parse("2026-11-20T09:00:00Z")

HELPS: list[tuple[AnyReason, str]] = [
    (QuotaMax(TEAM, H100, EIGHT, SIX, FOUR), "2 H100 less held in queue team, or its max at 10"),
    (QuotaMax(TEAM, H100, EIGHT, SIX, FOUR, user="ada"), "2 H100 less held by the same user in queue team"),
    (QuotaMax(TEAM, H100, EIGHT, SIX, FOUR, kept_back=FOUR), "2 H100 more lent by queue team"),
    # It can't lend more than it keeps back.
    (QuotaMax(TEAM, H100, EIGHT, MilliGpu.gpus(10), FOUR, kept_back=FOUR), "4 H100 more lent by queue team"),
    (
        QuotaMax(TEAM, H100, EIGHT, SIX, FOUR, kept_back=FOUR, with_gpus=FOUR),
        "2 H100 more lent by queue team where GPUs are added",
    ),
    (
        QuotaMax(TEAM, H100, EIGHT, SIX, FOUR, kept_back=FOUR, with_gpus=FOUR, with_guarantee=QueueName("org")),
        "2 H100 more lent by queue team where GPUs are added and the guarantee of queue org grows",
    ),
    (
        QuotaMax(TEAM, GpuType(""), EIGHT, SIX, FOUR, resource="cpu"),
        "2 cores less held in queue team, or its max at 10",
    ),
    (StrictOrder(TEAM, "fifo", FIRST), "first started"),
    (HeldReason(TEAM), "queue team not on hold"),
    (CapacityReason(H100, SIX, EIGHT), "2 H100 more free"),
    (CapacityReason(H100, SIX, EIGHT, "fast", 3), "2 H100 more free on the 3 nodes that it may be on (fast)"),
    (NoRoomReason("worker", H100, 4, EIGHT, 3), "nodes with room for one more task of 8 H100"),
    (
        HostResources("worker", H100, Cpu(8000), Memory(2**30), 4, 1),
        "nodes with the CPU and memory for 3 more tasks of group worker, or to ask for less of them",
    ),
    (
        HostResources(
            "worker", H100, Cpu(48_000), Memory(0), 1, 0, cpu_carried=Cpu(12_000), memory_carried=Memory(2**37)
        ),
        "to ask for no more than 12 cores and 128Gi of memory for each task of group worker",
    ),
    (
        HostResources("worker", H100, Cpu(0), Memory(0), 4, 1, resource=ScarceResource("rdma/hca", 2, 3)),
        "nodes with 2 rdma/hca for 3 more tasks of group worker",
    ),
    (
        HostResources("worker", H100, Cpu(0), Memory(0), 1, 0, resource=ScarceResource("hostPort/TCP/80", 1000, 0)),
        "nodes with port 80 (TCP) on its node for one more task of group worker",
    ),
    (Topology("rack", EIGHT, "r1", SIX), "one rack with 8 GPUs free, or to ask for a wider level"),
    (Bundles("worker", "rack", 4, 2, 2), "room for 2 more tasks, each 2 in one rack"),
    (TooClose("worker", "node", 1, 4, 3), "another node with room for one more task"),
    (ReservedFor(FIRST, AT, EIGHT), "a time limit that ends before 2026-11-20T09:00:00Z"),
    (ReservedFor(declared_holder("demo"), AT, EIGHT, AT), "to be let in by Reservation demo"),
    (Outranked((FIRST,)), "room beside the jobs that come before it"),
    (UserShare(TEAM, H100, "ada", SIX, EIGHT, FOUR, 2), "room beside the jobs that come before it"),
    (AwaitsRelease((FIRST,)), ""),
    (BeyondGuarantee(TEAM, H100, SIX, EIGHT), "2 H100 more in the guarantee of queue team, or a class that may borrow"),
    (BeyondGuarantee(TEAM, H100, SIX, EIGHT, AT), ""),
    (
        QuotaChanges(TEAM, H100, AT, "max", SIX, EIGHT, refused=True),
        "to ask for no more than 6 H100 before 2026-11-20T09:00:00Z",
    ),
    (QuotaChanges(TEAM, H100, AT, "guaranteed", SIX, EIGHT), ""),
    (FallbackLater((H100,), (GpuType("A100"),), AT), ""),
    (EntitledDemandFirst(TEAM, H100, SIX, EIGHT), "2 H100 less in use inside other queues' guarantees"),
    (GuaranteeFragmented(TEAM, H100, EIGHT, EIGHT), "H100 free in the shape that it asks for"),
    (Protected("minRuntime", FIRST, "batch", AT), "a shorter minRuntime of class batch"),
    (Protected("coolDown", FIRST, until=AT), "a shorter coolDown"),
    (Protected("evictionsPerDay", FIRST, "batch"), "more evictionsPerDay of class batch"),
    (Protected("preemptAfter", FIRST, "batch"), "a shorter preemptAfter of class batch"),
    (Protected("preemptAfter", FIRST, queue="vision"), "a shorter preemptAfter of queue vision"),
    (Protected("minGain", FIRST), "a lower minGain"),
    (Protected("perRound", FIRST), "a higher perRound"),
    (Protected("disruptionBudget", FIRST), "a PodDisruptionBudget that lets first go"),
    (RoundCutShort("greedy"), ""),
    (MigGeometryReason("worker", H100, "1g.10gb", 4, 1, 2, 4, 1), "3 more of 1g.10gb on H100"),
    (MigGeometryReason("worker", H100, "1g.10gb", 4, 1, 2, 4, 1, 2), "3 more of 2x 1g.10gb on H100"),
    (MigGeometryReason("worker", H100, "", 4, 1, 2, 4, 1), "room for 3 more tasks on whole H100"),
    (
        NoRoomReason("worker", H100, 4, MilliGpu(1500), 3, devices=3),
        "nodes with room for one more task of 0.5 of each of 3 H100",
    ),
]


@pytest.mark.parametrize(("reason", "helps"), HELPS)
def test_each_reason_says_what_would_help(reason: AnyReason, helps: str) -> None:
    assert what_would_help((reason,)) == ((helps,) if helps else ())


def test_no_reason_to_wait_is_forgotten() -> None:
    """Those that can never be are answered by the advice instead."""
    never = {
        "UnknownName",
        "ClassNotAllowed",
        "NamespaceNotAllowed",
        "NotDivided",
        "GpuTooSmall",
        "MigHasNoPeers",
        "AboveMax",
        "NeverFits",
    }
    every = {kind.__name__ for kind in typing.get_args(AnyReason)}
    assert {type(reason).__name__ for reason, _ in HELPS} == every - never


def test_it_is_said_once_in_the_order_of_the_reasons() -> None:
    reasons = (HeldReason(TEAM), CapacityReason(H100, SIX, EIGHT), CapacityReason(H100, SIX, EIGHT))
    assert what_would_help(reasons) == ("queue team not on hold", "2 H100 more free")
