"""Probes of kubelets, load balancers and monitoring: yes or no, without a token and under any Host."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Response

from reconciler.api.answers import BARE, Responses
from reconciler.api.services import Services

YES: Final = "ok\n"
NO: Final = "no\n"

_TEXT: Final = {"text/plain": {"schema": {"type": "string"}}}
_ALIVE: Responses = {200: {"description": "The server answers.", "content": _TEXT}}
_READY: Responses = {
    200: {"description": "It decides rounds, observes, or stands by to lead.", "content": _TEXT},
    503: {"description": "It does not yet: `quorate status` says why.", "content": _TEXT},
}
_OPEN: Final[dict[str, Any]] = {"security": []}
"""For OpenAPI: no bearer token is asked for."""


class ProbeRoutes:
    """The endpoints; `router` has them. They read no store and need no thread: what many wait for fails no probe."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.router = APIRouter(tags=["probes"])
        for path, answered, said in (("/healthz", self.alive, _ALIVE), ("/readyz", self.ready, _READY)):
            self.router.add_api_route(path, answered, responses=said, openapi_extra=_OPEN, response_class=Response)

    async def alive(self) -> Response:
        """Whether the server answers."""
        return _answered(yes=True)

    async def ready(self) -> Response:
        """Whether it decides rounds, observes, or stands by to lead: with a policy in force."""
        return _answered(yes=self._services.ready())


def _answered(*, yes: bool) -> Response:
    return Response(YES if yes else NO, 200 if yes else 503, dict(BARE), media_type="text/plain")
