"""S3 for what is not lent: no start takes what another queue keeps back for itself of its guarantee.

Part of the checker. Each queue counts with what it and the queues below it use, but with no less than
what it keeps back; so do the roots, and their sum may not come above what there is of the type by any start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from solver.checker.case import Charge, JudgedPlan
from solver.checker.entry import staying
from solver.checker.policy_index import PolicyIndex
from solver.model.cluster import DeviceId, GpuType, Node
from solver.model.quantities import MilliGpu
from solver.model.workload import QueueName, TaskPlacement
from solver.plan.violation import Violation
from solver.policy.policy import Queue
from solver.policy.tree import QuotaLine

Use = Mapping[tuple[str, GpuType], int]
"""What the jobs of each queue itself hold."""


def lending_violations(case: JudgedPlan) -> Iterator[Violation]:
    """Every type of which more is given than is lent. What joins or leaves a running gang is a job of its own here."""
    types = sorted(gpu_type for gpu_type in case.lookup.lent_in_part if _keeps_back(case, gpu_type))
    if not types:
        return
    before = _use((job.spec.queue, charge) for job, charge in staying(case))
    after = before + _use((case.jobs[step.job].spec.queue, case.given(step)) for step in case.placing)
    for gpu_type in types:
        weighed, now = (weight(case.lookup, case.guaranteed, gpu_type, use) for use in (before, after))
        held = (task for job in case.snapshot.jobs if job.name not in case.sent_back for task in job.placement)
        there = lent_at_most(case.ground.nodes, gpu_type, held)
        if now > max(weighed, there):
            counted = f"{MilliGpu(now)} {gpu_type} are in use or kept back"
            yield Violation(
                "S3", gpu_type, f"{counted}, {MilliGpu(weighed)} without this plan; there are {MilliGpu(there)}"
            )


def _use(held: Iterable[tuple[QueueName, Charge]]) -> Counter[tuple[str, GpuType]]:
    use: Counter[tuple[str, GpuType]] = Counter()
    for queue, charge in held:
        for gpu_type, milli in charge.items():
            use[queue, gpu_type] += milli
    return use


def _keeps_back(case: JudgedPlan, gpu_type: GpuType) -> bool:
    """Whether any queue does; where all is lent nothing is judged, whoever is still leaving what is promised already."""
    return weight(case.lookup, case.guaranteed, gpu_type, {}) > 0


def weight(lookup: PolicyIndex, guaranteed: Mapping[QuotaLine, int], gpu_type: GpuType, use: Use) -> int:
    """Milli-GPU that all roots together count with under a use."""
    children = lookup.tree.children

    def counts_with(queue: Queue) -> int:
        below = sum(counts_with(child) for child in children.get(queue.name, ()))
        entry, mine = queue.quota_for(gpu_type), guaranteed.get(QuotaLine(queue.name, gpu_type), 0)
        kept = mine - entry.lendable if entry and entry.lendable is not None else 0
        return max(use.get((queue.name, gpu_type), 0) + below, kept)

    return sum(counts_with(queue) for queue in children[None])


def lent_at_most(nodes: Iterable[Node], gpu_type: GpuType, held: Iterable[TaskPlacement]) -> int:
    """Milli-GPU that may be used or kept back: the healthy GPUs of nodes that are there, and what is still held of others."""
    there, lost = 0, set[DeviceId]()
    for node in nodes:
        if node.gpu_type == gpu_type:
            well = {gpu.id for gpu in node.gpus if gpu.healthy and node.ready}
            there += MilliGpu.gpus(len(well))
            lost |= {gpu.id for gpu in node.gpus} - well
    if not lost:
        return there
    for task in held:
        there += 0 if lost.isdisjoint(task.on_gpus) else task.gpus
    return there
