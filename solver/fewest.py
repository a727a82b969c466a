"""The fewest, least harmful victims that make room for a taker: the shortest prefix of those it may have, without the needless.

Where counting says whether the taker fits (solver/counting), it is only placed once its victims are known; else in every trial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from solver.attempts import Attempts
from solver.counting import Counting, says_it_all, would_fit
from solver.givers import Givers, charges_of, in_order
from solver.rules.victims import Victim, gangs_first
from solver.trial import Trial, Wish

ALL_SPARED_MAX = 64
"""Victims of which each is tried without; of more, where each trial seeks a place, first those on nodes that it would not use."""


@dataclass(frozen=True, slots=True)
class Fewest:
    """Searches for the victims of one taker at a time."""

    attempts: Attempts

    def find(self, wish: Wish, sides: Sequence[Givers]) -> Trial | None:
        """The taker with its victims, of these givers; None where all of them do not suffice."""
        charges = {queue: charge for side in sides for queue, charge in side.charges.items()}
        if not self.attempts.may(wish, charges):
            return None
        gpu_types = wish.option.charge.keys()
        if says_it_all(wish, self.attempts.soon) and all(side.divided.isdisjoint(gpu_types) for side in sides):
            return self._by_counting(wish, sides)
        useful = in_order(sides, gpu_types)
        found = self.attempts.attempt(wish, useful) if useful else None
        return found and self._spare(self._shortest(found, useful)[1])

    def _by_counting(self, wish: Wish, sides: Sequence[Givers]) -> Trial | None:
        if not would_fit(wish, self.attempts.soon, [side.freed for side in sides]):
            return None
        counting = Counting(wish, self.attempts.soon, self.attempts.freeing)
        leaving, allowed = list[Victim](), self.attempts.may(wish, {})
        for victim in in_order(sides, wish.option.charge):
            if counting.fits and allowed:
                break
            counting.leave(victim.holder)
            leaving.append(victim)
            allowed = allowed or (self._bears_on_quota(victim, wish) and self.attempts.may(wish, counting.charges))
        return self.attempts.attempt(wish, self._needed(wish, leaving, counting))

    def _needed(self, wish: Wish, first: Sequence[Victim], counting: Counting) -> list[Victim]:
        """Without who can be spared, the most harmful asked first."""
        needed = list[Victim]()
        for victim in reversed(first):
            bears_on_quota = self._bears_on_quota(victim, wish)
            if not bears_on_quota and not counting.helps(victim.holder):
                continue
            counting.come_back(victim.holder)
            allowed = not bears_on_quota or self.attempts.may(wish, counting.charges)
            if not (counting.fits and allowed):
                counting.leave(victim.holder)
                needed.append(victim)
        return needed[::-1]

    def _bears_on_quota(self, victim: Victim, wish: Wish) -> bool:
        """Whether it could depend on this one that the taker may have what it asks for."""
        return bool(self.attempts.headroom.shares.lending.kept) or self.attempts.frees_quota(victim, wish)

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
            victims = attempts.law.with_all_parts(kept)
            headroom = attempts.allowed(found.wish, charges_of(victims))
            if headroom:
                found = replace(found, victims=victims, headroom=headroom)
                break
        for victim in gangs_first(found.victims):
            if found.uses_nodes_of(victim):
                continue
            others = attempts.law.with_all_parts([other for other in found.victims if other is not victim])
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
