"""What this machine tells of its hardware: asked now and then, since it takes a driver some time to answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from reconciler.backends.baremetal.facts import NodeFacts
from solver.world.quantities import Duration, Instant

READ_EVERY: Final = Duration(5_000)

Read = Callable[[Instant], Iterable[NodeFacts]]
"""Ask the hardware of each node, as it is at an instant."""


class Hardware:
    """`read` is asked at most every READ_EVERY, by one thread at a time."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._told: tuple[NodeFacts, ...] = ()
        self._read_at: Instant | None = None

    def told(self, now: Instant) -> tuple[NodeFacts, ...]:
        """What it told last."""
        if self._read_at is None or not 0 <= now - self._read_at < READ_EVERY:
            self._told, self._read_at = tuple(self._read(now)), now
        return self._told


SILENT: Final = Hardware(lambda _: ())
"""Nothing is known of any hardware."""


def steady(facts: NodeFacts) -> NodeFacts:
    """Without what changes all the time and is no news: nobody judges by it."""
    gpus = (msgspec.structs.replace(gpu, temperature_c=None, processes=(), memory_used=None) for gpu in facts.gpus)
    return msgspec.structs.replace(facts, at=Instant(0), gpus=tuple(gpus))
