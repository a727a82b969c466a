"""Which running jobs leave for urgent jobs that come after a complete round, by what that round has left.

A latency-critical job stands before all others that wait, and what it may take inside its queue's guarantees does not change with
those. So the search of a complete round finds which jobs leave for it, in the world that the last one left. No job leaves where
anything has changed that could give it a right to stay. All else is left to complete rounds: fair shares, moves, GPUs that are
partitioned anew, gangs in parts, jobs that leave for CPU or memory, and limits of a round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Self

import msgspec
import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.sharing import Sharing
from solver.model.parts import owner_of
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName
from solver.plan.plan import Bind, Grow, Plan
from solver.policy.policy import Policy
from solver.preemption.attempts import Attempts
from solver.preemption.consolidation import SEARCHES_MAX, ConsolidationSearch
from solver.preemption.eviction import Preemptor
from solver.preemption.eviction_candidates import EvictionCandidates
from solver.preemption.eviction_rules import EvictionRules
from solver.preemption.new_nomination import NewNomination
from solver.preemption.trial import leave
from solver.queueing.demand import StartCandidate
from solver.queueing.strict_queues import Lines
from solver.quota.entitlement import QuotaHeadroom, Shares
from solver.quota.users import UserRoom
from solver.quota.vacated import lies_inside
from solver.quota.victims import BORROWED


def is_urgent(job: Job, policy: Policy) -> bool:
    """Whether others may be asked to leave for it alone."""
    known = policy.priority_class(job)
    return known is not None and known.slo_class == "latency-critical"


@dataclass(slots=True)
class NarrowPreemption:
    """Who may leave. Mutable. `soon`: what is free once all that were asked to leave have left, which the world follows as well.

    `moving`: which jobs could move. `staying`: jobs that are not to be asked, or have been. `protected`: jobs that
    leave for none but a guarantee that is overdue. `is_over`: nobody leaves any more before the next complete round.
    """

    snapshot: Snapshot
    policy: Policy
    evictable: EvictionCandidates
    soon: FreeCapacity
    moving: ConsolidationSearch
    not_moving: ConsolidationSearch
    staying: set[JobName] = field(default_factory=set)
    protected: frozenset[JobName] = frozenset()
    is_over: bool = False

    @classmethod
    def after(
        cls,
        world: Snapshot,
        policy: Policy,
        plan: Plan,
        shares: Shares,
        soon: FreeCapacity,
        sharing: Sharing,
        kept: RoundCache,
    ) -> Self | None:
        """What a plan leaves, in the world in which it has been acted on; None where no job leaves outside complete rounds."""
        if policy.scheduling.evictions.per_round is not None:
            return None
        started = {step.job for step in plan.steps if isinstance(step, Bind)}
        # What has not begun to run yet stands in no line, as in a complete round.
        jobs = tuple(msgspec.structs.replace(j, phase="starting") if j.name in started else j for j in world.jobs)
        before = msgspec.structs.replace(world, jobs=jobs)
        evictable = EvictionCandidates(EvictionRules.of(before, policy, shares, kept), kept)
        _ = evictable.released(soon)  # Now: who comes first would wait for it.
        moving, not_moving = (ConsolidationSearch(before, policy, shares, sharing) for _ in range(2))
        made = cls(before, policy, evictable, soon, moving, not_moving, protected=frozenset(evictable.protected))
        made.change({step.job for step in plan.steps if isinstance(step, Grow)})
        kept_nodes = {task.node for held in before.in_flight.reservations for task in held.tasks}
        if kept_nodes:
            on_them = (j for j in jobs if not kept_nodes.isdisjoint(task.node for task in j.placement))
            made.staying.update(j.name for j in on_them)
        return made

    def serve(
        self, candidates: Collection[StartCandidate], room: FreeCapacity, shares: Shares
    ) -> NewNomination | StartCandidate | None:
        """What the first of these that can be served is promised, and who leaves for it; None: they wait as in any round.

        A candidate is returned in place of that which a complete round might serve otherwise: no other is served before it.
        """
        for candidate in candidates:
            making = self.preemptor(candidates, room, self.soon, shares)
            making.serve(candidate, "entitled")
            if making.promises and self.is_plain(making, making.promises[0]):
                return making.promises[0]
            if making.promises or making.starts or self._may_be_served(making, candidate):
                return candidate
        return None

    def preemptor(
        self,
        candidates: Collection[StartCandidate],
        room: FreeCapacity,
        soon: FreeCapacity,
        shares: Shares,
        staying: Collection[JobName] = (),
        *,
        moves: bool = False,
    ) -> Preemptor:
        """Serves jobs that wait, on copies of what is free and soon will be. `staying`: more jobs that are not to be asked.

        `moves`: it looks for jobs to move first, as a complete round does.
        """
        moving = self.moving if moves else self.not_moving
        moving.searches = SEARCHES_MAX if moves else 0
        headroom, lines = QuotaHeadroom(shares), Lines(tuple(candidates))
        attempts = Attempts(self.evictable, room.copy(), soon.copy(), headroom, UserRoom(shares.users), lines)
        return Preemptor(self.snapshot, self.policy, attempts, self.staying.union(staying), moving)

    def is_plain(self, making: Preemptor, found: NewNomination) -> bool:
        """Whether it is of the kind that is decided here."""
        whole = self.evictable.allocations.of_gang
        return (
            not (found.moves or found.pledged or making.displacing)
            and found.start.option == found.start.candidate.options[0]
            and any(found.start.charge.values())
            and not making.preemptor(found.start.candidate, "entitled").exceeds
            and all(
                victim.means in ("reclaim", "preempt")
                and victim.holder.gpus > 0
                and not victim.holder.job.held
                and owner_of(victim.name) == victim.name
                and len(whole[victim.name]) == 1
                for victim in found.victims
            )
        )

    def _may_be_served(self, making: Preemptor, candidate: StartCandidate) -> bool:
        """Whether it lies inside its guarantees if enough of its own queue leaves: then a complete round may find more for it."""
        preemptor, queue = making.preemptor(candidate, "entitled"), candidate.job.spec.queue
        own = making.givers.own_at_most(preemptor).get(queue, {})
        headroom = making.attempts.headroom
        return any(lies_inside(headroom, "entitled", queue, option.charge, own) for option in candidate.options)

    def evict(self, names: Iterable[JobName], shares: Shares) -> Shares:
        """These were asked to leave since; returns the shares without them. Those that had been asked before are known."""
        allocations = self.evictable.allocations
        leaving = [allocations.holders[n] for name in names for n in allocations.of_gang.get(name, ())]
        for holder in leaving:
            leave(self.soon, holder.job)
        self.change({owner_of(holder.job.name) for holder in leaving})
        return shares.without([(holder.job.spec.queue, holder.charge) for holder in leaving])

    def change(self, names: Collection[JobName]) -> None:
        """These jobs hold less than before, or are about to. They are not asked, nor is any that may have a right to their place.

        Behind a job that is borrowed nobody comes to lie inside a guarantee when it leaves; behind any other that may be.
        """
        self.staying |= self.concerned(names)

    def concerned(self, names: Collection[JobName]) -> set[JobName]:
        """These jobs, and all that may have a right to stay once these have left."""
        rules, allocations, found = self.evictable.rules, self.evictable.allocations, set(names)
        for name in names:
            for number in allocations.of_gang.get(name, ()):
                path = rules.tree.path(allocations.holders[number].job.spec.queue)[::-1]
                inside = np.flatnonzero(rules.standing[number, : len(path)] != BORROWED)
                if len(inside):
                    below = allocations.below[path[int(inside[0])]]
                    found.update(owner_of(holder.job.name) for holder in allocations.holders[below])
        return found
