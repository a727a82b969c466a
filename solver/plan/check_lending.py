"""S3 for what is not lent: no start takes what another queue keeps back for itself of its guarantee.

Part of the checker, and as slow and obvious. Each queue counts with what it and the queues below it use, but with no less than
what it keeps back; so do the roots, and their sum may not come above what there is of the type by any start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from solver.plan.check_entry import staying
from solver.plan.plan import Bind, Nominate, Plan
from solver.plan.violation import Violation
from solver.rules.entitlement import gpus_by_type, guarantees
from solver.rules.policy import Policy, Queue
from solver.rules.tree import Line, QueueTree
from solver.world.cluster import GpuType
from solver.world.quantities import MilliGpu
from solver.world.snapshot import Snapshot
from solver.world.workload import TaskPlacement

Use = Mapping[tuple[str, GpuType], int]
"""What the jobs of each queue itself hold."""

Held = Sequence[tuple[str, tuple[TaskPlacement, ...]]]
"""Placements, each with its queue."""


def lending_violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> Iterator[Violation]:
    """Every type of which more is given than is lent. What joins or leaves a running gang is a job of its own here."""
    types = sorted({entry.gpu_type for queue in policy.queues for entry in queue.quota if entry.lendable is not None})
    if not types:
        return
    stays = [(job.spec.queue, tasks) for job, tasks in staying(snapshot, plan)]
    queue_of = {job.name: job.spec.queue for job in snapshot.jobs}
    given = [(queue_of[step.job], step.tasks) for step in plan.steps if isinstance(step, Bind | Nominate)]
    before, after = _use(snapshot, stays), _use(snapshot, [*stays, *given])
    for gpu_type in types:
        weighed, now = _weight(snapshot, policy, gpu_type, before), _weight(snapshot, policy, gpu_type, after)
        there = _there(snapshot, gpu_type)
        if now > max(weighed, there):
            counted = f"{MilliGpu(now)} {gpu_type} are in use or kept back"
            yield Violation(
                "S3", gpu_type, f"{counted}, {MilliGpu(weighed)} without this plan; there are {MilliGpu(there)}"
            )


def _use(snapshot: Snapshot, held: Held) -> Use:
    types = snapshot.gpu_types
    use: Counter[tuple[str, GpuType]] = Counter()
    for queue, tasks in held:
        for task in tasks:
            use[queue, types.get(task.node, GpuType(""))] += task.gpus
    return use


def _weight(snapshot: Snapshot, policy: Policy, gpu_type: GpuType, use: Use) -> int:
    guaranteed = guarantees(QueueTree.of(policy), gpus_by_type(snapshot))

    def counts_with(queue: Queue) -> int:
        below = sum(counts_with(child) for child in policy.queues if child.parent == queue.name)
        entry, mine = queue.quota_for(gpu_type), guaranteed.get(Line(queue.name, gpu_type), 0)
        kept = mine - entry.lendable if entry and entry.lendable is not None else 0
        return max(use.get((queue.name, gpu_type), 0) + below, kept)

    known = {queue.name for queue in policy.queues}
    return sum(counts_with(queue) for queue in policy.queues if queue.parent not in known)


def _there(snapshot: Snapshot, gpu_type: GpuType) -> int:
    """The healthy GPUs of nodes that are there, and what is still held of the others."""
    there, lost = 0, set()
    for node in snapshot.nodes:
        if node.gpu_type == gpu_type:
            well = {gpu.id for gpu in node.gpus if gpu.healthy and node.ready}
            there += MilliGpu.gpus(len(well))
            lost |= {gpu.id for gpu in node.gpus} - well
    leaving = {intent.job for intent in snapshot.in_flight.intents if intent.evicts}
    for job in snapshot.jobs:
        for task in job.placement if job.name not in leaving else ():
            devices = task.devices if task.mig is None else (task.mig.gpu,)
            there += task.gpus if lost & set(devices) else 0
    return there
