"""What is known of GPUs' use in the past, by minutes, hours and days.

Minutes are what agents tell; hours and days are made of them, and made anew whenever a minute comes that was not there. So a minute
that is told twice, late, or by two samplers changes no sum. The conformance suite is tests/contracts/test_gpu_use.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from reconciler.model.gpu_use import MINUTE, NodeMinute, UseFigures
from reconciler.protocols.backend import Epoch
from solver.model.cluster import DeviceId, NodeName
from solver.model.document import Document
from solver.model.quantities import Duration, Instant

UseStep = Literal["minute", "hour", "day"]
"""Hours and days of UTC."""

STEPS: Final[Mapping[UseStep, Duration]] = {
    "minute": MINUTE,
    "hour": Duration(3_600_000),
    "day": Duration(86_400_000),
}


class UsePoint(Document, frozen=True):
    """A stretch that begins at `start`."""

    start: Instant
    use: UseFigures


class GpuPast(Document, frozen=True):
    """One board in one place, by time; a stretch in which nothing is known of it is left out."""

    node: NodeName
    gpu: DeviceId
    uuid: str
    points: tuple[UsePoint, ...]


PlaceInUse = tuple[NodeName, DeviceId]
HALF_PERCENTS: Final = 200
"""Of a minute in which a GPU was active all the time."""


class UseStretch(NamedTuple):
    """From a moment until another."""

    start: Instant
    end: Instant


class ActiveTime(NamedTuple):
    """How active a GPU was in a stretch: how many `minutes` of it are known, and the sum of their means, in half per cents.

    Both are whole numbers, so that sums are exact. `minutes` is no more than there are in the stretch.
    """

    minutes: int
    half_percents: int


class GpuUses(Protocol):
    """Use in the past. Threads may share it."""

    def keep(self, epoch: Epoch, minutes: Mapping[NodeName, Sequence[NodeMinute]]) -> None:
        """Keep what agents told, once, in one transaction. Raises StaleEpochError."""

    def of_nodes(self, nodes: Collection[NodeName], step: UseStep, start: Instant, end: Instant) -> tuple[GpuPast, ...]:
        """What began in a window (start <= begin < end), by node and GPU."""

    def active(
        self, step: UseStep, stretches: Mapping[NodeName, Collection[UseStretch]]
    ) -> Mapping[PlaceInUse, Mapping[UseStretch, ActiveTime]]:
        """How active the GPUs of nodes were in these stretches, of whole steps; one of which nothing is known is left out.

        Of two boards that were in one place in the same step both count, as far as that is no more than there can be.
        """

    def prune(self, epoch: Epoch, step: UseStep, before: Instant, limit: int = 500) -> int:
        """Delete what was over before an instant, at most `limit` rows; returns how many. Raises StaleEpochError."""
