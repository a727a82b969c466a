"""How webhooks stand, for people: line by line, and as a condition of the control plane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from reconciler.alerts.policy import AlertPolicy, Webhook
from reconciler.api.alert_payloads import WebhookState, WebhookView
from reconciler.api.payloads import Condition
from reconciler.model.webhook_delivery import DeliveryState

ALERTED: Final = "AlertsDelivered"
"""The condition that says whether every webhook answers."""


def webhook_views(policies: Iterable[AlertPolicy], standings: Mapping[str, DeliveryState]) -> Iterator[WebhookView]:
    """Each webhook of each policy, in their order."""
    for policy in policies:
        for webhook in policy.webhooks:
            yield _view(policy, webhook, standings.get(policy.key(webhook)))


def alert_conditions(standings: Iterable[DeliveryState]) -> Iterator[Condition]:
    """One condition on all webhooks; none where there are no webhooks."""
    known = tuple(standings)
    silent = [standing for standing in known if standing.failing_since is not None]
    if silent:
        message = "; ".join(map(_said, silent))
        yield Condition(ALERTED, status=False, reason="webhook-silent", message=message)
    elif known:
        yield Condition(ALERTED, status=True, reason="answering")


def _said(silent: DeliveryState) -> str:
    lost = f", {silent.given_up} events were given up" if silent.given_up else ""
    if silent.stopped:
        return f"webhook {silent.webhook} wants no more messages{lost}"
    return f"webhook {silent.webhook} has not answered since {silent.failing_since}: {silent.problem}{lost}"


def _view(policy: AlertPolicy, webhook: Webhook, standing: DeliveryState | None) -> WebhookView:
    # The path of a URL may be what lets one post there.
    to = urlsplit(webhook.url).hostname or "" if webhook.url else f"file {webhook.url_file}"
    bare = WebhookView(policy.name, webhook.name, webhook.format, to, "new" if policy.enabled else "disabled")
    if standing is None or not policy.enabled:
        return bare
    return WebhookView(
        *(policy.name, webhook.name, webhook.format, to, _state(standing)),
        delivered=standing.delivered,
        given_up=standing.given_up,
        answered_at=standing.answered_at,
        failing_since=standing.failing_since,
        not_before=None if standing.failing_since is None or standing.stopped else standing.not_before,
        problem=standing.problem,
    )


def _state(standing: DeliveryState) -> WebhookState:
    if standing.stopped:
        return "stopped"
    if standing.failing_since is not None:
        return "failing"
    return "new" if standing.answered_at is None else "answers"
