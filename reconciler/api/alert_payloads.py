"""What the API answers about alerts."""

from __future__ import annotations

from typing import Literal

from reconciler.alerts.policy import MessageFormat
from reconciler.api.payloads import Payload
from solver.model.document import Document
from solver.model.quantities import Instant

WebhookState = Literal["new", "answers", "failing", "stopped", "disabled"]


class WebhookView(Document, frozen=True, omit_defaults=False):
    """One webhook of an AlertPolicy. `to`: the host it leads to, or the file of the server that holds its URL.

    `state`: failing: the newest try failed, for the reason `problem`, and the next is made at `not_before`; stopped: the
    receiver said that it wants no more; new: nothing has been sent yet. `given_up`: events that it was never told.
    """

    policy: str
    webhook: str
    format: MessageFormat
    to: str
    state: WebhookState
    delivered: int = 0
    given_up: int = 0
    answered_at: Instant | None = None
    failing_since: Instant | None = None
    not_before: Instant | None = None
    problem: str = ""


class WebhookList(Payload, frozen=True, kw_only=True):
    """The webhooks of every AlertPolicy."""

    items: tuple[WebhookView, ...]


class Sample(Document, frozen=True, omit_defaults=False):
    """What came of one message to a webhook; `problem` "": it was taken."""

    webhook: str
    problem: str


class SampleList(Payload, frozen=True, kw_only=True):
    """What came of a sample, webhook by webhook."""

    items: tuple[Sample, ...]
