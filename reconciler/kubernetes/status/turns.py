"""Whose turn it is to be written: changes that mean something first, the oldest before the others, so many in a pass."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from solver.model.quantities import Duration, Instant

K = TypeVar("K", bound=Hashable)
_NUMBERS = re.compile(r"\d[\d:.,TZ+-]*")


@lru_cache(maxsize=10_000)
def without_numbers(text: str) -> str:
    """A text whose numbers and times are all alike: two that differ in nothing else say the same."""
    return _NUMBERS.sub("#", text)


class PendingWrite(NamedTuple, Generic[K]):
    """Something that is not as it should be. `minor`: it differs in numbers and times only."""

    key: K
    minor: bool


class WriteSchedule(Generic[K]):
    """What was written when, and since when what waits has waited.

    A minor change is written `quiet` after the last write of its key at the soonest. Of the `budget` of a pass minor changes
    get a quarter where they would have none, so that figures are never older than the writes allow, however much happens.
    """

    def __init__(self, quiet: Duration, budget: int) -> None:
        self._quiet = quiet
        self._budget = budget
        self._since: dict[K, Instant] = {}
        self._written: dict[K, Instant] = {}

    def due(self, changes: Iterable[PendingWrite[K]], now: Instant) -> list[K]:
        """Whose turn it is; `changes` are all that there are."""
        listed = list(changes)
        self._since = {change.key: self._since.get(change.key, now) for change in listed}
        major = sorted((change.key for change in listed if not change.minor), key=self._age)
        minor = sorted(
            (change.key for change in listed if change.minor and self._rested(change.key, now)), key=self._age
        )
        kept = min(len(minor), self._budget // 4)
        chosen = major[: self._budget - kept]
        return [*chosen, *minor[: self._budget - len(chosen)]]

    def wrote(self, key: K, now: Instant) -> None:
        """It is as it should be."""
        self._written[key] = now
        self._since.pop(key, None)

    def keep(self, keys: Iterable[K]) -> None:
        """All others are gone for good."""
        left = set(keys)
        self._written = {key: at for key, at in self._written.items() if key in left}

    def _age(self, key: K) -> Instant:
        return self._since[key]

    def _rested(self, key: K, now: Instant) -> bool:
        return key not in self._written or now - self._written[key] >= self._quiet
