"""Pages as HTTP answers: Jinja2 templates that escape whatever they are given, under headers that let nothing foreign run."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response

from reconciler.access.caller import Caller
from reconciler.api.problems import RequestRefusedError

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
    ("/rounds", "Rounds"),
    ("/health", "Health"),
)


def _gpus(milli: int | None) -> str:
    """Thousandths of GPUs as people write them; a dash for no limit."""
    return "\N{EN DASH}" if milli is None else f"{milli / 1000:,.3f}".rstrip("0").rstrip(".")


_TEMPLATES: Final = Environment(
    loader=PackageLoader("reconciler.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters["gpus"] = _gpus
_TEMPLATES.filters["count"] = lambda number: f"{number:,}"


def page(request: Request, template: str, status: int = HTTPStatus.OK, /, **values: Any) -> Response:
    """A page of the console, which nobody keeps."""
    caller: Caller | None = getattr(request.state, "caller", None)
    text = _TEMPLATES.get_template(template).render(
        navigation=_NAVIGATION, path=request.url.path, user=caller.user if caller else "", **values
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
