"""The fewest, least harmful victims that make room for a taker: the shortest prefix of those it may have, without the needless.

Where counting says whether the taker fits (solver/counting), it is only placed once its victims are known; else in every trial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from solver.attempts import Attempts, Charges
from solver.counting import Counting, says_it_all
from solver.freed import FreedNodes
from solver.givers import Givers, charges_of
from solver.rules.victims import Victim, gangs_first
from solver.trial import Trial, Wish

ALL_SPARED_MAX = 64
"""Victims of which each is tried without; of more, where each trial seeks a place, first those on nodes that it would not use."""


@dataclass(frozen=True, slots=True)
class Fewest:
    """Searches for the victims of one taker at a time."""

    attempts: Attempts

    def find(self, wish: Wish, givers: Givers) -> Trial | None:
        """The taker with its victims, of these givers; None where all of them do not suffice."""
        if not self.attempts.may(wish, givers.charges):
            return None
        if givers.freed is not None and says_it_all(wish, self.attempts.soon):
            return self._by_counting(wish, givers, givers.freed)
        useful = givers.in_order()
        found = self.attempts.attempt(wish, useful)
        return found and self._spare(self._shortest(found, useful)[1])

    def _by_counting(self, wish: Wish, givers: Givers, freed: FreedNodes) -> Trial | None:
        counting = Counting(wish, self.attempts.soon, self.attempts.freeing)
        if not counting.would_fit(freed):
            return None
        useful = givers.in_order()
        fitting = 0
        while not counting.fits:
            counting.leave(useful[fitting].holder)
            fitting += 1
        enough = self._suffice(wish, useful)
        for victim in useful[fitting:enough]:
            counting.leave(victim.holder)
        needed = self._needed(wish, useful[: max(fitting, enough)], counting)
        found = self.attempts.attempt(wish, needed)
        return found and self._without_the_useless(found)

    def _suffice(self, wish: Wish, useful: Sequence[Victim]) -> int:
        """How many of the first have to leave for the taker to be inside its share, wherever it goes; all of them are enough."""

        def suffices(count: int) -> bool:
            return self.attempts.may(wish, charges_of(self.attempts.law.with_all_parts(useful[:count])))

        return 0 if suffices(0) else _fewest_that(suffices, len(useful))

    def _needed(self, wish: Wish, first: Sequence[Victim], counting: Counting) -> list[Victim]:
        """Without who can be spared, the most harmful asked first."""
        needed = list[Victim]()
        for victim in reversed(first):
            counting.come_back(victim.holder)
            if not (counting.fits and self._stays_allowed(wish, victim, counting.charges)):
                counting.leave(victim.holder)
                needed.append(victim)
        return needed[::-1]

    def _stays_allowed(self, wish: Wish, without: Victim, leaving: Charges) -> bool:
        """Whether the taker may have what it asks for although this one stays."""
        keeps_back = bool(self.attempts.headroom.shares.lending.kept)
        if not keeps_back and not self.attempts.frees_quota(without, wish):
            return True
        return self.attempts.may(wish, leaving)

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
