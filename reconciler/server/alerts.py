"""The thread that delivers alerts, beside the loop and under its epoch: a task for each webhook, so that none waits for another."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event as Signal

from structlog.typing import FilteringBoundLogger

from reconciler.alerts.courier import Courier, Errand
from reconciler.alerts.desk import AlertDesk
from reconciler.alerts.sender import Sender
from reconciler.control.control import NoPolicyError, PolicyInForce, PolicySource
from reconciler.model.clock import SystemClock
from reconciler.model.webhook_delivery import DeliveryState
from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.history import History
from reconciler.protocols.job_source import JobSource
from reconciler.server.folder import StateFolder
from reconciler.store.store import SqlStore


@dataclass
class AlertSending:
    """Call `run` in a thread of its own; `stop` from any. `epoch` gives that of the loop, None while it does not lead."""

    courier: Courier
    policies: PolicySource
    epoch: Callable[[], Epoch | None]
    log: FilteringBoundLogger
    every_s: float = 0.5
    _stopped: Signal = field(default_factory=Signal)
    _under_way: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _told: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Look until stopped. Raises StoreUnusableError."""
        asyncio.run(self._serve())

    def stop(self) -> None:
        """Let `run` return soon. What is being sent is dropped, and sent again by the next leader."""
        self._stopped.set()

    async def _serve(self) -> None:
        try:
            while not self._stopped.is_set():
                self.look()
                await asyncio.sleep(self.every_s)
        finally:
            for task in self._under_way.values():
                task.cancel()
            await asyncio.gather(*self._under_way.values(), return_exceptions=True)
            self._under_way.clear()

    def look(self) -> None:
        """Set off what is due; without the lead or a policy there is nothing to do. Call it inside an event loop."""
        self._gather()
        epoch = self.epoch()
        if epoch is None:
            return
        try:
            errands = _errands(self.policies.current())
            standings = self._keep_up(epoch, errands)
        except (NoPolicyError, StaleEpochError) as error:
            self.log.debug("alerts-not-sent", reason=str(error))
            return
        self._tell(standings)
        newest, now = self.courier.history.newest_event(), self.courier.clock.now()
        for key, errand in errands.items():
            standing = standings.get(key)
            due = standing is not None and standing.cursor < newest and standing.is_due(now)
            if due and key not in self._under_way:
                self._under_way[key] = asyncio.ensure_future(self.courier.deliver(epoch, errand))

    def _gather(self) -> None:
        """What has come of errands that are over. Raises what one raised, unless another process leads now."""
        for key, task in list(self._under_way.items()):
            if task.done():
                del self._under_way[key]
                try:
                    task.result()
                except StaleEpochError as error:
                    self.log.debug("alerts-not-sent", reason=str(error))

    def _keep_up(self, epoch: Epoch, errands: Mapping[str, Errand]) -> dict[str, DeliveryState]:
        """Begin what is new at the newest event, go on where a URL has changed, forget what is gone."""
        deliveries = self.courier.deliveries
        known = {standing.webhook: standing for standing in deliveries.webhooks()}
        for key, errand in errands.items():
            standing = known.get(key)
            if standing is not None and standing.target == errand.webhook.target:
                continue
            if standing is not None and not standing.stopped:
                deliveries.keep(epoch, standing.led_to(errand.webhook.target))
                continue
            deliveries.forget(epoch, key)
            deliveries.begin(epoch, DeliveryState(key, self.courier.history.newest_event(), errand.webhook.target))
        for key in known.keys() - errands.keys():
            deliveries.forget(epoch, key)
        return {standing.webhook: standing for standing in deliveries.webhooks()}

    def _tell(self, standings: Mapping[str, DeliveryState]) -> None:
        """Tell the log where a webhook stops answering, or answers again."""
        for key, standing in standings.items():
            before, self._told[key] = self._told.get(key, ""), standing.problem
            if standing.problem and standing.problem != before:
                self.log.warning("webhook", webhook=key, message=standing.problem, since=str(standing.failing_since))
            elif before and not standing.problem:
                self.log.info("webhook", webhook=key, message="it answers again")


def _errands(current: PolicyInForce) -> dict[str, Errand]:
    parents = {queue.name: queue.parent for queue in current.policy.queues}
    return {
        policy.key(webhook): Errand(policy, webhook, parents)
        for policy in current.operations.alerts
        if policy.enabled
        for webhook in policy.webhooks
    }


def alert_services(
    folder: StateFolder,
    store: SqlStore,
    jobs: JobSource,
    history: History,
    holder: str,
    policies: PolicySource,
    epoch: Callable[[], Epoch | None],
    log: FilteringBoundLogger,
) -> tuple[AlertDesk, AlertSending]:
    """What the API knows of webhooks, and the thread that tells them."""
    clock = SystemClock()
    desk = AlertDesk(store.alerts, Sender(folder.alert_secrets, clock))
    chance = secrets.SystemRandom().random
    courier = Courier(store.alerts, history, jobs, clock, desk.sender.send, chance, holder)
    return desk, AlertSending(courier, policies, epoch, log)
