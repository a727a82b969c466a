"""The time that a cluster goes by: one that is told goes on as time passes, whoever sets a clock meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from reconciler.model.clock import Clock
from solver.model.document import Document
from solver.model.quantities import Instant

SLEW: Final = 0.01
"""By how much of what passes the time of the cluster may be corrected. A span is off by a hundredth of itself at most."""

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""Of Linux: another whenever the machine starts."""


class HeardClock:
    """Implements Clock: the wall clock of something that tells its time now and then, such as a database. It goes on in between.

    Until it was heard, it is the wall clock of this machine.
    """

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._heard: tuple[Instant, float] | None = None

    @property
    def is_heard(self) -> bool:
        """It was."""
        return self._heard is not None

    def hear(self, at: Instant, late_ms: float = 0.0) -> None:
        """What its time is now, or was up to so many milliseconds ago."""
        latest = at.after(int(late_ms))
        self._heard = (min(max(self.now(), at), latest) if self.is_heard else at), self._own.monotonic_s()

    def now(self) -> Instant:
        """What it would say."""
        if self._heard is None:
            return self._own.now()
        at, since_s = self._heard
        return at.after(round((self._own.monotonic_s() - since_s) * 1_000))

    def monotonic_s(self) -> float:
        """This machine's."""
        return self._own.monotonic_s()


class TimeReference(NamedTuple):
    """Something that goes on while a control plane is down: how long this machine has been up, or the clock of a database.

    `name`: which; "" where there is none. What was measured against another says nothing.
    """

    name: str
    now_ms: Callable[[], float]


def boot_of_this_machine(own: Clock, boot_id: Path = BOOT_ID) -> TimeReference:
    """How long it has been up. Where it can't be said which start of it this is, nothing goes on with that."""
    try:
        name = boot_id.read_text().strip()
    except OSError:
        name = ""
    return TimeReference(name, lambda: own.monotonic_s() * 1_000)


class KeptTime(Document, frozen=True):
    """How far the time of the cluster was ahead of a reference, in milliseconds."""

    reference: str
    ahead: int


class ClusterClock:
    """Implements Clock. It goes on by the monotonic clock, and never back. Where a wall clock says something else, it comes nearer
    to that by at most `SLEW` of what passes: so what a wall clock is set by ends nothing early, and keeps nothing waiting.

    It begins at `start`, or where that is None with the wall clock. Threads may share it.
    """

    def __init__(self, wall: Clock, start: Instant | None = None) -> None:
        self.wall = wall
        self._lock = Lock()
        self._looked_s = wall.monotonic_s()
        self._ahead_ms = (wall.now() if start is None else start) - self._looked_s * 1_000

    def begin(self, at: Instant) -> None:
        """It is this late, and nothing was counted by it yet."""
        with self._lock:
            self._looked_s = self.wall.monotonic_s()
            self._ahead_ms = at - self._looked_s * 1_000

    def now(self) -> Instant:
        """The time of the cluster."""
        return Instant(round(self._now_ms()))

    def monotonic_s(self) -> float:
        """The wall clock's machine's."""
        return self.wall.monotonic_s()

    def behind_ms(self) -> int:
        """How far the wall clock is ahead of it; negative: how far it is behind."""
        return self.wall.now() - self.now()

    def ahead_of(self, reference: TimeReference) -> KeptTime:
        """What a later process needs to go on with the same time."""
        return KeptTime(reference.name, round(self._now_ms() - reference.now_ms()))

    def _now_ms(self) -> float:
        with self._lock:
            looked_s = self.wall.monotonic_s()
            most_ms = max(0.0, looked_s - self._looked_s) * 1_000 * SLEW
            wanted_ms = self.wall.now() - looked_s * 1_000 - self._ahead_ms
            self._ahead_ms += min(most_ms, max(-most_ms, wanted_ms))
            self._looked_s = looked_s
            return looked_s * 1_000 + self._ahead_ms


def continued(kept: KeptTime | None, reference: TimeReference) -> Instant | None:
    """What time it is where an earlier process kept it against the same reference; None: nobody did."""
    if kept is None or not reference.name or kept.reference != reference.name:
        return None
    return Instant(round(reference.now_ms() + kept.ahead))
