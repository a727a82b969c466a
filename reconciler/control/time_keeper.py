"""Keeps on record where the time of the cluster stands, so that the next leader goes on with it."""

from __future__ import annotations

from typing import Final

from reconciler.model.cluster_clock import ClusterClock, KeptTime, TimeReference
from reconciler.protocols.backend import Epoch
from reconciler.protocols.ledger import Ledger

KEPT_TO_MS: Final = 1_000
"""So far what is on record may be from what is so: it costs no write as long as no clock is set."""


class TimeKeeper:
    """Of one process. `keep` belongs into every pass, and writes where there is something new."""

    def __init__(self, ledger: Ledger, clock: ClusterClock, reference: TimeReference) -> None:
        self._ledger, self._clock, self._reference = ledger, clock, reference
        self._kept: tuple[Epoch, KeptTime] | None = None

    def keep(self, epoch: Epoch) -> None:
        """As the leader. Raises StaleEpochError."""
        stands = self._clock.ahead_of(self._reference)
        if self._kept is not None and self._kept[0] == epoch and abs(stands.ahead - self._kept[1].ahead) < KEPT_TO_MS:
            return
        self._ledger.keep_time(epoch, stands)
        self._kept = epoch, stands
