"""Which Events are written for what happened: the same again is counted in one, and no object gets a flood of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from reconciler.kubernetes.status.occurrences import WAITING, Occurrence, Regarding
from reconciler.kubernetes.status.turns import without_numbers
from solver.model.quantities import Duration, Instant

OVER_AFTER: Final = Duration(360_000)
"""What happens again later than this after the last time is a new Event: as client-go does it (tools/events, finishTime)."""
COUNTED_EVERY: Final = Duration(60_000)
"""How often the count of one Event is written, at most."""
BURST: Final = 10
REFILL: Final = Duration(60_000)
"""New Events of one object: so many at once, and one more for each of these times."""
LATE: Final = Duration(1_800_000)
"""What could not be written for so long is not news any more: it is dropped, and counted."""
OPEN_MAX: Final = 20_000
"""Series that are remembered; what is new beyond is dropped, and counted."""

Key = tuple[Regarding, str, str, str, bool, Regarding | None]


@dataclass(slots=True)
class Series:
    """One Event. `name`: the same however often it is sent. `written`: how many times the server knows of."""

    occurrence: Occurrence
    name: str
    first: Instant
    last: Instant
    count: int = 1
    written: int = 0
    written_at: Instant | None = None

    def is_due(self, now: Instant) -> bool:
        """It is not there yet, or its count is old."""
        if self.written_at is None:
            return True
        return self.count > self.written and now - self.written_at >= COUNTED_EVERY

    def is_over(self, now: Instant) -> bool:
        """Nothing more is to be written for it."""
        return now - self.last > (LATE if self.count > self.written else OVER_AFTER)

    def wrote(self, count: int, now: Instant) -> None:
        """The server knows of so many."""
        self.written, self.written_at = count, now


class _Bucket(NamedTuple):
    left: float
    at: Instant


@dataclass(slots=True)
class Book:
    """What happened lately. `dropped`: what was too much, since the beginning."""

    dropped: int = 0
    _open: dict[Key, Series] = field(default_factory=dict)
    _buckets: dict[Regarding, _Bucket] = field(default_factory=dict)

    def happened(self, occurrences: Iterable[Occurrence], now: Instant) -> None:
        """Each counts for the Event that says the same, or opens one; where its object has had too many lately it is dropped."""
        for occurrence in occurrences:
            key = _key(occurrence)
            known = self._open.get(key)
            if known and now - known.last <= OVER_AFTER:
                known.count, known.last = known.count + 1, now
            elif len(self._open) < OPEN_MAX and self._takes(occurrence.regarding, now):
                self._open[key] = Series(occurrence, _name(key, now), now, now)
            else:
                self.dropped += 1

    def due(self, now: Instant, budget: int) -> list[Series]:
        """What is to be written now: what happened before what only waits, the oldest first. What is over is forgotten."""
        over = [key for key, known in self._open.items() if known.is_over(now)]
        self.dropped += sum(not self._open.pop(key).written for key in over)
        full = {regarding for regarding, bucket in self._buckets.items() if _refilled(bucket, now) >= BURST}
        self._buckets = {regarding: bucket for regarding, bucket in self._buckets.items() if regarding not in full}
        due = [known for known in self._open.values() if known.is_due(now)]
        return sorted(due, key=lambda known: (known.occurrence.reason == WAITING, known.first))[:budget]

    @property
    def left(self) -> int:
        """Events that the server does not know as they are, be it their turn or not."""
        return sum(known.count > known.written for known in self._open.values())

    def lost(self, series: Series) -> None:
        """The server has it no more: what happens from now on is a new Event."""
        self._open.pop(_key(series.occurrence), None)

    def _takes(self, regarding: Regarding, now: Instant) -> bool:
        left = _refilled(self._buckets.get(regarding, _Bucket(BURST, now)), now)
        if left < 1:
            return False
        self._buckets[regarding] = _Bucket(left - 1, now)
        return True


def _refilled(bucket: _Bucket, now: Instant) -> float:
    return min(BURST, bucket.left + max(0, now - bucket.at) / REFILL)


def _key(occurrence: Occurrence) -> Key:
    regarding, reason, action, note, warning, related = occurrence
    return (regarding, reason, action, without_numbers(note), warning, related)


def _name(key: Key, now: Instant) -> str:
    """Names are of 253 characters at most, and a pod's may be as long."""
    said = hashlib.sha256(repr((key, int(now))).encode()).hexdigest()
    return f"{key[0].name[:200]}.{said[:16]}"


class OnChange:
    """What is so is told when it begins to be so, or says something else; not each time it is looked at."""

    def __init__(self) -> None:
        self._known: frozenset[Key] = frozenset()

    def fresh(self, occurrences: Iterable[Occurrence]) -> list[Occurrence]:
        """Those that were not so the last time; `occurrences` are all that are so now."""
        now = {_key(one): one for one in occurrences}
        fresh = [one for key, one in now.items() if key not in self._known]
        self._known = frozenset(now)
        return fresh
