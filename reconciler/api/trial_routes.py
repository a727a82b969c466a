"""A submission tried over HTTP: what would happen, and when, without anything happening."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from reconciler.api.answers import answer, answers, refuses
from reconciler.api.authorisation import Authorisation
from reconciler.api.group_payloads import TrialList
from reconciler.api.job_routes import bounded_body
from reconciler.api.services import Services
from reconciler.api.submission import batch_of
from reconciler.api.trials import tried
from reconciler.documents.pipeline import read_submission

_DOCUMENT = {"schema": {"type": "object", "description": "A Job, with an array or without, or a Pipeline."}}
_BODY = {"requestBody": {"required": True, "content": {"application/json": _DOCUMENT, "application/yaml": _DOCUMENT}}}


class TrialRoutes:
    """The one endpoint; `router` has it."""

    def __init__(self, services: Services, authority: Authorisation) -> None:
        self._services = services
        self._authority = authority
        self.router = APIRouter(tags=["jobs"])
        responses = answers(TrialList, refuses(409, 413))
        self.router.add_api_route(
            "/v1/jobs:test", self.test, methods=["POST"], responses=responses, openapi_extra=_BODY
        )

    def test(self, request: Request, body: Annotated[bytes, Depends(bounded_body)]) -> Response:
        """What would become of a Job, an array or a Pipeline if it were submitted now. Nothing is kept."""
        batch = batch_of(read_submission(body, "job"))
        for queue in sorted({job.spec.queue for job in batch.jobs}):
            self._authority.require(request, "submit", queue)
        self._services.jobs.accepts()
        return answer(tried(self._services, batch, request.state.user))
