"""Pages as HTTP answers, under headers that let nothing foreign run."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from reconciler.access.caller import Caller
from reconciler.api.problems import RequestRefusedError
from reconciler.web.renderer import rendered

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Content Security Policy Level 3 and Trusted Types (W3C): a page runs this server's modules, and makes no markup of text."""

_PACKED_FROM: Final = 2_000
"""Bytes of a page."""

_NAVIGATION: Final = (
    ("/", "Cluster"),
    ("/queues", "Queues"),
    ("/jobs", "Jobs"),
    ("/use", "Use"),
    ("/time", "Time"),
    ("/rounds", "Rounds"),
    ("/policy", "Policy"),
    ("/health", "Health"),
)


def page(request: Request, template: str, status: int = HTTPStatus.OK, /, **values: Any) -> Response:
    """A page of the console, which nobody keeps."""
    caller: Caller | None = getattr(request.state, "caller", None)
    text = rendered(
        template, navigation=_NAVIGATION, path=request.url.path, user=caller.user if caller else "", **values
    )
    headers = {**HEADERS, "Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    body = text.encode()
    # There is no secret in it that what somebody else chose could be compared with.
    if "gzip" in request.headers.get("accept-encoding", "") and len(body) > _PACKED_FROM:
        body, headers["Content-Encoding"] = gzip.compress(body, 5), "gzip"
    return Response(body, status, headers, media_type="text/html; charset=utf-8")


def require_origin(request: Request) -> None:
    """Raises RequestRefusedError for a form that does not say where it comes from. One of another site is refused before."""
    if "origin" not in request.headers:
        raise RequestRefusedError(403, "origin-missing", "A form has to name its Origin.")
