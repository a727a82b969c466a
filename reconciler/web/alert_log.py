"""What AlertPolicies were told of lately: what was said, to which webhooks, and whether it is still so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from reconciler.alerts.alert import Alert, alert_of, wants
from reconciler.alerts.kinds import ABOUT_NODES
from reconciler.alerts.policy import AlertPolicy
from reconciler.model.job_record import JobRecord
from reconciler.model.webhook_delivery import DeliveryState
from reconciler.protocols.history import KeptEvent
from solver.model.quantities import Instant
from solver.model.workload import JobName, QueueName

_WELL: Final = "node-well"


class Told(NamedTuple):
    """One webhook of those that want an alert, and how far that is."""

    webhook: str
    how: str


class AlertLine(NamedTuple):
    """An alert, the newest first. `job`: the one that it is of; None: it is of a node or revision.

    `is_open`: a node is still as was said; None: it was of something that happened. `over_at`: since when it is not.
    """

    alert: Alert
    job: JobRecord | None
    told: tuple[Told, ...]
    is_open: bool | None
    over_at: Instant | None


def alert_lines(
    events: Iterable[KeptEvent],
    job: Callable[[JobName], JobRecord | None],
    policies: Sequence[AlertPolicy],
    standings: Mapping[str, DeliveryState],
    parents: Mapping[QueueName, QueueName | None],
) -> list[AlertLine]:
    """Of these events, the oldest first, those that a policy in force wants told; the newest first."""
    enabled = tuple(policy for policy in policies if policy.enabled)
    alerts = [alert for kept in events if (alert := alert_of(kept, job)) is not None]
    over = _over(alerts)
    lines = (
        AlertLine(
            alert,
            job(JobName(alert.job)) if alert.job else None,
            told,
            None if alert.kind not in ABOUT_NODES or alert.kind == _WELL else alert.number not in over,
            over.get(alert.number),
        )
        for alert in alerts
        if (told := tuple(_told(alert, enabled, standings, parents)))
    )
    return list(lines)[::-1]


def _over(alerts: Iterable[Alert]) -> dict[int, Instant]:
    """When what was said of a node, or of one of its GPUs, was no more so: by the number of the alert."""
    latest, over = dict[tuple[str, str], int](), dict[int, Instant]()
    for alert in alerts:
        if alert.kind not in ABOUT_NODES:
            continue
        part = alert.cause.split(": ", 1)[0] if alert.cause.startswith("GPU ") else ""
        before = latest.pop((alert.subject, part), None)
        if before is not None:
            over[before] = alert.time
        if alert.kind != _WELL:
            latest[alert.subject, part] = alert.number
    return over


def _told(
    alert: Alert,
    policies: Iterable[AlertPolicy],
    standings: Mapping[str, DeliveryState],
    parents: Mapping[QueueName, QueueName | None],
) -> Iterator[Told]:
    for policy in policies:
        if not wants(policy, alert, parents):
            continue
        for webhook in policy.webhooks:
            key = policy.key(webhook)
            yield Told(key, _how(alert, standings.get(key)))


def _how(alert: Alert, standing: DeliveryState | None) -> str:
    if standing is None:
        return "not yet"
    if alert.number <= standing.cursor:
        return "told"
    if standing.stopped:
        return "wants no more messages"
    return f"not yet: {standing.problem}" if standing.problem else "not yet"
