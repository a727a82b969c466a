"""What a preemptor would get if certain victims left: whether it may have that, and where it would be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.reserved_view import seen
from solver.model.arrays import Mask
from solver.model.cluster import DeviceId, NodeName
from solver.model.pledges import NOTHING, Pledged
from solver.placement.placement import PlacedGang, place
from solver.placement.starts import JobStart, held_by
from solver.preemption.counting import says_it_all
from solver.preemption.eviction_candidates import EvictionCandidates
from solver.preemption.givers import charges_of
from solver.preemption.trial import PlacementRequest, PreemptionResult, leave
from solver.queueing.strict_queues import Lines
from solver.quota.allocation_table import Charges
from solver.quota.dominance import HostUse
from solver.quota.entitlement import QuotaHeadroom
from solver.quota.host_shares import sum_of, tasks_with_shapes
from solver.quota.users import HostLine, UserRoom
from solver.quota.vacated import Leaving, allows, lies_inside
from solver.quota.victims import Holder, Victim


@dataclass(slots=True)
class Attempts:
    """Tries preemptors on what a round has left. `room` is free now; `soon` once all that were asked to leave have left."""

    evictable: EvictionCandidates
    room: FreeCapacity
    soon: FreeCapacity
    headroom: QuotaHeadroom
    users: UserRoom
    lines: Lines

    def claim(self, request: PlacementRequest, room: FreeCapacity) -> PreemptionResult | None:
        """Take a place in one of the rooms, as it is, for a preemptor that may have what it asks for; None where it finds none."""
        candidate, option = request.candidate, request.option
        if room is self.soon and not says_it_all(request, room):
            # What waits for others to leave is not partitioned anew for it: only once it is placed that is known.
            found = self.attempt(request, ())
            if found:
                room.occupy(found.held)
            return found
        view = seen(room, candidate.against)
        placed = place(view, candidate.job.spec, option)
        if placed is None:
            return None
        found = PreemptionResult(request, (), placed)
        if view is not room:
            room.occupy(found.held)
        return found

    def attempt(self, request: PlacementRequest, victims: Collection[Victim]) -> PreemptionResult | None:
        """The preemptor served once these have left; None where it is not inside its share then, or finds no place."""
        victims, room = self.evictable.rules.with_all_parts(tuple(victims)), self.soon
        if not self.may_after(request, victims):
            return None
        draining = room.partitions.draining(self.room.partitions) if request.drains else None
        with room.trying() as before:
            if draining:
                room.partition_as(draining)
            for victim in victims:
                leave(room, victim.holder.job)
            narrowed = seen(room, request.candidate.against)
            placed = place(narrowed, request.candidate.job.spec, request.option)
            if placed is None:
                return None
            pledged = placed.pledged(before, narrowed)
            if not self._has_free_beyond_share(request, victims, placed, narrowed):
                return None
        if pledged and not (request.drains and all(self._may_become(*known) for known in pledged)):
            return None
        return PreemptionResult(request, victims, placed, pledged=pledged)

    def _has_free_beyond_share(
        self, request: PlacementRequest, victims: Collection[Victim], placed: PlacedGang, room: FreeCapacity
    ) -> bool:
        """Whether what a preemptor asks for beyond what its GPUs carry is free, though none leaves that has no GPUs.

        `room`: once all have left, and the preemptor has its place.
        """
        host, spec, option = self.evictable.rules.host.shares, request.candidate.job.spec, request.option
        alone = [
            victim.holder.job for victim in victims if not victim.holder.gpus and host.is_beside_gpus(victim.holder.job)
        ]
        if not alone or not host.asks_beyond(spec, option):
            return True
        left, rights = defaultdict[int, HostUse](HostUse), defaultdict[int, HostUse](HostUse)
        for job in alone:
            for task, shape in tasks_with_shapes(job):
                left[room.index[task.node]] = left[room.index[task.node]].plus(
                    HostUse(int(shape.cpu), int(shape.memory))
                )
        for task, shape in held_by(spec, option, placed.tasks):
            node = room.index[task.node]
            rights[node] = rights[node].plus(host.claim(shape, room.nodes[node].pool))
        return all(
            gone.cpu <= int(room.free_cpu[node]) + rights[node].cpu
            and gone.memory <= int(room.free_memory[node]) + rights[node].memory
            for node, gone in left.items()
            if node in rights
        )

    def _may_become(self, node: NodeName, device: DeviceId) -> bool:
        """Whether a GPU may be promised as what it is not: work may have to leave it, or none is there."""
        number, partitions = self.room.index[node], self.room.partitions
        return partitions.rules[number].drains or partitions.is_idle(number, device)

    def beside_of(self, holders: Collection[Holder]) -> Mapping[HostLine, int]:
        """What these hold of CPU and memory below each max of them."""
        caps, found = self.users.caps, dict[HostLine, int]()
        for holder in holders if caps.limits_host else ():
            beside = sum_of(shape for _, shape in tasks_with_shapes(holder.job))
            for line, amount in caps.host_charges(holder.job.spec.queue, holder.job.user, beside):
                found[line] = found.get(line, 0) + amount
        return found

    def may(self, request: PlacementRequest, leaving: Leaving, beside: Mapping[HostLine, int] | None = None) -> bool:
        """Whether the preemptor would be inside its share, and below all limits, once this is charged less."""
        return self.lies_inside(request, leaving) and self.is_below_limits(request, leaving, beside)

    def may_without(self, request: PlacementRequest, gone: Mask) -> bool:
        """The same once some holders have left, by number: what they hold of CPU and memory counts where that keeps it out."""
        allocations, beside = self.evictable.allocations, None
        job, charge = request.candidate.job, request.option.charge
        if self.users.caps.limits_host and self.users.blocking(job, charge):
            beside = self.beside_of([allocations.holders[number] for number in np.flatnonzero(gone).tolist()])
        return self.may(request, Charges(allocations, gone), beside)

    def may_after(self, request: PlacementRequest, victims: Collection[Victim]) -> bool:
        """The same of victims."""
        return self.may(request, charges_of(victims), self.beside_of([victim.holder for victim in victims]))

    def is_below_limits(
        self, request: PlacementRequest, leaving: Leaving, beside: Mapping[HostLine, int] | None = None
    ) -> bool:
        """Whether no limit would forbid what the preemptor asks for, once this is charged less; `beside`: CPU and memory."""
        candidate, option = request.candidate, request.option
        if self.users.blocking(candidate.job, option.charge, leaving=beside) or self.lines.blocker(candidate, option):
            return False
        return allows(self.headroom, candidate.job.spec.queue, option.charge, leaving)

    def lies_inside(self, request: PlacementRequest, leaving: Leaving) -> bool:
        """Whether the preemptor would be inside its share. Its own queue's work makes room there; that of others below a max."""
        queue, option = request.candidate.job.spec.queue, request.option
        if request.tier != "entitled" and request.candidate.is_inside_only(option):
            return False
        gone = leaving.get(queue, {})
        # Lower work stands behind it: `could_displace` has said so.
        return request.displaces or lies_inside(self.headroom, request.tier, queue, option.charge, gone)

    def could_displace(self, request: PlacementRequest, lower: Leaving) -> bool:
        """Whether the preemptor would be inside its share, if all of this lower work of its queue stood behind it."""
        queue, option = request.candidate.job.spec.queue, request.option
        is_inside = lies_inside(self.headroom, request.tier, queue, option.charge, lower.get(queue, {}))
        return is_inside and not request.candidate.is_inside_only(option)

    def frees_quota(self, victim: Victim, request: PlacementRequest) -> bool:
        """Whether a limit binds both: that of their own queue, or a max above them."""
        mine, theirs = request.candidate.job.spec.queue, victim.holder.job.spec.queue
        above, shares = set(self.evictable.rules.tree.path(theirs)), self.headroom.shares
        return mine == theirs or any(
            line in shares.max
            for gpu_type in victim.holder.charge
            for line in self.evictable.rules.tree.lines(mine, gpu_type)
            if line.queue in above
        )

    def hold(
        self,
        start: JobStart,
        pledged: Pledged = NOTHING,
        claimed: FreeCapacity | None = None,
        *,
        displaces: bool = False,
    ) -> None:
        """What a preemptor was given is nobody else's. `claimed`: where its place is taken already.

        `displaces`: its queue holds that as it holds what runs: it is inside before the lower work is.
        """
        for room in (self.room, self.soon):
            if room is not claimed:
                room.occupy(start.held)
            room.set_aside(pledged)
        if displaces:
            self.headroom = self.headroom.under(self.headroom.shares.beside([(start.queue, start.charge)]))
        else:
            self.headroom.take(start.queue, start.charge)
        self.users.take(start.candidate.job, start.charge, start.beside)
        self.lines.start(start.candidate)

    def charge_less(self, victims: Collection[Victim]) -> None:
        """These are asked to leave: their queues are charged for them no more."""
        if victims:
            self.headroom = self.headroom.under(self.headroom.shares.without(charges_of(victims).items()))
