"""Which running jobs may be evicted for which, by what is borrowed when a round begins, and which parts leave together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from solver.model.arrays import Ints
from solver.model.quantities import Duration, Instant
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, QueueName
from solver.policy.policy import Policy, PreemptWithin
from solver.policy.precedence import Precedence
from solver.policy.reclaim import may_reclaim_fair_share, preempts_within, reclaimed_for
from solver.policy.tree import QueueTree
from solver.quota.allocation_table import AllocationTable
from solver.quota.borrowing import borrowing_of
from solver.quota.entitlement import Shares
from solver.quota.host_division import host_guarantees_of
from solver.quota.host_shares import HostBorrowing, HostShares
from solver.quota.victims import (
    BORROWED,
    INSIDE,
    STANDINGS,
    Holder,
    PreemptorJob,
    Standing,
    Victim,
    gangs_of,
    lost_gpu_s,
)


@dataclass(frozen=True, slots=True)
class EvictionRules:
    """Judges which running jobs may be evicted for a waiting one.

    `standing`: by holder and depth (roots: 0), how protected it is in the lines of the queue on its path, as a place in STANDINGS;
    work without GPUs is borrowed on nodes that have some, unless it lies inside what is guaranteed of CPU and memory, or shared.
    `ranks`: by queue and base priority, the place of that among those of the queue; `rank`: the same by holder. `host`: what is
    held of CPU and memory beyond what GPUs carry.
    `without`: evictionsPerDay or disruptionBudget, where it is asked what could leave without these. `staying`: jobs that are not
    to leave. `within`: of queues in which not lower priority alone decides who leaves for whom, what does. `not_for_shares`: queues
    whose work leaves for no fair share of others. `for_guarantees`: queues that take nothing back for fair shares, nor any below.
    """

    now: Instant
    tree: QueueTree
    allocations: AllocationTable
    standing: Ints
    ranks: Mapping[tuple[QueueName, int], int]
    rank: Ints
    restart_cost: Duration
    precedence: Precedence
    host: HostBorrowing
    without: frozenset[str] = frozenset()
    staying: frozenset[JobName] = frozenset()
    within: Mapping[QueueName, PreemptWithin] = field(default_factory=dict)
    not_for_shares: frozenset[QueueName] = frozenset()
    for_guarantees: frozenset[QueueName] = frozenset()

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy, shares: Shares, kept: RoundCache | None = None) -> EvictionRules:
        """The rules as they apply to a snapshot."""
        allocations = AllocationTable.of(gangs_of(snapshot, policy, kept=kept), shares.tree, kept)
        ranks, rank = _ranks(allocations)
        restart_cost = policy.scheduling.evictions.restart_cost
        standing = borrowing_of(allocations, shares).max(axis=1, initial=BORROWED)
        carried = HostShares.of(snapshot.nodes, policy.scheduling.host_share)
        host = HostBorrowing.of(allocations, carried, kept, divided=shares.tree.divides_host)
        standing[~allocations.leave[allocations.base].astype(bool)] = INSIDE
        standing[host.alone] = BORROWED
        beside = host_guarantees_of(snapshot, allocations, shares.tree)
        standing[sorted(beside.inside)] = INSIDE
        for number, sharing in beside.shared.items():
            standing[number, len(shares.tree.path(sharing)) - 1] = INSIDE
        precedence = shares.precedence
        return cls(
            *(snapshot.time, shares.tree, allocations, standing, ranks, rank),
            *(restart_cost, precedence, host),
            within=_said_within(shares.tree),
            not_for_shares=_not_for_shares(shares.tree),
            for_guarantees=_for_guarantees(policy, shares.tree),
        )

    @property
    def holders(self) -> tuple[Holder, ...]:
        """All of them, by number."""
        return self.allocations.holders

    def seniority(self, job: Job, base_priority: int) -> tuple[int, int]:
        """Who of a queue has others of it leave: those whose seniority is less."""
        goes_by_age = self.within.get(job.spec.queue) == "lower-or-newer"
        return base_priority, -int(job.submitted_at) if goes_by_age else 0

    def branches(self, preemptor: PreemptorJob) -> tuple[QueueName, ...]:
        """The queues on a preemptor's path, from its own up, beside which work of others may leave for it."""
        path = self.tree.path(preemptor.job.spec.queue)
        return path if preemptor.claims_from is None else path[path.index(preemptor.claims_from) :]

    def whole(self, holder: Holder) -> tuple[Holder, ...]:
        """What leaves with a holder: with what a gang can't do without, everything that it holds."""
        members = self.allocations.of_gang.get(holder.job.name, ())
        return (holder, *(self.holders[number] for number in members[1:]))

    def with_all_parts(self, victims: Sequence[Victim]) -> tuple[Victim, ...]:
        """The victims and what leaves with them."""
        if not self.allocations.whole:
            return tuple(victims)
        named = {victim.name for victim in victims}
        return (
            *victims,
            *(
                replace(victim, holder=part, lost_gpu_s=self.lost_gpu_s(part))
                for victim in victims
                for part in self.whole(victim.holder)[1:]
                if part.job.name not in named
            ),
        )

    def standing_on(self, holder: Holder, queues: Iterable[QueueName]) -> Standing:
        """The most protected standing on the lines of these queues, which are on the holder's path."""
        path, number = self.tree.path(holder.job.spec.queue)[::-1], self.allocations.number_of(holder)
        return STANDINGS[max((int(self.standing[number, path.index(queue)]) for queue in queues), default=BORROWED)]

    def lost_gpu_s(self, holder: Holder) -> float:
        """What evicting it now throws away, in GPU-seconds."""
        return lost_gpu_s(holder, self.now, self.restart_cost)


def _said_within(tree: QueueTree) -> dict[QueueName, PreemptWithin]:
    if not any(queue.preempt_within for queue in tree.by_name.values()):
        return {}
    modes = {name: preempts_within(tree, name) for name in tree.by_name}
    return {name: mode for name, mode in modes.items() if mode != "lower-priority"}


def _not_for_shares(tree: QueueTree) -> frozenset[QueueName]:
    if not any(queue.reclaimed_for for queue in tree.by_name.values()):
        return frozenset()
    return frozenset(name for name in tree.by_name if reclaimed_for(tree, name) == "guaranteed")


def _for_guarantees(policy: Policy, tree: QueueTree) -> frozenset[QueueName]:
    """What such queues give up to higher values they do not take back."""
    if not tree.reclaims_by_value:
        return frozenset()
    others = {name for name in tree.by_name if may_reclaim_fair_share(policy, tree, name)}
    return frozenset(tree.by_name) - {above for name in others for above in tree.path(name)}


def _ranks(allocations: AllocationTable) -> tuple[dict[tuple[QueueName, int], int], Ints]:
    value = allocations.columns.value[allocations.gang]
    ranks, rank = dict[tuple[QueueName, int], int](), np.empty(len(value), dtype=np.int64)
    for queue, own in allocations.own.items():
        values, rank[own] = np.unique(value[own], return_inverse=True)
        ranks |= {(queue, known): number for number, known in enumerate(values.tolist())}
    return ranks, rank
