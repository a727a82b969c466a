"""The fewest, least harmful victims that make room for a preemptor: the shortest prefix of those it may have, without the needless.

Where counting says whether the preemptor fits (preemption/counting), it is placed once its victims are known; else in every trial.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np

from solver.model.arrays import Ints, Mask
from solver.model.cluster import GpuType
from solver.model.parts import owner_of
from solver.placement.placement import ONE_GPU
from solver.policy.harm import MEANS
from solver.preemption.attempts import Attempts
from solver.preemption.counting import Counting, can_count, could_fit, says_it_all
from solver.preemption.givers import VictimSet
from solver.preemption.trial import PlacementRequest, PreemptionResult
from solver.quota.allocation_table import RemovedHolders
from solver.quota.users import beside_least
from solver.quota.victims import Victim, gangs_first

ALL_SPARED_MAX = 64
"""Victims of which each is tried without; of more, where each trial seeks a place, first those on nodes that it would not use."""


@dataclass(frozen=True, slots=True)
class Fewest:
    """Searches for the victims of one preemptor at a time."""

    attempts: Attempts

    def find(self, request: PlacementRequest, side: VictimSet) -> PreemptionResult | None:
        """The preemptor with its victims, of those on this side; None where all of them do not suffice."""
        attempts, evictable = self.attempts, self.attempts.evictable
        if self._lacks_gpus(request, side) or not attempts.may_without(request, side.leaving):
            return None
        useful = evictable.allocations.with_any(request.option.charge)
        places = side.places[useful[evictable.holders_of(side.places)]]
        if can_count(request):
            countable = evictable.countable[evictable.holders_of(places)]
            found = self._by_counting(request, places[countable])
            if says_it_all(request, attempts.soon) and not self._parts_matter(request, side.leaving & useful):
                return found
            if found:
                return self._with_parts(found, places, countable)
        matters = self._mattering(request)
        victims = [evictable.victim(place) for place in places[matters[evictable.holders_of(places)]].tolist()]
        found = attempts.attempt(request, victims) if victims else None
        return found and self._spare(self._shortest(found, victims)[1])

    def with_one_unit(self, found: PreemptionResult, side: VictimSet) -> PreemptionResult:
        """The same with one unit of a gang, where several leave and that is more than the preemptor gets, if one alone would do.

        The last units were looked at first. What leaves of another gang, or another job, stays as it is.
        """
        allocations, units = self.attempts.evictable.allocations, Counter(owner_of(v.name) for v in found.victims)
        gang = max(units, key=lambda name: units[name], default=None)
        gone, gained = sum(victim.holder.gpus for victim in found.victims), sum(found.request.option.charge.values())
        if gang is None or units[gang] < 2 or gone <= gained or any(victim.name == gang for victim in found.victims):
            return found
        others = [victim for victim in found.victims if owner_of(victim.name) != gang]
        of_gang = np.isin(self.attempts.evictable.holders_of(side.places), list(allocations.of_gang[gang])[1:])
        for place in side.places[of_gang].tolist():
            fewer = self.attempts.attempt(found.request, [*others, self.attempts.evictable.victim(place)])
            if fewer is not None:
                return fewer
        return found

    def _parts_matter(self, request: PlacementRequest, leaving: Mask) -> bool:
        """Whether it could make a difference that some of these who hold parts of GPUs leave, where none is partitioned anew."""
        evictable = self.attempts.evictable
        in_parts = leaving & ~evictable.countable
        if not in_parts.any():
            return False
        matter = ~evictable.on_mig_alone(self.attempts.room) | self._bearing_on_quota(request)
        return bool(matter[in_parts].any())

    def find_without_gpus(self, request: PlacementRequest, side: VictimSet) -> PreemptionResult | None:
        """The same for a preemptor without GPUs: only jobs make room that have none either, on nodes where it may be."""
        matters = self._mattering(request)[self.attempts.evictable.holders_of(side.places)]
        victims = [self.attempts.evictable.victim(place) for place in side.places[matters].tolist()]
        found = self.attempts.attempt(request, victims) if victims else None
        return found and self._spare(self._shortest(found, victims)[1])

    def _with_parts(self, found: PreemptionResult, places: Ints, countable: Mask) -> PreemptionResult:
        """What was found by counting, or less harmful victims some of which hold parts of GPUs."""
        worst = max((self._place_of(victim) for victim in found.victims), default=-1)
        less = places[places <= worst]
        if countable[: len(less)].all():
            return found
        evictable = self.attempts.evictable
        victims = [
            evictable.victim(place)
            for place in less[self._mattering(found.request)[evictable.holders_of(less)]].tolist()
        ]
        other = self.attempts.attempt(found.request, victims) if victims else None
        if other is None:
            return found
        other = self._spare(self._shortest(other, victims)[1])
        return min(found, other, key=lambda known: sorted((v.harm for v in known.victims), reverse=True))

    def _place_of(self, victim: Victim) -> int:
        evictable = self.attempts.evictable
        return evictable.place_of(evictable.allocations.number_of(victim.holder), MEANS.index(victim.means))

    def _lacks_gpus(self, request: PlacementRequest, side: VictimSet) -> bool:
        """Whether the preemptor asks for more whole GPUs of a type than there are anywhere once all of these have left."""
        groups = request.candidate.job.spec.task_groups
        asked = Counter[GpuType]()
        for group, shape, gpu_type in zip(groups, request.option.shapes, request.option.gpu_types, strict=True):
            if gpu_type is not None:
                asked[gpu_type] += shape.gpus * group.least
        soon = self.attempts.soon
        return any(
            gpus > soon.offer(ONE_GPU, gpu_type).total + side.gpus().get(gpu_type, 0)
            for gpu_type, gpus in asked.items()
        )

    def _by_counting(self, request: PlacementRequest, places: Ints) -> PreemptionResult | None:
        evictable, bears = self.attempts.evictable, self._bearing_on_quota(request)
        if could_fit(request, self.attempts.soon):
            places = places[bears[evictable.holders_of(places)]]
            needed = self._needed_for_quota(request, evictable.holders_of(places))
        else:
            needed = self._needed(request, evictable.holders_of(places), bears)
        if needed is None:
            return None
        numbers = evictable.holders_of(places).tolist()
        chosen = [place for place, number in zip(places.tolist(), numbers, strict=True) if number in needed]
        return self.attempts.attempt(request, [evictable.victim(place) for place in chosen])

    def _fewest_allowed(self, request: PlacementRequest, holders: Ints) -> int | None:
        """How many of the holders have to leave until the preemptor may have what it asks for; None where all do not suffice."""
        allocations = self.attempts.evictable.allocations

        def allowed(count: int) -> bool:
            return self.attempts.may_without(request, RemovedHolders(allocations, holders[:count]).gone)

        if self.attempts.may(request, {}):
            return 0
        return _fewest_that(allowed, len(holders)) if allowed(len(holders)) else None

    def _needed_for_quota(self, request: PlacementRequest, holders: Ints) -> set[int] | None:
        """Who has to leave where there is room enough: without who can be spared, the most harmful asked first."""
        allowed = self._fewest_allowed(request, holders)
        if allowed is None:
            return None
        needed, leaving = set[int](), RemovedHolders(self.attempts.evictable.allocations, holders[:allowed])
        for number in holders[:allowed][::-1].tolist():
            leaving.come_back(number)
            if not self.attempts.may_without(request, leaving.gone):
                leaving.leave_again(number)
                needed.add(number)
        return needed

    def _needed(self, request: PlacementRequest, holders: Ints, bears: Mask) -> set[int] | None:
        """The same where room has to be made, too. `bears`: by number, who bears on the quota."""
        attempts = self.attempts
        counting = Counting(request, attempts.soon, attempts.evictable)
        to_fit = counting.fewest(holders)
        allowed = None if to_fit is None else self._fewest_allowed(request, holders)
        if to_fit is None or allowed is None:
            return None
        first = holders[: max(to_fit, allowed)]
        needed, leaving = set[int](), RemovedHolders(attempts.evictable.allocations, first)
        counting.leave(leaving.gone)
        may_be_needed = bears | counting.helpful()
        for number in first[may_be_needed[first]][::-1].tolist():
            if not bears[number] and not counting.helps(number):
                continue
            counting.change(leaving.come_back(number), -1)
            if not counting.fits or (bears[number] and not attempts.may_without(request, leaving.gone)):
                counting.change(leaving.leave_again(number), 1)
                needed.add(number)
        return needed

    def _mattering(self, request: PlacementRequest) -> Mask:
        """By number, without whom it could be that the preemptor may not have what it asks for, or that it finds no place."""
        evictable, room = self.attempts.evictable, self.attempts.soon
        allocations, released = evictable.allocations, evictable.released(room)
        parts = zip(request.option.shapes, request.option.gpu_types, strict=True)
        nodes = np.logical_or.reduce([room.conceivable(*part) for part in parts])
        matters = self._bearing_on_quota(request) | ~evictable.countable
        matters[released.holder[nodes[released.node]]] = True
        # What a gang can't be without leaves with all of its parts.
        matters[allocations.base[matters]] = True
        return matters

    def _bearing_on_quota(self, request: PlacementRequest) -> Mask:
        """By number, on whom it could depend that the preemptor may have what it asks for; as `Attempts.frees_quota`."""
        allocations, shares = self.attempts.evictable.allocations, self.attempts.headroom.shares
        if shares.lending.kept:
            return np.ones(len(allocations.holders), dtype=bool)
        bears, queue = np.zeros(len(allocations.holders), dtype=bool), request.candidate.job.spec.queue
        bears[allocations.own[queue]] = True
        for number, gpu_type in enumerate(allocations.gpu_types):
            for line in shares.tree.lines(queue, gpu_type):
                if line in shares.max:
                    bears[allocations.below[line.queue]] |= allocations.has[allocations.below[line.queue], number]
        job = request.candidate.job
        for host_line, _ in self.attempts.users.caps.host_charges(queue, job.user, beside_least(job.spec)):
            bears[allocations.below[host_line.queue]] = True
        return bears

    def _shortest(
        self, found: PreemptionResult, rest: list[Victim], needed: Sequence[Victim] = ()
    ) -> tuple[list[Victim], PreemptionResult]:
        """The shortest prefix that suffices beside those that are needed; all of it does, as `found` says."""
        best = found

        def suffices(count: int) -> bool:
            nonlocal best
            fewer = self.attempts.attempt(found.request, [*rest[:count], *needed])
            best = fewer or best
            return fewer is not None

        return rest[: _fewest_that(suffices, len(rest))], best

    def _spare(self, found: PreemptionResult) -> PreemptionResult:
        """Fewer victims: the last of the shortest prefix that suffices is needed, then the last of the shortest beside it."""
        if len(found.victims) > ALL_SPARED_MAX:
            found = self._without_the_useless(found)
        rest, needed = list(found.victims), list[Victim]()
        while rest:
            shortest, found = self._shortest(found, rest, needed)
            needed, rest = needed + shortest[-1:], shortest[:-1]
        return self._without_the_useless(found)

    def _without_the_useless(self, found: PreemptionResult) -> PreemptionResult:
        """The same place without those who free neither room there nor quota."""
        attempts = self.attempts
        is_near = [found.uses_nodes_of(victim) for victim in found.victims]
        of_use = [
            near or attempts.frees_quota(victim, found.request)
            for victim, near in zip(found.victims, is_near, strict=True)
        ]
        for kept in (list(compress(found.victims, is_near)), list(compress(found.victims, of_use))):
            victims = attempts.evictable.rules.with_all_parts(kept)
            if attempts.may_after(found.request, victims):
                found = replace(found, victims=victims)
                break
        for victim in gangs_first(found.victims):
            if found.uses_nodes_of(victim):
                continue
            others = attempts.evictable.rules.with_all_parts([other for other in found.victims if other is not victim])
            if attempts.may_after(found.request, others):
                found = replace(found, victims=others)
        return found


def _fewest_that(suffices: Callable[[int], bool], most: int) -> int:
    """The least number that suffices, by halving; so many as `most` do, and whatever suffices does with more."""
    too_few = -1
    while too_few + 1 < most:
        middle = (too_few + most) // 2
        if suffices(middle):
            most = middle
        else:
            too_few = middle
    return most
