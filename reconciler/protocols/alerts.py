"""The protocol that remembers how far each webhook is, so that a restart loses no alert.

The conformance suite is tests/contracts/test_alert_deliveries.py.
"""

from __future__ import annotations

from typing import Protocol

from reconciler.model.webhook_delivery import DeliveryState
from reconciler.protocols.backend import Epoch


class AlertDeliveries(Protocol):
    """Webhooks by POLICY/NAME. Cursors never go back. Every write carries the writer's epoch: only the leader delivers."""

    def store_id(self) -> str:
        """Names this state among all there are, as a UUID: the same for as long as it lives."""

    def webhooks(self) -> tuple[DeliveryState, ...]:
        """How every webhook stands, sorted by name."""

    def begin(self, epoch: Epoch, standing: DeliveryState) -> None:
        """There is a new webhook; one that is known stays as it is. Raises StaleEpochError."""

    def renew(self, epoch: Epoch, webhook: str) -> DeliveryState | None:
        """How a webhook stands, for a leader about to deliver; None: there is none. Raises StaleEpochError."""

    def keep(self, epoch: Epoch, standing: DeliveryState) -> None:
        """What followed, in place of what was. Without effect for a webhook that is not there, or is further already.

        Raises StaleEpochError.
        """

    def forget(self, epoch: Epoch, webhook: str) -> None:
        """There is no such webhook any more: one of that name begins anew. Idempotent. Raises StaleEpochError."""
