"""An alert as one HTTP request: a CloudEvent or a line of chat, with an id that stays, signed where there is a secret.

CloudEvents 1.0.2 in structured mode: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md
Standard Webhooks: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from reconciler.alerts.alert import Alert
from reconciler.alerts.kinds import ABOUT_BUDGETS, ABOUT_CAPACITY, ABOUT_NO_JOB, ABOUT_NODES, ABOUT_POLICY
from reconciler.alerts.policy import Webhook
from reconciler.alerts.template import DEFAULT_OF_JOB, DEFAULT_OF_NODE, DEFAULT_OF_POLICY, render_template
from solver.model.document import encode
from solver.model.quantities import Instant

OWN_HEADERS: Final = frozenset({"content-type", "user-agent", "webhook-id", "webhook-timestamp", "webhook-signature"})
"""What every message has, and so no policy may set."""

_USUAL: Final[dict[str, str]] = {
    **dict.fromkeys(ABOUT_POLICY, DEFAULT_OF_POLICY),
    **dict.fromkeys(ABOUT_NODES | ABOUT_BUDGETS | ABOUT_CAPACITY, DEFAULT_OF_NODE),
}
"""Lines of chat, by the kind of what is told; of all others: DEFAULT_OF_JOB."""


class Message(NamedTuple):
    """What is sent: the same bytes under the same id, however often."""

    id: str
    content_type: str
    body: bytes


def message_of(alert: Alert, webhook: Webhook, store: str, name: str = "") -> Message:
    """The alert for one webhook. `store` names the state that the event's number is of; `name`: the id of what has no number."""
    # No full stop in it: in a signature that separates the id from what follows.
    name = name or f"{store}-{alert.number}"
    if webhook.format == "chat":
        usual = _USUAL.get(alert.kind, DEFAULT_OF_JOB)
        return Message(name, "application/json", encode({"text": render_template(webhook.template or usual, alert)}))
    return Message(name, "application/cloudevents+json", encode(cloud_event(alert, name, store)))


def cloud_event(alert: Alert, name: str, store: str) -> dict[str, Any]:
    """The envelope and in it the alert; what an alert does not have is left out."""
    said = msgspec.structs.asdict(alert)
    left_out = {"number", "kind", "time", "subject"}
    return {
        "specversion": "1.0",
        "id": name,
        "source": f"urn:uuid:{store}",
        "type": f"dev.quorate.{_event_type(alert)}",
        "subject": alert.subject,
        "time": str(alert.time),
        "datacontenttype": "application/json",
        "data": {key: value for key, value in said.items() if value and key not in left_out},
    }


def headers_of(message: Message, now: Instant, keys: Sequence[bytes], extra: dict[str, str]) -> dict[str, str]:
    """The headers of one try, made at `now`: a receiver that checks the signature can refuse old tries.

    It is signed with each key, so that a receiver which has one of them is content (Standard Webhooks, "Multiple signatures").
    """
    seconds = str(now // 1_000)
    headers = {
        **extra,
        "content-type": message.content_type,
        "user-agent": "quorate",
        "webhook-id": message.id,
        "webhook-timestamp": seconds,
    }
    signed = b".".join((message.id.encode(), seconds.encode(), message.body))
    codes = [base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode() for key in keys]
    if codes:
        headers["webhook-signature"] = " ".join(f"v1,{code}" for code in codes)
    return headers


def _event_type(alert: Alert) -> str:
    if alert.kind == "sample":
        return "alert.sample"
    if alert.kind in ABOUT_NO_JOB:
        return alert.kind.replace("-", ".", 1)
    return f"job.{alert.kind}"
