"""The seam for time: nothing in the control plane reads a clock except through this."""

from __future__ import annotations

import time
from typing import Protocol

from solver.model.quantities import Instant


class Clock(Protocol):
    """What time is it. Simulations bring their own."""

    def now(self) -> Instant:
        """The wall clock, in UTC; may jump."""

    def monotonic_s(self) -> float:
        """Seconds since some fixed point; never goes back. For measuring, not for dates."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> Instant:
        """The wall clock, in whole milliseconds."""
        return Instant(time.time_ns() // 1_000_000)

    def monotonic_s(self) -> float:
        """The machine's monotonic clock."""
        return time.monotonic()
