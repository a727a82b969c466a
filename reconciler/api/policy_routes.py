"""Following Git over HTTP: accepting a revision that is held, stopping and resuming, and having Git looked at now."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from reconciler.api.answers import answer, answers, refuses
from reconciler.api.git_services import GitServices
from reconciler.api.job_routes import bounded_body
from reconciler.api.policy_payloads import ApprovalAsked, ApprovalList, LookAsked, SuspensionAsked, SuspensionList
from reconciler.api.policy_requests import PolicyRequests, why_of
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.lifecycle.interventions.spans import UnfitEndError, read_end
from reconciler.model.git_record import Suspension
from reconciler.protocols.history import Event
from solver.model.document import Document, decode
from solver.model.quantities import Instant

SUSPENDED: Final = "reconcile-suspended"
RESUMED: Final = "reconcile-resumed"
ABOUT: Final = "policy"
"""The subject of events that are about no revision."""

Body = Annotated[bytes, Depends(bounded_body)]
T = TypeVar("T", bound=Document)


def _body(kind: str, example: dict[str, str]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{kind}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}}


class PolicyRoutes:
    """The endpoints; `router` has them all. Authority has judged the caller before."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._following: GitServices = services.following
        self._requests = PolicyRequests(services)
        self.router = APIRouter(prefix="/v1/policy", tags=["policy"])
        add = self.router.add_api_route
        add("/approve", self.approve, methods=["POST"], responses=answers(ApprovalList, refuses(409, 413)),
            openapi_extra=_body("ApprovalAsked", {"revision": "1a2b3c4d", "reason": "rebased on purpose"}))  # fmt: skip
        add("/approvals", self.approvals, responses=answers(ApprovalList))
        add("/suspension", self.suspend, methods=["PUT"], responses=answers(SuspensionList, refuses(413)),
            openapi_extra=_body("SuspensionAsked", {"reason": "the forge is being moved", "until": "4h"}))  # fmt: skip
        add("/suspension", self.resume, methods=["DELETE"], responses=answers(SuspensionList))
        add("/reconcile", self.reconcile, methods=["POST"], responses=answers(LookAsked, refuses(409)))

    def approve(self, request: Request, body: Body) -> Response:
        """Accept the revision that is held now, for the reason for which it is held. It counts once, for this commit alone."""
        asked = read_asked(body, ApprovalAsked)
        return answer(ApprovalList(items=(self._requests.approve(asked.revision, asked.reason, request.state.user),)))

    def approvals(self, limit: Annotated[int, Query(ge=1, le=10_000)] = 100) -> Response:
        """Which revisions people accepted although a requirement held them, newest first."""
        return answer(ApprovalList(items=self._following.decisions.approvals(limit)))

    def suspend(self, request: Request, body: Body) -> Response:
        """Stop following Git until a user resumes, or for a while. Rounds go on under the policy in force."""
        asked, now = read_asked(body, SuspensionAsked), self._services.clock.now()
        try:
            until = read_end(asked.until, now) if asked.until else None
        except UnfitEndError as error:
            raise RequestRefusedError(422, "unfit-end", str(error), error.fix) from error
        wanted = Suspension(author=request.state.user, why=why_of(asked.reason), at=now, until=until)
        with self._services.together():
            kept = self._following.decisions.suspend(wanted)
            if kept.at == now:
                self._record(SUSPENDED, ABOUT, str(kept), request)
        return answer(SuspensionList(items=(kept,)))

    def resume(self, request: Request) -> Response:
        """Follow Git again; harmless where it was not stopped."""
        with self._services.together():
            ended = self._following.decisions.resume(self._services.clock.now(), request.state.user)
            if ended is not None:
                self._record(RESUMED, ABOUT, f"it was {ended}", request)
        if ended is not None:
            self._following.look()
        return answer(SuspensionList(items=(ended,) if ended else ()))

    def reconcile(self) -> Response:
        """Have Git looked at now. The status says when that is over."""
        suspended = self._following.decisions.suspension(self._services.clock.now())
        if suspended is not None:
            fix = "Resume it first: quorate resume-reconcile."
            raise RequestRefusedError(409, "suspended", f"Following Git is {suspended}.", fix)
        return answer(LookAsked(at=self._following.look()))

    def _record(self, kind: str, subject: str, cause: str, request: Request) -> None:
        now: Instant = self._services.clock.now()
        self._services.history.record_event(Event(now, kind, subject, cause, request.state.user))


def read_asked(body: bytes, kind: type[T]) -> T:
    """What a body asks for. Raises RequestRefusedError."""
    try:
        return decode(body, kind)
    except msgspec.MsgspecError as error:
        fix = "Send JSON, as the OpenAPI document shows it."
        raise RequestRefusedError(422, "malformed", f"The body is not as described: {error}.", fix) from error
