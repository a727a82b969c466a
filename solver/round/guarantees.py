"""What guarantees have to do with a job's wait: its own has not the shape, or those of others come first or are not lent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from solver.model.cluster import GpuType
from solver.model.quantities import MILLI_PER_GPU, Cpu, Memory, MilliGpu
from solver.model.workload import QueueName
from solver.plan.reasons import (
    AnyReason,
    Bundles,
    CapacityReason,
    EntitledDemandFirst,
    GuaranteeFragmented,
    HostResources,
    NoRoomReason,
    QuotaMax,
    TooClose,
    Topology,
)
from solver.policy.tree import QueueTree, QuotaLine
from solver.queueing.demand import StartCandidate
from solver.quota.dominance import HostUse
from solver.quota.entitlement import Charge, QuotaHeadroom, Shares
from solver.quota.host_dues import HostDues
from solver.quota.host_guarantees import HeldAlone
from solver.quota.host_shares import HostShares
from solver.quota.lending import Weights
from solver.quota.options import Option
from solver.quota.users import HostLine

SHAPELESS = (NoRoomReason, Topology, Bundles, TooClose)
"""Enough is free, but not in the shape that is needed."""


def fragmented(
    candidate: StartCandidate, constraints: Iterable[AnyReason], headroom: QuotaHeadroom
) -> Iterator[GuaranteeFragmented]:
    """The guarantees that a job lies inside of, where nothing but the shape is in its way."""
    queue, inside = candidate.job.spec.queue, headroom.entitled
    option = next((known for known in candidate.options if inside.holds(queue, known.charge)), None)
    if option is None or not all(isinstance(reason, SHAPELESS) for reason in constraints):
        return
    for gpu_type, milli in option.charge.items():
        if milli:
            room = min(inside.left(line) for line in headroom.shares.tree.lines(queue, gpu_type))
            yield GuaranteeFragmented(queue, gpu_type, MilliGpu(room), MilliGpu(milli))


def with_share(
    candidate: StartCandidate, constraints: Iterable[AnyReason], headroom: QuotaHeadroom, carried: HostShares
) -> tuple[AnyReason, ...]:
    """The constraints; where a job inside its guarantee asks for more CPU or memory than its GPUs carry, with what they carry."""
    spec, inside, share_of = candidate.job.spec, headroom.entitled, dict[tuple[str, GpuType], HostUse]()
    for option in candidate.options:
        if carried.asks_beyond(spec, option) and inside.holds(spec.queue, option.charge):
            for group, shape, gpu_type in zip(spec.task_groups, option.shapes, option.gpu_types, strict=True):
                share = carried.of_task(shape, gpu_type)
                if shape.cpu > share.cpu or shape.memory > share.memory:
                    share_of[group.name, gpu_type or GpuType("")] = share

    def with_its_share(reason: AnyReason) -> AnyReason:
        if not isinstance(reason, HostResources) or reason.resource:
            return reason
        share = share_of.get((reason.group, reason.gpu_type))
        if share is None:
            return reason
        return msgspec.structs.replace(reason, cpu_carried=Cpu(share.cpu), memory_carried=Memory(share.memory))

    return tuple(map(with_its_share, constraints))


def host_max(shares: Shares, line: HostLine, used: int, wanted: int) -> QuotaMax:
    """A max of CPU or memory that a job would break. The numbers are cores, or GiB."""
    entry = shares.tree.by_name[line.queue].host_quota_for(line.resource)
    unit = 1 if line.resource == "cpu" else 2**30 / MILLI_PER_GPU
    most, held, more = (MilliGpu(round(amount / unit)) for amount in (shares.users.most(line), used, wanted))
    origin = entry.origin if entry else ""
    return QuotaMax(line.queue, GpuType(""), most, held, more, origin, line.user, resource=line.resource)


def host_not_lent(dues: HostDues, held: HeldAlone) -> Iterator[QuotaMax]:
    """The queues that keep back of CPU or memory what this would take."""
    tree, path = dues.tree, dues.tree.path(held.queue)
    for resource in dues.not_lent(held):
        unit = 1 if resource == "cpu" else 2**30 / MILLI_PER_GPU
        there, wanted = dues.there.get(resource, 0), held.beside.cpu if resource == "cpu" else held.beside.memory
        for line, kept in dues.kept.items():
            unused = kept - dues.used.get(line, 0)
            if line.resource == resource and line.queue not in path and unused > 0:
                entry = tree.by_name[line.queue].host_quota_for(resource)
                most, taken = there, sum(dues.used.get(HostLine(r.name, resource), 0) for r in tree.children[None])
                amounts = [MilliGpu(round(amount / unit)) for amount in (most, taken + unused, wanted)]
                numbers = (amounts[0], amounts[1], amounts[2])
                origin = entry.origin if entry else ""
                kept_back = MilliGpu(round(unused / unit))
                yield QuotaMax(line.queue, GpuType(""), *numbers, origin, kept_back=kept_back, resource=resource)


def not_lent(queue: QueueName, charge: Charge, weights: Weights, tree: QueueTree) -> Iterator[QuotaMax]:
    """The queues that keep back what the charge would take."""
    for gpu_type in weights.refused(queue, charge):
        # More than there is where more is kept back than that, or lent.
        used = weights.total[gpu_type] - weights.own(queue, gpu_type)
        numbers = (
            MilliGpu(weights.lending.capacity.get(gpu_type, 0)),
            MilliGpu(used),
            MilliGpu(charge[gpu_type]),
        )
        for line, unused in weights.keepers(queue, gpu_type):
            entry = tree.by_name[line.queue].quota_for(gpu_type)
            origin = entry.origin if entry else ""
            yield QuotaMax(line.queue, gpu_type, *numbers, origin, kept_back=MilliGpu(unused))


def entitled_first(
    candidate: StartCandidate, constraints: Iterable[AnyReason], headroom: QuotaHeadroom
) -> Iterator[EntitledDemandFirst]:
    """The types of which other queues' work inside guarantees leaves too little, under every one of a job's options."""
    if any(isinstance(reason, (CapacityReason, *SHAPELESS)) for reason in constraints):
        short = [tuple(_short(candidate, option, headroom)) for option in candidate.options]
        if all(short):
            yield from dict.fromkeys(reason for reasons in short for reason in reasons)


def _short(candidate: StartCandidate, option: Option, headroom: QuotaHeadroom) -> Iterator[EntitledDemandFirst]:
    queue = candidate.job.spec.queue
    for gpu_type, milli in option.charge.items():
        left = _left_by_others(queue, gpu_type, headroom)
        if milli > left:
            yield EntitledDemandFirst(queue, gpu_type, MilliGpu(left), MilliGpu(milli))


def _left_by_others(queue: QueueName, gpu_type: GpuType, headroom: QuotaHeadroom) -> int:
    """Milli-GPU of a type that other queues' work inside their guarantees does not hold."""
    tree = headroom.shares.tree

    def inside(line: QuotaLine) -> int:
        return headroom.shares.guaranteed.get(line, 0) - headroom.entitled.left(line)

    everybody = sum(inside(QuotaLine(root.name, gpu_type)) for root in tree.children.get(None, ()))
    own = min(inside(line) for line in tree.lines(queue, gpu_type))
    return max(0, headroom.shares.cluster.gpus.get(gpu_type, 0) - everybody + own)
