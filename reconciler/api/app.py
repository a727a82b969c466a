"""The REST API as one FastAPI application: every route behind the guard, described by one OpenAPI document."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Depends, FastAPI, Response

from reconciler.api import problems
from reconciler.api.answers import answer, schemas_of
from reconciler.api.cluster_routes import ClusterRoutes
from reconciler.api.guard import Guard
from reconciler.api.job_routes import JobRoutes
from reconciler.api.payloads import (
    ApiProblem,
    EventList,
    Health,
    JobList,
    JobView,
    NodeList,
    PolicyView,
    QueueList,
    RoundList,
    Status,
    Why,
)
from reconciler.api.services import Services
from reconciler.api.top import Top
from reconciler.api.top_routes import TopRoutes
from reconciler.store.protocols import RoundRecord
from solver.world.snapshot import Snapshot

_DESCRIBED: list[type[msgspec.Struct]] = [
    ApiProblem, EventList, Health, JobList, JobView, NodeList, PolicyView, QueueList, RoundList, RoundRecord, Snapshot, Status, Top,
    Why,
]  # fmt: skip


def create_app(services: Services, guard: Guard) -> FastAPI:
    """The application. The guard is a dependency of the app and so of every route, the OpenAPI document included."""
    app = FastAPI(
        title="Quorate", version="v1", dependencies=[Depends(guard)], openapi_url=None, docs_url=None, redoc_url=None
    )
    problems.install(app)
    app.include_router(JobRoutes(services).router)
    app.include_router(ClusterRoutes(services).router)
    app.include_router(TopRoutes(services).router)
    schemas = schemas_of(_DESCRIBED)

    def openapi() -> Response:
        """This API, described."""
        return answer(described(app, schemas))

    app.add_api_route("/v1/openapi.json", openapi)
    return app


def described(app: FastAPI, schemas: dict[str, Any]) -> dict[str, Any]:
    """FastAPI's description of the routes, with the schemas of our own documents beside its own."""
    document = app.openapi()
    components = document.setdefault("components", {}).setdefault("schemas", {})
    components |= schemas
    return document
