"""The victims that are left for a preemptor in this round: those that the rules allow, without jobs that were asked already."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from solver.model.arrays import Ints, Mask
from solver.model.cluster import GpuType
from solver.model.workload import JobName, QueueName
from solver.policy.tree import QuotaLine
from solver.preemption.eviction_candidates import EvictionCandidates
from solver.preemption.trial import PlacementRequest
from solver.quota.allocation_table import Charges
from solver.quota.entitlement import Charge, QuotaHeadroom
from solver.quota.fairshare import to_spare
from solver.quota.victims import INSIDE, PreemptorJob, Victim


def charges_of(victims: Iterable[Victim]) -> dict[QueueName, dict[GpuType, int]]:
    """What is charged less, and to whom, once these have left."""
    gone: dict[QueueName, dict[GpuType, int]] = {}
    for victim in victims:
        holder = victim.holder
        add_charge(gone.setdefault(holder.job.spec.queue, {}), holder.charge, 1)
    return gone


def add_charge(charges: dict[GpuType, int], charge: Charge, sign: int) -> None:
    """Add a charge to others, or take it off."""
    for gpu_type, milli in charge.items():
        charges[gpu_type] = charges.get(gpu_type, 0) + sign * milli


class VictimSet(NamedTuple):
    """Some who may give way, by their places in the order of harm, ascending.

    `leaving`: they and what leaves with them, by number; `charges`: what these are charged; `gpus`: tells how many, at most, they
    leave behind of each type.
    """

    places: Ints
    leaving: Mask
    charges: Charges
    gpus: Callable[[], Mapping[GpuType, int]]


@dataclass(slots=True)
class Givers:
    """Of everybody who holds anything, who is left to be asked."""

    evictable: EvictionCandidates
    _stays: Mask = field(init=False)
    _lends: Mask = field(init=False)
    _gave: dict[JobName, tuple[set[JobName], int]] = field(default_factory=dict)
    _asked: int = 0
    _known: dict[object, tuple[int, VictimSet]] = field(default_factory=dict)
    _at_first: dict[object, Charges] = field(default_factory=dict)
    _fair: dict[tuple[QueueName, int], tuple[QuotaHeadroom, int, Mask]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stays = np.ones(len(self.evictable.allocations.holders), dtype=bool)
        self._lends = np.zeros(len(self.evictable.allocations.holders), dtype=bool)

    @property
    def stays(self) -> Mask:
        """By number, who may still be asked: nobody has asked it yet."""
        return self._stays

    def ask(self, names: Iterable[JobName]) -> None:
        """These jobs are not asked again, whatever part of them was."""
        for name in names:
            self._stays[list(self.evictable.allocations.of_gang.get(name, ()))] = False
            self._lends[list(self.evictable.allocations.of_gang.get(name, ()))] = False
            self._asked += 1

    def lend(self, gang: JobName, asked: Collection[JobName], depth: int) -> None:
        """A gang that was asked for these of its tasks lends others as well: those that are borrowed up to a depth of the tree.

        Where it was asked before, the depth of that time holds: they leave for the job that asked first.
        """
        allocations = self.evictable.allocations
        gave, depth = self._gave.setdefault(gang, (set[JobName](), depth))
        gave.update(asked)
        for number in allocations.of_gang[gang][1:]:
            lends = allocations.holders[number].job.name not in gave
            self._lends[number] = lends and self.evictable.is_borrowed(number, depth)

    def own(self, preemptor: PreemptorJob) -> VictimSet:
        """Those of the preemptor's own queue."""
        return self._left((self.evictable.likeness(preemptor),), lambda: self.evictable.of_its_own(preemptor))

    def own_at_most(self, preemptor: PreemptorJob) -> Charges:
        """What is charged to more of the preemptor's own queue than are left: to all that were when first asked for."""
        key = self.evictable.likeness(preemptor)
        if key not in self._at_first:
            self._at_first[key] = self.own(preemptor).charges
        return self._at_first[key]

    def everybody(self, preemptor: PreemptorJob, *, straddling: bool, fair: bool = False) -> VictimSet:
        """Those of all other queues, too; `fair`: that give something for fair shares."""

        def found() -> Ints:
            branches = self.evictable.rules.branches(preemptor)
            others = [
                self.evictable.beside(
                    branch,
                    overdue=preemptor.overdue,
                    past_budgets=preemptor.past_budgets,
                    straddling=straddling,
                    exceeds=preemptor.exceeds,
                    has_gpus=preemptor.has_gpus,
                    waited=preemptor.waited,
                    fair=fair,
                    value_below=preemptor.below,
                )
                for branch in branches
            ]
            # By its value it takes from others alone.
            own = [self.evictable.of_its_own(preemptor)] if preemptor.below is None else []
            return np.sort(np.concatenate([*own, *others]))

        return self._left((self.evictable.likeness(preemptor), straddling, fair), found)

    def own_inside_last(self, preemptor: PreemptorJob, *, straddling: bool) -> VictimSet:
        """Those of all other queues, and of the preemptor's own all that does not lie inside its queue's share."""

        def found() -> Ints:
            evictable, own = self.evictable, self.evictable.of_its_own(preemptor)
            depth = len(evictable.rules.tree.path(preemptor.job.spec.queue)) - 1
            inside = evictable.rules.standing[evictable.holders_of(own), depth] == INSIDE
            others = self.everybody(preemptor, straddling=straddling).places
            return np.setdiff1d(others, own[inside], assume_unique=True)

        return self._left((self.evictable.likeness(preemptor), straddling, "own inside last"), found)

    def loans(self, preemptor: PreemptorJob) -> VictimSet:
        """Those of all other queues that borrow; what protects them holds, however long the preemptor has waited."""

        def found() -> Ints:
            branches = self.evictable.rules.tree.path(preemptor.job.spec.queue)
            return np.sort(
                np.concatenate([self.evictable.beside(b, overdue=False, straddling=False) for b in branches])
            )

        return self._left((preemptor.job.spec.queue, "loans"), found)

    def fairly(self, side: VictimSet, request: PlacementRequest, headroom: QuotaHeadroom) -> VictimSet:
        """Of some who may give way those of the preemptor's own queue, and those whose leaving alone is not unfair to theirs."""
        numbers, queue = self.evictable.holders_of(side.places), request.candidate.job.spec.queue
        may: Mask = np.ones(len(numbers), dtype=bool)
        for column, gpu_type in enumerate(self.evictable.allocations.gpu_types):
            if gpu_type in request.option.charge:
                may &= self._fair_givers(headroom, queue, column)[numbers]
        return side._replace(places=side.places[may])

    def _fair_givers(self, headroom: QuotaHeadroom, queue: QueueName, column: int) -> Mask:
        """By number, whose leaving alone is not unfair to theirs, as far as one type of GPUs is concerned."""
        known = self._fair.get((queue, column))
        if known is None or known[0] is not headroom or known[1] != headroom.starts:
            held, gpu_type = self.evictable.allocations, self.evictable.allocations.gpu_types[column]
            fair: Mask = ~held.has[:, column]
            fair[held.own[queue]] = True
            for giver, spare in to_spare(headroom, queue, gpu_type):
                fair[held.below[giver]] |= held.charge[held.below[giver], column] <= spare
            for line in self._at_share(headroom, queue, gpu_type):
                fair[held.below[line.queue]] &= ~held.has[held.below[line.queue], column]
            fair |= self.evictable.rules.host.alone
            known = self._fair[queue, column] = headroom, headroom.starts, fair
        return known[2]

    def _at_share(self, headroom: QuotaHeadroom, queue: QueueName, gpu_type: GpuType) -> Iterator[QuotaLine]:
        """The lines beside a queue's path that hold no more than their fair share: they give nothing for another's."""
        tree = self.evictable.rules.tree
        path = tree.path(queue)
        for line, _ in tree.upwards(gpu_type):
            used = headroom.shares.used.get(line, 0) + headroom.taken.get(line, 0)
            if line.queue not in path and used <= headroom.shares.fair.get(line, 0):
                yield line

    def above_shares(self, side: VictimSet, request: PlacementRequest, headroom: QuotaHeadroom) -> VictimSet:
        """Of some who may give way as many as their queues hold above their fair shares, the least harmful first; for a higher
        value any of queues that take nothing back for fair shares.

        So who is at its share is passed over, and no search ends with it (DESIGN section 5, amendment 6).
        """
        held, tree = self.evictable.allocations, self.evictable.rules.tree
        numbers, path = self.evictable.holders_of(side.places), tree.path(request.candidate.job.spec.queue)
        kept: Mask = np.ones(len(numbers), dtype=bool)
        for place, gpu_type in enumerate(held.gpu_types):
            charge = held.charge[numbers, place]
            if gpu_type not in request.option.charge or not charge.any():
                continue
            # What each queue gives is bounded before what the queue above it gives.
            held_below = np.concatenate([[0], np.cumsum(np.bincount(numbers, charge, minlength=len(held.holders)))])
            for line, _ in tree.upwards(gpu_type):
                below = held.below[line.queue]
                may_leave = held_below[below.stop] - held_below[below.start]
                if not may_leave or line.queue in path:
                    continue
                if request.tier == "value" and line.queue in self.evictable.rules.for_guarantees:
                    continue
                used = headroom.shares.used.get(line, 0) + headroom.taken.get(line, 0)
                above = used - headroom.shares.fair.get(line, 0)
                if may_leave > above:
                    there = np.flatnonzero((numbers >= below.start) & (numbers < below.stop) & kept & (charge > 0))
                    kept[there] = _first_within(charge[there], above)
        return side._replace(places=side.places[kept])

    def with_gpus(self, side: VictimSet) -> VictimSet:
        """Of some who may give way those that have GPUs."""
        return side._replace(
            places=side.places[~self.evictable.rules.host.alone[self.evictable.holders_of(side.places)]]
        )

    def no_larger(self, side: VictimSet, most: int) -> VictimSet:
        """Of some who may give way those with whom no more leaves than so much, in milli-GPU."""
        return side._replace(
            places=side.places[self.evictable.allocations.leave[self.evictable.holders_of(side.places)] <= most]
        )

    def _left(self, key: object, found: Callable[[], Ints]) -> VictimSet:
        known = self._known.get(key)
        if known is None or known[0] < self._asked:
            places = found() if known is None else known[1].places
            numbers = self.evictable.holders_of(places)
            left = self._stays[numbers] | (self._lends[numbers] & self.evictable.is_reclaim(places))
            if known and left.all():
                # None of these was asked.
                self._known[key] = self._asked, known[1]
                return known[1]
            leaving = np.zeros(len(self._stays), dtype=bool)
            leaving[numbers[left]] = True
            leaving = self.evictable.allocations.with_all_parts(leaving)
            charges, gpus = Charges(self.evictable.allocations, leaving), partial(self.evictable.gpus_of, leaving)
            known = self._known[key] = self._asked, VictimSet(places[left], leaving, charges, cache(gpus))
        return known[1]


def _first_within(charge: Ints, most: int) -> Mask:
    """Of charges in their order those that together are no more than `most`; what is too large by itself is passed over."""
    fits = charge <= most
    within: Mask = fits & (np.cumsum(np.where(fits, charge, 0)) <= most)
    return within
