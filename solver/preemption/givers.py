"""The victims that are left for a preemptor in this round: those that the rules allow, without jobs that were asked already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from solver.model.arrays import Ints, Mask
from solver.model.cluster import GpuType
from solver.model.workload import JobName, QueueName
from solver.preemption.eviction_candidates import EvictionCandidates
from solver.preemption.trial import PlacementRequest
from solver.quota.allocation_table import Charges
from solver.quota.entitlement import Charge, QuotaHeadroom
from solver.quota.fairshare import to_spare
from solver.quota.victims import PreemptorJob, Victim


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

    `leaving`: they and what leaves with them, by number; `charges`: what these are charged; `gpus`: how many, at most, they leave
    behind of each type.
    """

    places: Ints
    leaving: Mask
    charges: Charges
    gpus: Mapping[GpuType, int]


@dataclass(slots=True)
class Givers:
    """Of everybody who holds anything, who is left to be asked."""

    evictable: EvictionCandidates
    _stays: Mask = field(init=False)
    _asked: int = 0
    _known: dict[object, tuple[int, VictimSet]] = field(default_factory=dict)
    _at_first: dict[object, Charges] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stays = np.ones(len(self.evictable.allocations.holders), dtype=bool)

    @property
    def stays(self) -> Mask:
        """By number, who may still be asked: nobody has asked it yet."""
        return self._stays

    def ask(self, names: Iterable[JobName]) -> None:
        """These jobs are not asked again, whatever part of them was."""
        for name in names:
            self._stays[list(self.evictable.allocations.of_gang.get(name, ()))] = False
            self._asked += 1

    def own(self, preemptor: PreemptorJob) -> VictimSet:
        """Those of the preemptor's own queue."""
        return self._left((self.evictable.likeness(preemptor),), lambda: self.evictable.of_its_own(preemptor))

    def own_at_most(self, preemptor: PreemptorJob) -> Charges:
        """What is charged to more of the preemptor's own queue than are left: to all that were when first asked for."""
        key = self.evictable.likeness(preemptor)
        if key not in self._at_first:
            self._at_first[key] = self.own(preemptor).charges
        return self._at_first[key]

    def everybody(self, preemptor: PreemptorJob, *, straddling: bool) -> VictimSet:
        """Those of all other queues, too."""

        def found() -> Ints:
            branches = self.evictable.rules.tree.path(preemptor.job.spec.queue)
            others = [
                self.evictable.beside(
                    branch,
                    overdue=preemptor.overdue,
                    straddling=straddling,
                    exceeds=preemptor.exceeds,
                    has_gpus=preemptor.has_gpus,
                )
                for branch in branches
            ]
            return np.sort(np.concatenate([self.evictable.of_its_own(preemptor), *others]))

        return self._left((self.evictable.likeness(preemptor), straddling), found)

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
        held, queue = self.evictable.allocations, request.candidate.job.spec.queue
        may: Mask = np.ones(len(held.holders), dtype=bool)
        for number, gpu_type in enumerate(held.gpu_types):
            if gpu_type in request.option.charge:
                fair = ~held.has[:, number]
                fair[held.own[queue]] = True
                for giver, spare in to_spare(headroom, queue, gpu_type):
                    fair[held.below[giver]] |= held.charge[held.below[giver], number] <= spare
                may &= fair | self.evictable.rules.host.alone
        return side._replace(places=side.places[may[self.evictable.holders_of(side.places)]])

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
            left = self._stays[numbers]
            if known and left.all():
                # None of these was asked.
                self._known[key] = self._asked, known[1]
                return known[1]
            leaving = np.zeros(len(self._stays), dtype=bool)
            leaving[numbers[left]] = True
            leaving = self.evictable.allocations.with_all_parts(leaving)
            charges, gpus = Charges(self.evictable.allocations, leaving), self.evictable.gpus_of(leaving)
            known = self._known[key] = self._asked, VictimSet(places[left], leaving, charges, gpus)
        return known[1]
