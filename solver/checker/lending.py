"""S3 for what is not lent: no start takes what another queue keeps back for itself of its guarantee.

Part of the checker. Each queue counts with what it and the queues below it use, but with no less than
what it keeps back; so do the roots, and their sum may not come above what there is of the type by any start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from solver.checker.case import Charge, JudgedPlan
from solver.checker.entry import staying
from solver.model.cluster import GpuType
from solver.model.quantities import MilliGpu
from solver.model.workload import QueueName
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
        weighed, now = _weight(case, gpu_type, before), _weight(case, gpu_type, after)
        there = _there(case, gpu_type)
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
    return _weight(case, gpu_type, {}) > 0


def _weight(case: JudgedPlan, gpu_type: GpuType, use: Use) -> int:
    children = case.lookup.tree.children

    def counts_with(queue: Queue) -> int:
        below = sum(counts_with(child) for child in children.get(queue.name, ()))
        entry, mine = queue.quota_for(gpu_type), case.guaranteed.get(QuotaLine(queue.name, gpu_type), 0)
        kept = mine - entry.lendable if entry and entry.lendable is not None else 0
        return max(use.get((queue.name, gpu_type), 0) + below, kept)

    return sum(counts_with(queue) for queue in children[None])


def _there(case: JudgedPlan, gpu_type: GpuType) -> int:
    """The healthy GPUs of nodes that are there, and what is still held of the others."""
    there, lost = 0, set()
    for node in case.ground.nodes:
        if node.gpu_type == gpu_type:
            well = {gpu.id for gpu in node.gpus if gpu.healthy and node.ready}
            there += MilliGpu.gpus(len(well))
            lost |= {gpu.id for gpu in node.gpus} - well
    if not lost:
        return there
    for job in case.snapshot.jobs:
        for task in job.placement if job.name not in case.sent_back else ():
            devices = task.devices if task.mig is None else (task.mig.gpu,)
            there += 0 if lost.isdisjoint(devices) else task.gpus
    return there
