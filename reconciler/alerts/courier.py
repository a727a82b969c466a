"""Tells one webhook what it has not been told yet, in order, until it is up to date or does not answer.

What was answered is kept before the next is sent. Killed in between, it sends the same once more, under the same id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from reconciler.alerts.alert import Alert, alert_of, wants
from reconciler.alerts.message import Message, message_of
from reconciler.alerts.policy import AlertPolicy, Webhook
from reconciler.model.clock import Clock
from reconciler.model.job_record import JobRecord
from reconciler.model.webhook_delivery import DeliveryResult, DeliveryState
from reconciler.protocols.alerts import AlertDeliveries
from reconciler.protocols.backend import Epoch
from reconciler.protocols.history import Event, History
from reconciler.protocols.job_source import JobSource, UnknownJobError
from solver.model.workload import JobName, QueueName

GIVEN_UP: Final = "alert-given-up"

_EVENTS_AT_A_TIME: Final = 200


@dataclass(frozen=True, slots=True)
class Errand:
    """One webhook of one policy; `parents` is the queue tree."""

    policy: AlertPolicy
    webhook: Webhook
    parents: Mapping[QueueName, QueueName | None]

    @property
    def key(self) -> str:
        """The webhook's name among those of all policies."""
        return self.policy.key(self.webhook)


@dataclass(frozen=True, slots=True)
class Courier:
    """Delivers. `chance` gives numbers from 0 up to 1; `actor` signs what is put on record."""

    deliveries: AlertDeliveries
    history: History
    jobs: JobSource
    clock: Clock
    send: Callable[[Webhook, Message], Awaitable[DeliveryResult]]
    chance: Callable[[], float]
    actor: str

    async def deliver(self, epoch: Epoch, errand: Errand) -> None:
        """Up to some events. Raises StaleEpochError, StoreUnusableError."""
        before = standing = self.deliveries.renew(epoch, errand.key)
        if standing is None or not standing.is_due(self.clock.now()):
            return
        for kept in self.history.events_since(standing.cursor, limit=_EVENTS_AT_A_TIME):
            alert = alert_of(kept, self._job)
            if alert is None or not wants(errand.policy, alert, errand.parents):
                standing = standing.past(kept.number)
                continue
            before = standing = await self._tell(errand, standing, alert)
            self.deliveries.keep(epoch, standing)
            if standing.cursor < kept.number:
                return
        if standing != before:
            self.deliveries.keep(epoch, standing)

    async def _tell(self, errand: Errand, standing: DeliveryState, alert: Alert) -> DeliveryState:
        """One try, unless it has been tried for too long."""
        late = self.clock.now() - alert.time > errand.policy.give_up_after
        if standing.failing_since is not None and late:
            self._put_on_record(errand, standing, alert)
            return standing.gave_up(alert.number)
        answer = await self.send(errand.webhook, message_of(alert, errand.webhook, self.deliveries.store_id()))
        return standing.after(alert.number, answer, self.clock.now(), self.chance())

    def _put_on_record(self, errand: Errand, standing: DeliveryState, alert: Alert) -> None:
        cause = (
            f"{alert.kind} of {alert.subject} (event {alert.number}) was not delivered within "
            f"{errand.policy.give_up_after}: {standing.problem}"
        )
        self.history.record_event(Event(self.clock.now(), GIVEN_UP, errand.key, cause, self.actor))

    def _job(self, name: JobName) -> JobRecord | None:
        try:
            return self.jobs.job(name)
        except UnknownJobError:
            return None
