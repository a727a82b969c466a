"""What an AlertPolicy says: which events are told to which webhooks, and how."""

from __future__ import annotations

from typing import Final, Literal

from reconciler.alerts.kinds import AlertKind
from solver.model.document import Document, digest
from solver.model.quantities import Duration
from solver.model.workload import QueueName

MessageFormat = Literal["cloudevents", "chat"]

DEFAULT_KINDS: Final[tuple[AlertKind, ...]] = (
    "evicted", "eviction-called-off", "retried", "stuck", "time-limit-near", "checkpoint-corrupt", "failed", "policy-rejected",
)  # fmt: skip
"""What a user may have to act on, or will ask about."""


class Webhook(Document, frozen=True):
    """One receiver, by `url` or by the file of the server that holds it (a URL can be a secret by itself).

    `secret_file`: what messages are signed with; "": they are not. `template`: for chat; "": the usual one.
    """

    name: str
    url: str = ""
    url_file: str = ""
    secret_file: str = ""
    format: MessageFormat = "cloudevents"
    template: str = ""
    headers: dict[str, str] = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)

    @property
    def target(self) -> str:
        """Names where it leads, without saying it."""
        return digest((self.url, self.url_file))


class AlertThresholds(Document, frozen=True):
    """For how long it has to be so before it is told."""

    capacity: Duration = Duration(3_600_000)
    forecast_missed: Duration = Duration(1_800_000)
    guarantee_not_met_for: Duration = Duration(3_600_000)

    def of(self, kind: AlertKind) -> Duration:
        """That of a kind which has one."""
        match kind:
            case "capacity":
                return self.capacity
            case "forecast-missed":
                return self.forecast_missed
            case "finish-by-at-risk":
                return Duration(0)
            case _:
                return self.guarantee_not_met_for


class AlertPolicy(Document, frozen=True):
    """Some webhooks, and what they are told: events of these kinds, of jobs in these queues or below, of these users (empty: all).

    `after`: what those have to reach that are about waiting. An event that could not be delivered for `give_up_after` is given up.
    """

    name: str
    webhooks: tuple[Webhook, ...]
    on: tuple[AlertKind, ...] = DEFAULT_KINDS
    queues: tuple[QueueName, ...] = ()
    users: tuple[str, ...] = ()
    give_up_after: Duration = Duration(24 * 3_600_000)
    enabled: bool = True
    after: AlertThresholds = AlertThresholds()
    origin: str = ""

    def key(self, webhook: Webhook) -> str:
        """The webhook's name among those of all policies."""
        return f"{self.name}/{webhook.name}"
