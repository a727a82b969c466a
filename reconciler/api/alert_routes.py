"""Alerts over HTTP: how webhooks stand, and a sample on demand."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from reconciler.access.rights import Rights
from reconciler.alerts.policy import AlertPolicy
from reconciler.api.alert_payloads import Sample, SampleList, WebhookList
from reconciler.api.alert_views import webhook_views
from reconciler.api.answers import answer, answers, refuses
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.model.problem import did_you_mean


class AlertRoutes:
    """The endpoints; `router` has both."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.router = APIRouter(prefix="/v1/alerts", tags=["alerts"])
        self.router.add_api_route("", self.list, responses=answers(WebhookList))
        self.router.add_api_route(
            "/{policy}/test", self.test, methods=["POST"], responses=answers(SampleList, refuses(404))
        )

    def list(self) -> Response:
        """The webhooks of every AlertPolicy in force, and how they stand. Of a URL only the host is said."""
        policies = self._services.operations().alerts
        return answer(WebhookList(items=tuple(webhook_views(policies, self._services.alerts.standings()))))

    def test(self, policy: Annotated[str, Path(max_length=63)], request: Request) -> Response:
        """Send a sample to each webhook of a policy. For operators of its queues; of the whole cluster where it names none."""
        rights: Rights = request.state.rights
        found = self._policy(policy)
        if not all(rights.may("operate", queue) for queue in found.queues or (None,)):
            where = "in its queues" if found.queues else "everywhere, since it names no queues"
            fix = f"It takes the role operator or admin {where}: see the AccessPolicy."
            raise RequestRefusedError(
                403, "not-allowed", f"{request.state.user} may not send samples of {policy}.", fix
            )
        results = self._services.alerts.send_sample(found, request.state.user)
        named = zip(found.webhooks, results, strict=True)
        return answer(SampleList(items=tuple(Sample(webhook.name, result.problem) for webhook, result in named)))

    def _policy(self, name: str) -> AlertPolicy:
        policies = {policy.name: policy for policy in self._services.operations().alerts}
        if name not in policies:
            fix = did_you_mean(name, policies) or "List the webhooks to see the policies that there are."
            raise RequestRefusedError(404, "unknown-alert-policy", "There is no AlertPolicy of that name.", fix)
        return policies[name]
