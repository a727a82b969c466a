"""What a client asks about alerts."""

from __future__ import annotations

from urllib.parse import quote

from reconciler.api.alert_payloads import SampleList, WebhookList
from reconciler.client.transport import Transport
from solver.model.document import decode


class AlertCalls:
    """Every method raises ServerUnreachableError, NotAuthorisedError or ApiError."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def webhooks(self) -> WebhookList:
        """How the webhooks of all AlertPolicies stand."""
        return decode(self._transport.call("GET", "/v1/alerts"), WebhookList)

    def send_sample(self, policy: str) -> SampleList:
        """Send a sample to each webhook of an AlertPolicy, and say what came of it."""
        path = f"/v1/alerts/{quote(policy, safe='')}/test"
        return decode(self._transport.call("POST", path, repeatable=False), SampleList)
