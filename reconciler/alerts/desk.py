"""What people ask about webhooks: how they stand, and whether a sample arrives."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from reconciler.alerts.alert import Alert
from reconciler.alerts.message import message_of
from reconciler.alerts.policy import AlertPolicy, Webhook
from reconciler.alerts.sender import Sender
from reconciler.model.webhook_delivery import DeliveryResult, DeliveryState
from reconciler.protocols.alerts import AlertDeliveries


@dataclass(frozen=True, slots=True)
class AlertDesk:
    """Any thread may ask."""

    deliveries: AlertDeliveries
    sender: Sender

    def standings(self) -> dict[str, DeliveryState]:
        """How each webhook stands, by POLICY/NAME."""
        return {standing.webhook: standing for standing in self.deliveries.webhooks()}

    def send_sample(self, policy: AlertPolicy, asker: str) -> tuple[DeliveryResult, ...]:
        """One message to each webhook of a policy, all at once, and what came of each. It changes nothing of how they stand."""
        now, store = self.sender.clock.now(), self.deliveries.store_id()
        alert = Alert(
            *(0, "sample", now, "sample-job", f"{asker} asked for a sample; nothing has happened", asker),
            job="sample-job",
            queue="sample-queue",
            user=asker,
        )

        async def send(webhook: Webhook) -> DeliveryResult:
            return await self.sender.send(webhook, message_of(alert, webhook, store, f"{store}-sample-{int(now)}"))

        async def send_all() -> tuple[DeliveryResult, ...]:
            return tuple(await asyncio.gather(*map(send, policy.webhooks)))

        return asyncio.run(send_all())
