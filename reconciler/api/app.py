"""The REST API as one FastAPI application: every route behind guard and authority, described by one OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from threading import Event as Flag
from typing import Any

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Response

from reconciler.access.policy import OidcIssuer
from reconciler.api import problems
from reconciler.api.agent_payloads import AgentList, AgentToken, AgentTokenAsked
from reconciler.api.agent_routes import AgentRoutes
from reconciler.api.alert_payloads import SampleList, WebhookList
from reconciler.api.alert_routes import AlertRoutes
from reconciler.api.answers import ALWAYS, Responses, answer
from reconciler.api.attach_routes import AttachRoutes
from reconciler.api.audit_payloads import AuditEventList, AuditPage
from reconciler.api.audit_routes import AuditRoutes
from reconciler.api.authorisation import Authorisation
from reconciler.api.cluster_routes import ClusterRoutes
from reconciler.api.event_stream import EventFeed
from reconciler.api.gpu_routes import GpuRoutes
from reconciler.api.group_payloads import GroupView, NameView, TrialList
from reconciler.api.group_routes import GroupRoutes
from reconciler.api.guard import Guard
from reconciler.api.history_routes import HistoryRoutes
from reconciler.api.intervention_routes import InterventionRoutes
from reconciler.api.job_routes import CheckpointRoutes, JobRoutes
from reconciler.api.name_routes import NameRoutes
from reconciler.api.openapi_schemas import schemas_of
from reconciler.api.payloads import (
    ApiProblem,
    CheckpointList,
    EventList,
    InterventionAsked,
    InterventionList,
    JobList,
    JobView,
    NodeList,
    PolicyView,
    QueueList,
    RecordedJobList,
    RoundList,
    Status,
    WatchEnd,
    WatchStart,
    WhoAmI,
    Why,
)
from reconciler.api.plan_routes import PlanRoutes
from reconciler.api.policy_payloads import (
    ApprovalAsked,
    ApprovalList,
    LookAsked,
    SuspensionAsked,
    SuspensionList,
    WebhookHeard,
)
from reconciler.api.policy_routes import PolicyRoutes
from reconciler.api.probe_routes import ProbeRoutes
from reconciler.api.request_turns import RequestTurns
from reconciler.api.services import Services
from reconciler.api.showback import ShowbackRoutes
from reconciler.api.showback_payloads import Showback
from reconciler.api.timeline import QueueUseOverTime, Timeline
from reconciler.api.timeline_routes import TimelineRoutes
from reconciler.api.top import Top
from reconciler.api.top_routes import TopRoutes
from reconciler.api.trials import TrialRoutes
from reconciler.api.watch_routes import WatchRoutes
from reconciler.api.webhook_routes import WebhookRoutes
from reconciler.protocols.rounds import RoundRecord
from solver.model.snapshot import Snapshot

_DESCRIBED: list[type[msgspec.Struct]] = [
    AgentList, AgentToken, AgentTokenAsked, ApiProblem, ApprovalAsked, ApprovalList, AuditEventList, AuditPage, CheckpointList,
    EventList, GroupView, InterventionAsked, InterventionList, JobList, JobView, LookAsked, NameView, NodeList, PolicyView,
    QueueList, QueueUseOverTime, RecordedJobList, RoundList, RoundRecord, SampleList, Showback, Snapshot, Status, SuspensionAsked,
    SuspensionList, Timeline, Top, TrialList, WatchEnd, WatchStart, WebhookHeard, WebhookList, WhoAmI, Why,
]  # fmt: skip

_BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "The token of the server's state folder, one of its token file, or a JWT of an OpenID Connect issuer that the "
    "AccessPolicy names.",
}
_ITSELF: Responses = {
    200: {"description": "OpenAPI 3.1.", "content": {"application/json": {"schema": {"type": "object"}}}}
}


def create_app(
    services: Services, guard: Guard, closing: Flag | None = None, routers: Iterable[APIRouter] = ()
) -> FastAPI:
    """The application. Guard and authority are dependencies of the app and so of every route, the OpenAPI document included.

    Streams end when `closing` is set. `routers`: pages beside the API; in the app's state they find `closing`, and the feed of
    `events` that all streams share.
    """
    authority = Authorisation(services)
    app = FastAPI(
        title="Quorate",
        version="v1",
        description="A GPU-cluster scheduler whose whole policy lives in Git.",
        dependencies=[Depends(guard), Depends(RequestTurns(), scope="function"), Depends(authority)],
        responses=ALWAYS,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    problems.install(app)
    app.include_router(JobRoutes(services, authority).router)
    app.include_router(GroupRoutes(services, authority).router)
    app.include_router(TrialRoutes(services, authority).router)
    app.include_router(CheckpointRoutes(services).router)
    app.include_router(InterventionRoutes(services).router)
    app.include_router(ClusterRoutes(services).router)
    app.include_router(ProbeRoutes(services).router)
    app.include_router(PolicyRoutes(services).router)
    app.include_router(PlanRoutes(services).router)
    app.include_router(WebhookRoutes(services).router)
    app.include_router(HistoryRoutes(services).router)
    app.include_router(TimelineRoutes(services).router)
    app.include_router(ShowbackRoutes(services).router)
    app.include_router(TopRoutes(services).router)
    app.include_router(GpuRoutes(services).router)
    for routes in (AlertRoutes, AgentRoutes, AuditRoutes, NameRoutes):
        app.include_router(routes(services).router)
    app.state.closing, app.state.events = closing or Flag(), EventFeed(services.jobs, services.history)
    app.include_router(WatchRoutes(services, authority, app.state.closing, app.state.events).router)
    app.include_router(AttachRoutes(services, authority).router)
    for router in routers:
        app.include_router(router)

    def openapi() -> Response:
        """This API, described."""
        access = services.access()
        return answer(openapi_document(app, _schemas(), access.identity.oidc if access else ()))

    app.add_api_route("/v1/openapi.json", openapi, responses=_ITSELF)
    return app


@cache
def _schemas() -> dict[str, Any]:
    """Made when first asked for: a server without requests for it starts sooner."""
    return schemas_of(_DESCRIBED)


def openapi_document(app: FastAPI, schemas: dict[str, Any], issuers: Iterable[OidcIssuer]) -> dict[str, Any]:
    """FastAPI's description of the routes, with the schemas of our own documents and how callers prove their identity."""
    schemes = {"bearer": _BEARER} | {
        f"oidc-{number}": {
            "type": "openIdConnect",
            "openIdConnectUrl": f"{issuer.issuer.rstrip('/')}/.well-known/openid-configuration",
        }
        for number, issuer in enumerate(issuers, 1)
    }
    # FastAPI keeps what it gives out.
    document = dict(app.openapi())
    components = document.get("components", {})
    all_schemas = {**components.get("schemas", {}), **schemas}
    document["components"] = {**components, "schemas": all_schemas, "securitySchemes": schemes}
    document["security"] = [{name: []} for name in schemes]
    return document
