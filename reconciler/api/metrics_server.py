"""Serves `/metrics` alone, on an address of its own: for a Prometheus that has no token of the API, and need not have one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from reconciler.access.secret_file import is_among
from reconciler.access.token_file import TokenFileError
from reconciler.api.guard import InsecureBindingError, bearer_of, is_loopback
from reconciler.api.server import HttpServer
from reconciler.connections.limits import ConnectionLimits
from reconciler.control.metrics import CONTENT_TYPE

LIMITS: Final = ConnectionLimits(connections_max=64, per_peer_max=32)
"""A few scrapers, each with a connection that it keeps."""


class MetricsServer(HttpServer):
    """Running. `text`: what is told; `token`: which ones count now, asked for each scrape; None: none is asked for.

    Raises InsecureBindingError for an address beyond loopback without a token, AddressError.
    """

    def __init__(
        self, text: Callable[[], bytes], host: str, port: int, token: Callable[[], Collection[str]] | None
    ) -> None:
        if token is None and not is_loopback(host):
            raise InsecureBindingError(
                f"refusing to show metrics on {host} to all that ask: they name queues and what these hold. "
                "Name a file with a token, --metrics-token FILE, or listen on 127.0.0.1"
            )
        self._text = text
        self._token = token
        app = Starlette(routes=[Route("/metrics", self._answer)])
        super().__init__(app, host, port, LIMITS, option="--metrics-listen")

    def _answer(self, request: Request) -> Response:
        """In a thread of its own: figures may be worked out, and the token is a file."""
        try:
            known = self._token is None or is_among(bearer_of(request), self._token)
        except TokenFileError:
            return PlainTextResponse("The file of --metrics-token holds no token any more: mend it.\n", 503)
        if not known:
            told = "Send the token of --metrics-token as `Authorization: Bearer TOKEN`.\n"
            return PlainTextResponse(told, 401, {"WWW-Authenticate": "Bearer"})
        return Response(self._text(), media_type=CONTENT_TYPE)
