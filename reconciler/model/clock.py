"""The seam for time: nothing in the control plane reads a clock except through this. And a clock that moves only when told to."""

from __future__ import annotations

import time
from typing import Final, Protocol

from solver.model.quantities import Instant


class Clock(Protocol):
    """What time is it. Simulations bring their own."""

    def now(self) -> Instant:
        """The wall clock, in UTC; may jump."""

    def monotonic_s(self) -> float:
        """Seconds since some fixed point; never goes back. For measuring, not for dates."""


_BOOT_TIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)  # of Linux


class SystemClock:
    """The machine's clock."""

    def now(self) -> Instant:
        """The wall clock, in whole milliseconds."""
        return Instant(time.time_ns() // 1_000_000)

    def monotonic_s(self) -> float:
        """How long the machine has been up, also while it was suspended, if it can say so."""
        return time.monotonic() if _BOOT_TIME is None else time.clock_gettime(_BOOT_TIME)


SIMULATION_START = Instant.parse("2026-01-01T00:00:00Z")


class VirtualClock:
    """Implements Clock. Several parts share one, and the driver of the simulation advances it."""

    def __init__(self, start: Instant = SIMULATION_START) -> None:
        self._start = self._now = start

    def now(self) -> Instant:
        """The virtual wall clock."""
        return self._now

    def monotonic_s(self) -> float:
        """Virtual seconds since the simulation began."""
        return (self._now - self._start) / 1_000

    def advance(self, span: int) -> None:
        """Let `span` milliseconds pass."""
        if span < 0:
            raise ValueError(f"time can't pass by {span} ms; advance by 0 or more")
        self._now = self._now.after(span)
