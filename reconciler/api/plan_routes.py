"""Accepting a plan over HTTP, before its revision is merged or while it is held, and reading the plan of the one that is held."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request, Response

from reconciler.api.answers import answer, answers, refuses
from reconciler.api.job_routes import bounded_body
from reconciler.api.policy_payloads import FreshPlan, PlanAccepted, PlanAsked
from reconciler.api.policy_requests import PolicyRequests, why_of
from reconciler.api.policy_routes import read_asked
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.documents.repository import Compiled
from reconciler.gitops.review.comparison import cluster_of
from reconciler.gitops.review.meaning import meaning_of
from reconciler.model.envelope import AcceptedPlan, Envelope, is_stale
from reconciler.protocols.history import Event

ACCEPTED: Final = "plan-accepted"

Body = Annotated[bytes, Depends(bounded_body)]


class PlanRoutes:
    """The endpoints; `router` has them all. Authority has judged the caller before."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._planning = services.following.planning
        self._requests = PolicyRequests(services)
        self.router = APIRouter(prefix="/v1/policy", tags=["policy"])
        schema = {"schema": {"$ref": "#/components/schemas/PlanAsked"}}
        self.router.add_api_route(
            "/plans",
            self.accept,
            methods=["POST"],
            responses=answers(PlanAccepted, refuses(409, 413)),
            openapi_extra={"requestBody": {"required": True, "content": {"application/json": schema}}},
        )
        self.router.add_api_route("/plan", self.fresh, responses=answers(FreshPlan, refuses(404)))

    def accept(self, request: Request, body: Body) -> Response:
        """Accept a saved plan: a revision that says the same may do what the plan foresaw, and is held where it would do more."""
        asked = read_asked(body, PlanAsked)
        in_force = meaning_of(Compiled(*self._planning.in_force()[1:]))
        envelope, done = asked.envelope, asked.envelope.meaning == in_force
        if not done:
            self._refuse_stale(envelope, in_force)
        plan = AcceptedPlan(envelope, request.state.user, why_of(asked.reason), self._services.clock.now())
        if not done:
            cause = (
                f"{envelope.accepts.evicted_jobs} evicted, {envelope.accepts.lost_gpu_h:.1f} GPU-hours lost: {plan.why}"
            )
            with self._services.together():
                self._planning.accepted.accept(plan)
                self._services.history.record_event(Event(plan.at, ACCEPTED, envelope.meaning, cause, plan.author))
            self._services.following.look()
        return answer(PlanAccepted(accepted=plan, in_force=done))

    def fresh(self) -> Response:
        """What the revision that is held would do, planned on the cluster as it was then, beside what was accepted."""
        found = self._requests.planned()
        if found is None:
            fix = "`quorate status` says what came of the newest revision."
            raise RequestRefusedError(404, "not-planned", "No revision is held of which there is a plan.", fix)
        return answer(FreshPlan(review=found, accepted=self._planning.accepted.accepted(found.head.meaning)))

    def _refuse_stale(self, envelope: Envelope, in_force: str) -> None:
        held, fix = self._requests.planned(), "Plan it again: quorate plan --out FILE."
        if held is not None and held.head.meaning != envelope.meaning:
            message = f"The revision that is held, {held.head.commit[:12]}, says something else than the plan."
            raise RequestRefusedError(409, "stale-plan", message, fix)
        if envelope.exact and is_stale(envelope, in_force, cluster_of(self._services.snapshot())):
            message = "The cluster, or the policy in force, is not what it was when the plan was made."
            raise RequestRefusedError(409, "stale-plan", message, fix)
