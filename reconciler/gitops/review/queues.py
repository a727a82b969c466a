"""How queues fare under two revisions: what they may have and hold, which of their limits heal when, how long their jobs wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import ceil

from reconciler.gitops.review.side import Played
from reconciler.model.queue_line import amount_text
from reconciler.model.review_findings import (
    Converging,
    Entitlement,
    HostEntitlement,
    HostQueueChange,
    QueueChange,
    QueueWaits,
)
from solver.model.quantities import MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import QueueName
from solver.policy.tree import QuotaLine
from solver.preemption.departures import convergence_of
from solver.quota.entitlement import gpus_by_type, use_by_line
from solver.quota.host_division import host_use_by_line
from solver.quota.users import HostLine

MS_PER_SECOND = 1000


def queue_changes(base: Played, head: Played) -> Iterator[QueueChange]:
    """Queues and GPU types of which anything differs, in order."""
    before, after = _entitlements(base), _entitlements(head)
    for line in sorted(before.keys() | after.keys()):
        old, new = before.get(line), after.get(line)
        if old != new:
            yield QueueChange(line.queue, line.gpu_type, old, new)


def _entitlements(side: Played) -> dict[QuotaLine, Entitlement]:
    shares, used = side.shares, use_by_line(side.ahead.after, side.shares.tree)
    lines = (QuotaLine(queue, gpu_type) for queue in shares.tree.by_name for gpu_type in gpus_by_type(side.snapshot))
    return {
        line: Entitlement(
            MilliGpu(shares.guaranteed.get(line, 0)),
            MilliGpu(shares.fair.get(line, 0)),
            None if line not in shares.max else MilliGpu(shares.max[line]),
            MilliGpu(used.get(line, 0)),
        )
        for line in lines
    }


def host_queue_changes(base: Played, head: Played) -> Iterator[HostQueueChange]:
    """Queues of which anything differs of CPU or memory, in order."""
    before, after = _host_entitlements(base), _host_entitlements(head)
    for line in sorted(before.keys() | after.keys()):
        old, new = before.get(line), after.get(line)
        if old != new:
            yield HostQueueChange(line.queue, line.resource, old, new)


def _host_entitlements(side: Played) -> dict[HostLine, HostEntitlement]:
    """Of CPU and memory that of which some queue says anything."""
    tree, dues = side.shares.tree, side.shares.host
    used = host_use_by_line(side.ahead.after, tree)
    lines = [HostLine(name, resource) for name in tree.by_name for resource in tree.host_resources]

    def entitlement(line: HostLine) -> HostEntitlement:
        queue_max = side.shares.users.host_max.get(line)
        return HostEntitlement(
            amount_text(line.resource, dues.guarantees.guaranteed.get(line, 0)),
            amount_text(line.resource, dues.fair.get(line, 0)),
            None if queue_max is None else amount_text(line.resource, queue_max),
            amount_text(line.resource, used[line]),
        )

    return {line: entitlement(line) for line in lines}


def converging_limits(head: Played) -> Iterator[Converging]:
    """The limits of the head that are below what their queues hold."""
    deadlines = {
        QuotaLine(clock.queue, clock.gpu_type): clock.deadline
        for clock in reversed(head.ahead.clocks)
        if clock.resource is None
    }
    for line, over in sorted(head.ahead.over.items()):
        yield Converging(
            line.queue,
            line.gpu_type,
            MilliGpu(head.shares.max[line]),
            MilliGpu(over),
            convergence_of(head.policy, head.shares.tree, line.queue).evict,
            deadlines.get(line),
            head.ahead.kept.get(line),
        )


def queue_waits(snapshot: Snapshot, base: Played, head: Played) -> Iterator[QueueWaits]:
    """Of every queue in which jobs wait, by name."""
    pending: defaultdict[QueueName, int] = defaultdict(int)
    for job in snapshot.pending:
        pending[job.spec.queue] += 1
    before, after = _waits(snapshot, base), _waits(snapshot, head)
    for queue, jobs in sorted(pending.items()):
        old, new = before[queue], after[queue]
        p50, p90 = ((part_of(old, jobs, part), part_of(new, jobs, part)) for part in (0.5, 0.9))
        yield QueueWaits(queue, jobs, len(old), len(new), *p50, *p90)


def _waits(snapshot: Snapshot, side: Played) -> defaultdict[QueueName, list[float]]:
    """Seconds that the jobs of each queue wait from now, of those that start at all, the shortest first."""
    waits: defaultdict[QueueName, list[float]] = defaultdict(list)
    for job in snapshot.pending:
        at = side.ahead.starts.get(job.name)
        if at is not None:
            waits[job.spec.queue].append((at - snapshot.time) / MS_PER_SECOND)
    for known in waits.values():
        known.sort()
    return waits


def part_of(waits: Sequence[float], jobs: int, part: float) -> float | None:
    """Within how many seconds this part of the jobs has started; None: fewer do. `waits` are sorted, of those that start."""
    needed = ceil(part * jobs)
    return waits[needed - 1] if needed <= len(waits) else None
