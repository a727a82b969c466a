"""The part of the Ledger's protocol that says what GPUs were asked to be partitioned into."""

from __future__ import annotations

from typing import Final, Protocol

from reconciler.protocols.backend import Epoch
from solver.model.cluster import DeviceId
from solver.model.inflight import Repartitioning
from solver.model.quantities import Instant

COUNTED_MS: Final = 24 * 3_600_000
"""For how long a change is known. Rounds ask for those of one hour; the rest is for clocks that disagree."""


class Partitionings(Protocol):
    """Changes of GPUs, numbered within each GPU. Claims and changes exclude each other: nobody loses what is held."""

    def repartition(self, epoch: Epoch, asked: Repartitioning) -> None:
        """The intent to partition a GPU anew, in place of one that is still in flight, and one change more.

        Its attempt must be one above the GPU's last, and nobody hold what would go. Raises ClaimRefusedError, StaleEpochError.
        """

    def end_repartition(self, epoch: Epoch, device: DeviceId, attempt: int) -> None:
        """The change is made, or has failed for good: it is not in flight any more. Idempotent. Raises StaleEpochError."""

    def repartitions(self) -> tuple[Repartitioning, ...]:
        """Every change of a GPU that is in flight, sorted by GPU."""

    def repartition_attempts(self) -> dict[DeviceId, int]:
        """The last attempt of every GPU that was ever to be partitioned anew."""

    def repartitioned_since(self, at: Instant) -> tuple[tuple[DeviceId, Instant], ...]:
        """Which GPUs were asked to be partitioned anew after an instant, and when, the oldest first. Known for COUNTED_MS."""
