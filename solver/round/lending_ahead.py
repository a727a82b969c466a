"""What queues will keep back once more GPUs are there or guarantees are larger: both let what is kept back of guarantees grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from solver.model.cluster import GpuType
from solver.model.quantities import MILLI_PER_GPU, MilliGpu
from solver.model.workload import JobSpec, QueueName
from solver.plan.mig_reasons import MigGeometryReason
from solver.plan.reasons import (
    AnyReason,
    BeyondGuarantee,
    CapacityReason,
    HostResources,
    NoRoomReason,
    QuotaMax,
    Topology,
)
from solver.policy.tree import QuotaLine
from solver.quota.entitlement import QuotaHeadroom
from solver.quota.guarantees import guarantees
from solver.quota.lending import Lending, Weights, kept_back
from solver.quota.options import Option
from solver.round.guarantees import not_lent


@dataclass(slots=True)
class LendingAhead:
    """Looks ahead to the change that the other reasons of a job ask for. `headroom`: after the round's starts."""

    headroom: QuotaHeadroom
    _kept_of: frozenset[GpuType] = field(init=False)
    """The types of which queues may keep something back."""

    def __post_init__(self) -> None:
        quotas = (entry for queue in self.headroom.shares.tree.by_name.values() for entry in queue.quota)
        self._kept_of = frozenset(entry.gpu_type for entry in quotas if entry.lendable is not None)

    def of(self, spec: JobSpec, option: Option, reasons: Sequence[AnyReason]) -> Iterator[QuotaMax]:
        """The queues that will not lend what a job needs once it has what these reasons ask for; () for those that do not now."""
        for gpu_type in sorted(self._kept_of.intersection(option.charge)):
            wanted = option.charge[gpu_type]
            added = _added(spec, option, gpu_type, reasons)
            raised = {
                QuotaLine(reason.queue, gpu_type): reason.wanted - reason.room
                for reason in reasons
                if isinstance(reason, BeyondGuarantee) and reason.gpu_type == gpu_type and reason.until is None
            }
            if wanted and (added or raised):
                lends = {
                    reason.queue: reason.to_lend
                    for reason in reasons
                    if isinstance(reason, QuotaMax) and reason.gpu_type == gpu_type and reason.kept_back is not None
                }
                for ahead in self._then(spec.queue, gpu_type, wanted, added, raised):
                    if ahead.to_lend > lends.get(ahead.queue, 0):
                        yield ahead

    def _then(
        self, queue: QueueName, gpu_type: GpuType, wanted: int, added: int, raised: dict[QuotaLine, int]
    ) -> Iterator[QuotaMax]:
        shares = self.headroom.shares
        declared, milli = shares.cluster.gpus.get(gpu_type, 0), added
        added = -(-milli // MILLI_PER_GPU) * MILLI_PER_GPU
        guaranteed = guarantees(shares.tree, {gpu_type: declared + added}, raised)
        kept = kept_back(shares.tree, guaranteed)
        if not kept:
            return
        # Where nothing is kept back now, nobody has counted how many of the GPUs are broken.
        there = shares.lending.capacity.get(gpu_type, declared) + added
        lending = Lending(kept, {gpu_type: there})
        weights = Weights.of(shares.tree, lending, shares.used, self.headroom.taken)
        # Of a GPU of which it needs a part, others may have the rest.
        weights.total[gpu_type] += added - milli
        # Of several guarantees that grow, the one furthest up: what those below it keep back is cut by it.
        grows = next((name for name in reversed(shares.tree.path(queue)) if QuotaLine(name, gpu_type) in raised), None)
        for reason in not_lent(queue, {gpu_type: wanted}, weights, shares.tree):
            yield msgspec.structs.replace(reason, with_gpus=MilliGpu(added), with_guarantee=grows)


def _added(spec: JobSpec, option: Option, gpu_type: GpuType, reasons: Iterable[AnyReason]) -> int:
    """Milli-GPU of a type that these reasons ask for, which may come with new nodes."""
    shapes = zip(spec.task_groups, option.shapes, option.gpu_types, strict=True)
    cost = {group.name: shape.cost for group, shape, served in shapes if served == gpu_type}
    count, tasks, domain = 0, 0, 0
    for reason in reasons:
        match reason:
            case CapacityReason(gpu_type=of, free=free, wanted=wanted) if of == gpu_type:
                count += wanted - free
            case Topology(wanted=wanted) if cost:
                domain = max(domain, wanted)
            case NoRoomReason(group=group, gpu_type=of) | HostResources(group=group, gpu_type=of) if of == gpu_type:
                tasks += (reason.tasks - reason.tasks_that_fit) * cost.get(group, 0)
            case MigGeometryReason(group=group, gpu_type=of) if of == gpu_type:
                tasks += (reason.tasks - reason.fit_as_it_is) * cost.get(group, 0)
            case _:
                pass
    return count + (domain or tasks)
