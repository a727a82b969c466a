"""The policy of a round in which queues borrow nothing whose budget is spent: `max` is the guarantee, or what they hold."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from reconciler.model.budget import BudgetStanding
from solver.model.cluster import GpuType
from solver.model.quantities import MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import QueueName
from solver.policy.policy import Policy, Queue, Quota
from solver.policy.tree import QueueTree, QuotaLine
from solver.policy.windows import policy_at
from solver.quota.entitlement import Shares, shares_of


def without_borrowing(policy: Policy, snapshot: Snapshot, standings: Sequence[BudgetStanding]) -> Policy:
    """The very policy where no budget says so. What a queue holds above its guarantee stays there: no job leaves for a budget."""
    spent = {
        known.queue: known.origin
        for known in standings
        if known.queue is not None and known.is_spent and known.when_spent == "no-borrowing"
    }
    if not spent.keys() & {queue.name for queue in policy.queues}:
        return policy
    policy = policy_at(policy, snapshot.time)
    shares = shares_of(snapshot, QueueTree.of(policy))
    types = sorted({node.gpu_type for node in snapshot.nodes if node.gpus})
    queues = tuple(
        _limited(queue, spent[queue.name], types, shares) if queue.name in spent else queue for queue in policy.queues
    )
    return msgspec.structs.replace(policy, queues=queues)


def _limited(queue: Queue, origin: str, types: Sequence[GpuType], shares: Shares) -> Queue:
    entries = {entry.gpu_type: entry for entry in queue.quota}
    for gpu_type in types:
        entry = entries.get(gpu_type, Quota(gpu_type))
        most = _most(queue.name, gpu_type, shares)
        if entry.max is None or entry.max > most:
            entries[gpu_type] = msgspec.structs.replace(entry, max=most, origin=origin)
    return msgspec.structs.replace(queue, quota=tuple(entries[gpu_type] for gpu_type in sorted(entries)))


def _most(queue: QueueName, gpu_type: GpuType, shares: Shares) -> MilliGpu:
    line = QuotaLine(queue, gpu_type)
    return MilliGpu(max(shares.guaranteed.get(line, 0), shares.used.get(line, 0)))
