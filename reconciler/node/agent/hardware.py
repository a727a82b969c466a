"""What an agent tells of its node's hardware: asked now and then, since a driver takes its time, and told when it is news."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from reconciler.model.facts import NodeFacts
from solver.model.quantities import Duration, Instant

READ_EVERY: Final = Duration(5_000)

Read = Callable[[Instant], NodeFacts | None]
"""Ask the hardware how it is at an instant; None: there is nothing to ask."""


class Hardware:
    """`read` is asked at most every READ_EVERY, by one thread at a time."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._read_at: Instant | None = None
        self._known: NodeFacts | None = None
        self._told: NodeFacts | None = None

    def news(self, now: Instant, *, whole: bool) -> tuple[NodeFacts, ...]:
        """What differs from what was told last; `whole`: nothing was told yet to the one that listens now."""
        # Of a node that has just joined there is nothing to ask until it is told which GPUs are its own: that is a moment later.
        if self._known is None or self._read_at is None or not 0 <= now - self._read_at < READ_EVERY:
            self._known, self._read_at = self._read(now), now
        if self._known is None or (
            not whole and self._told is not None and _steady(self._told) == _steady(self._known)
        ):
            return ()
        self._told = self._known
        return (self._known,)


def no_hardware(_: Instant) -> None:
    """Nothing is known of any."""


def _steady(facts: NodeFacts) -> NodeFacts:
    """Without what changes all the time and is no news: it is not judged by."""
    gpus = (msgspec.structs.replace(gpu, temperature_c=None, processes=(), memory_used=None) for gpu in facts.gpus)
    return msgspec.structs.replace(facts, at=Instant(0), gpus=tuple(gpus))
