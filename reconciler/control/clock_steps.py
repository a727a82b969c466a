"""Notices when the wall clock is set."""

from __future__ import annotations

from typing import Final

from reconciler.model.clock import Clock

STEP_MIN_S: Final = 1.0
"""What the wall clock may be corrected by between two passes, and nobody needs to know."""


class ClockSteps:
    """By how much the wall clock was set, as against the monotonic one, which nobody can set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now, self._monotonic_s = clock.now(), clock.monotonic_s()

    def look_s(self) -> float:
        """How far it was set since the last look, forward or (negative) back; 0: no more than clocks are corrected by."""
        now, monotonic_s = self._clock.now(), self._clock.monotonic_s()
        step_s = (now - self._now) / 1_000 - (monotonic_s - self._monotonic_s)
        self._now, self._monotonic_s = now, monotonic_s
        return step_s if abs(step_s) >= STEP_MIN_S else 0.0
