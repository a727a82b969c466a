"""The fewest, least harmful victims that make room for a taker: the shortest prefix of those it may have, without the needless.

Where counting says whether the taker fits (solver/counting), it is only placed once its victims are known; else in every trial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np

from solver.attempts import Attempts
from solver.counting import Counting, says_it_all
from solver.givers import Side, charges_of
from solver.rules.holdings import Ints
from solver.rules.victims import Victim, gangs_first
from solver.trial import Trial, Wish
from solver.world.masks import Mask

ALL_SPARED_MAX = 64
"""Victims of which each is tried without; of more, where each trial seeks a place, first those on nodes that it would not use."""


@dataclass(frozen=True, slots=True)
class Fewest:
    """Searches for the victims of one taker at a time."""

    attempts: Attempts

    def find(self, wish: Wish, side: Side) -> Trial | None:
        """The taker with its victims, of those on this side; None where all of them do not suffice."""
        attempts, lawful = self.attempts, self.attempts.lawful
        if not attempts.may(wish, side.charges):
            return None
        useful = lawful.holdings.with_any(wish.option.charge)
        places = side.places[useful[lawful.holders_of(side.places)]]
        countable = lawful.freeing(attempts.soon).countable
        if says_it_all(wish, attempts.soon) and countable[side.leaving & useful].all():
            return self._by_counting(wish, places)
        victims = [lawful.victim(place) for place in places.tolist()]
        found = attempts.attempt(wish, victims) if victims else None
        return found and self._spare(self._shortest(found, victims)[1])

    def _by_counting(self, wish: Wish, places: Ints) -> Trial | None:
        lawful, counting = self.attempts.lawful, Counting(wish, self.attempts.soon, self.attempts.lawful)
        holders = lawful.holders_of(places)
        to_fit = counting.fewest(holders)
        allowed = None if to_fit is None else self._fewest_allowed(wish, holders)
        if to_fit is None or allowed is None:
            return None
        first = max(to_fit, allowed)
        needed = set(self._needed(wish, holders[:first], counting))
        victims = [
            lawful.victim(place)
            for place, number in zip(places[:first].tolist(), holders[:first].tolist(), strict=True)
            if number in needed
        ]
        return self.attempts.attempt(wish, victims)

    def _fewest_allowed(self, wish: Wish, holders: Ints) -> int | None:
        """How many of the holders have to leave until the taker may have what it asks for; None where all do not suffice."""

        def allowed(count: int) -> bool:
            return self.attempts.may(wish, self.attempts.lawful.holdings.charged(holders[:count]))

        if allowed(0):
            return 0
        return _fewest_that(allowed, len(holders)) if allowed(len(holders)) else None

    def _needed(self, wish: Wish, first: Ints, counting: Counting) -> set[int]:
        """Without who can be spared, the most harmful asked first."""
        needed, bears = set[int](), self._bearing_on_quota(wish)
        counting.leave(first)
        may_be_needed = counting.helpful() | bears
        for number in first[may_be_needed[first]][::-1].tolist():
            bearing = bool(bears[number])
            if bearing or counting.helps(number):
                counting.come_back(number)
                if not counting.fits or (bearing and not self.attempts.may(wish, counting.charges)):
                    counting.leave_again(number)
                    needed.add(number)
        return needed

    def _bearing_on_quota(self, wish: Wish) -> Mask:
        """By number, on whom it could depend that the taker may have what it asks for; as `Attempts.frees_quota`."""
        holdings, shares = self.attempts.lawful.holdings, self.attempts.headroom.shares
        if shares.lending.kept:
            return np.ones(len(holdings.holders), dtype=bool)
        bears, queue = np.zeros(len(holdings.holders), dtype=bool), wish.candidate.job.spec.queue
        bears[holdings.own[queue]] = True
        for number, gpu_type in enumerate(holdings.gpu_types):
            for line in shares.tree.lines(queue, gpu_type):
                if line in shares.ceiling:
                    bears[holdings.below[line.queue]] |= holdings.has[holdings.below[line.queue], number]
        return bears

    def _shortest(self, found: Trial, rest: list[Victim], needed: Sequence[Victim] = ()) -> tuple[list[Victim], Trial]:
        """The shortest prefix that suffices beside those that are needed; all of it does, as `found` says."""
        best = found

        def suffices(count: int) -> bool:
            nonlocal best
            fewer = self.attempts.attempt(found.wish, [*rest[:count], *needed])
            best = fewer or best
            return fewer is not None

        return rest[: _fewest_that(suffices, len(rest))], best

    def _spare(self, found: Trial) -> Trial:
        """Fewer victims: the last of the shortest prefix that suffices is needed, then the last of the shortest beside it."""
        if len(found.victims) > ALL_SPARED_MAX:
            found = self._without_the_useless(found)
        rest, needed = list(found.victims), list[Victim]()
        while rest:
            shortest, found = self._shortest(found, rest, needed)
            needed, rest = needed + shortest[-1:], shortest[:-1]
        return self._without_the_useless(found)

    def _without_the_useless(self, found: Trial) -> Trial:
        """The same place without those who free neither room there nor quota."""
        attempts = self.attempts
        is_near = [found.uses_nodes_of(victim) for victim in found.victims]
        of_use = [
            near or attempts.frees_quota(victim, found.wish)
            for victim, near in zip(found.victims, is_near, strict=True)
        ]
        for kept in (list(compress(found.victims, is_near)), list(compress(found.victims, of_use))):
            victims = attempts.lawful.law.with_all_parts(kept)
            headroom = attempts.allowed(found.wish, charges_of(victims))
            if headroom:
                found = replace(found, victims=victims, headroom=headroom)
                break
        for victim in gangs_first(found.victims):
            if found.uses_nodes_of(victim):
                continue
            others = attempts.lawful.law.with_all_parts([other for other in found.victims if other is not victim])
            if headroom := attempts.allowed(found.wish, charges_of(others)):
                found = replace(found, victims=others, headroom=headroom)
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
