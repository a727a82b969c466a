"""How often whoever runs tasks looks at what they do, where somebody wants to know."""

from __future__ import annotations

from solver.model.quantities import Duration

LOOK_EVERY_MS = 200, 30_000
LOOKS_PER_WATCH = 20
"""Whoever watches what tasks do looks so often within the time that matters, with no shorter and no longer rests than these."""


def look_every(watch: Duration) -> Duration:
    """How long to rest between two looks at what a task does: so much later than it should a limit may be noticed."""
    shortest, longest = LOOK_EVERY_MS
    return Duration(max(shortest, min(longest, watch // LOOKS_PER_WATCH)))
