"""Random worlds in which hardly a GPU is free, some of them borrowed, and urgent jobs that come."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st

from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, QueueName, TaskPlacement
from solver.policy.harm import Evictions, Protection
from solver.policy.policy import Policy, PriorityClass, Queue, SchedulingPolicy, policy_of
from tests.solver.worlds import job, node, quota_of

GPUS = "H100"
NOW = Instant(1_000_000)
LEAVES = ("a", "b", "c")

CLASSES = (
    PriorityClass("inference", 1000, slo_class="latency-critical"),
    PriorityClass("serving", 900, slo_class="latency-critical", preemptible=False, may_borrow=True),
    PriorityClass("training", 100),
    PriorityClass("fixed", 100, preemptible=False, may_borrow=True),
    PriorityClass("kept", 100, protection=Protection(min_runtime=Duration(900_000))),
    PriorityClass("batch", 10),
)


@st.composite
def crowded_policies(draw: st.DrawFn) -> Policy:
    """Three queues, two of them at times below another; with guarantees, and at times a max and a least gain."""
    parent = QueueName("org") if draw(st.booleans()) else None
    queues = [] if parent is None else [Queue(parent, None, (quota_of(GPUS, draw(st.sampled_from([4, 8, 16]))),))]
    for name in LEAVES:
        most = draw(st.sampled_from([None, None, None, 4, 8]))
        guaranteed = draw(st.sampled_from([0, 2, 4, 4, 8]))
        above = parent if name != "c" else None
        lendable = 1 if guaranteed > 1 and draw(st.integers(0, 9)) == 0 else None
        quota = quota_of(GPUS, guaranteed, None if most is None else max(most, guaranteed), None, lendable)
        queues.append(Queue(QueueName(name), above, (quota,)))
    evictions = Evictions(min_gain=draw(st.sampled_from([0.0, 0.0, 0.5, 1.0])))
    return policy_of(tuple(queues), CLASSES, SchedulingPolicy(evictions=evictions))


def whole(name: str, queue: str, gpus: int, known: str, submitted: int) -> Job:
    """A job of one task that waits."""
    return job(name, queue, 1, gpus, submitted=submitted, priority_class=known)


@st.composite
def crowded(draw: st.DrawFn, waiting_max: int = 2) -> Snapshot:
    """Nodes of four GPUs that are full, or nearly; at times a gang of several tasks on them, or a job that may not leave."""
    nodes = [node(f"n{number}", 4) for number in range(draw(st.integers(1, 4)))]
    jobs = list[Job]()
    for host in nodes:
        first = draw(st.integers(0, 9)) == 0
        at = int(first)
        while at < len(host.gpus):
            gpus = min(draw(st.sampled_from([1, 2, 2, 4])), len(host.gpus) - at)
            number = len(jobs)
            devices = tuple(gpu.id for gpu in host.gpus[at : at + gpus])
            known = draw(st.sampled_from(["training", "training", "batch", "fixed", "kept", "inference"]))
            one = whole(f"run-{number}", draw(st.sampled_from(LEAVES)), gpus, known, 0)
            jobs.append(
                msgspec.structs.replace(
                    one,
                    phase="running",
                    attempt=1,
                    started_at=Instant(draw(st.integers(1, 9)) * 100_000),
                    placement=(TaskPlacement("worker", 0, NodeName(host.name), devices),),
                    leaves="not" if (held := draw(st.integers(0, 14))) < 2 else "freely",
                    held_by="a budget" if held == 1 else "",
                )
            )
            at += gpus
    waiting = [
        whole(f"wait-{number}", draw(st.sampled_from(LEAVES)), draw(st.sampled_from([1, 2, 4])), known, 500_000)
        for number, known in enumerate(draw(st.lists(st.sampled_from(["training", "batch"]), max_size=waiting_max)))
    ]
    return snapshot_of(NOW, nodes, [*jobs, *waiting])


@st.composite
def urgent(draw: st.DrawFn, at: Instant) -> Sequence[Job]:
    """Jobs that come one after the other, most of them urgent."""
    kinds = draw(st.lists(st.sampled_from(["inference", "inference", "serving", "training"]), min_size=1, max_size=4))
    return [
        whole(f"came-{number}", draw(st.sampled_from(LEAVES)), draw(st.sampled_from([1, 2, 4, 4])), known, int(at))
        for number, known in enumerate(kinds)
    ]
