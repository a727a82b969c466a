"""A job that waits inside its guarantee, and finds no place on what is free: which jobs leave for it, and what starts before.

As the entitled tier of a complete round has it. There, sub-layer by sub-layer, what starts inside guarantees on what is free keeps
its place, and then others leave for those that found none, in their order; but first for those that would wait though later ones
of their queue start, which together get fewer GPUs. Here one job is served at a time, where all is known that comes before it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from solver.capacity.free_capacity import FreeCapacity
from solver.model.workload import JobName
from solver.narrow.narrow_preemption import NarrowPreemption
from solver.placement.starts import JobStart
from solver.preemption.new_nomination import NewNomination
from solver.queueing.demand import StartCandidate, Turn
from solver.quota.entitlement import QuotaHeadroom, Shares
from solver.round.tiers import inside_tier, overtaken, shares_after


class EntitledClaim(NamedTuple):
    """A job that others might leave for inside its guarantee, with its turn."""

    turn: Turn
    candidate: StartCandidate


class EntitledAnswer(NamedTuple):
    """What starts before a job is served, and what that is promised; what is left then. `asked`: jobs that are not to be asked."""

    starts: tuple[JobStart, ...]
    promise: NewNomination
    room: FreeCapacity
    soon: FreeCapacity
    shares: Shares
    asked: Collection[JobName]


@dataclass(frozen=True, slots=True)
class EntitledTier:
    """What is left to give. `asked`: jobs that are not to be asked, beside those that `preemption` knows."""

    preemption: NarrowPreemption
    room: FreeCapacity
    soon: FreeCapacity
    shares: Shares
    asked: Collection[JobName]

    def serve(
        self,
        claim: EntitledClaim,
        alike: Sequence[StartCandidate],
        claiming: Collection[int],
        starts: Sequence[JobStart],
    ) -> EntitledAnswer | None:
        """Have others leave for the first job that a complete round would serve; None where it is not known which, or for whom.

        `claim`: the first in the order; `alike`: in their order, jobs of its sub-layer of its own and all other likenesses that are
        `claiming`, and those that start. `starts`: all that start, in the order in which they were served.
        """
        layer = claim.candidate.sub_layer
        inside = {
            start.candidate.job.name: start
            for start in inside_tier(starts, "entitled", QuotaHeadroom(self.shares))
            if start.candidate.sub_layer <= layer
        }
        if any(start.candidate.can_grow for start in inside.values()):
            return None
        ahead = [known for known in overtaken(alike, inside) if known.likeness in claiming]
        served = [*(start.candidate for start in starts), *alike]
        # What protects a job holds here, however long a guarantee has waited.
        staying = self.preemption.protected.union(self.asked)
        making = self.preemption.preemptor(served, self.room, self.soon, self.shares, staying, moves=True)
        kept = [start for start in inside.values() if not ahead or start.candidate.sub_layer < layer]
        if not all(making.keep(start) for start in kept):
            return None
        making.serve(ahead[0] if ahead else claim.candidate, "entitled")
        if len(making.promises) != 1 or len(making.starts) != len(kept):
            return None
        (promise,) = making.promises
        if not self.preemption.is_plain(making, promise):
            return None
        asked = {*self.asked, *self.preemption.concerned({victim.name for victim in promise.victims})}
        left = making.attempts.room, making.attempts.soon, shares_after(making)
        return EntitledAnswer(tuple(kept), promise, *left, asked)
