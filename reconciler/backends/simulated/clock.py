"""A clock that moves only when told to."""

from __future__ import annotations

from solver.model.quantities import Instant

SIMULATION_START = Instant.parse("2026-01-01T00:00:00Z")


class VirtualClock:
    """Implements Clock. Several parts share one, and whoever drives the simulation advances it."""

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
