"""Documents as HTTP answers, and how OpenAPI describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from fastapi import Response

from solver.model.document import encode

Responses = dict[int | str, dict[str, Any]]
"""For a route's `responses`: what OpenAPI says of each status."""

BARE: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
"""Answers name jobs and people: no cache on the way keeps them."""


def answer(
    document: object,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    media_type: str = "application/json",
) -> Response:
    """A document in its one JSON form."""
    return Response(encode(document), status, {**BARE, **(headers or {})}, media_type=media_type)


def answers(kind: type[msgspec.Struct], *also: Responses) -> Responses:
    """This kind of document with status 200, and what else there is."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
    joined: Responses = {200: {"description": (kind.__doc__ or "").partition("\n")[0], "content": content}}
    for responses in also:
        joined |= responses
    return joined


def refuses(*statuses: int) -> Responses:
    """A problem with each of these statuses."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ApiProblem"}}}
    return {status: {"description": _MEANING[status], "content": content} for status in statuses}


_MEANING: Final = {
    401: "The caller has no valid token.",
    403: "The caller may not do this, or comes from an address that may not.",
    404: "There is no such thing.",
    409: "It does not fit how things stand: a job of that name exists, no such revision is held, Git is not followed.",
    413: "The body is too large.",
    422: "A parameter or the document is wrong, or the job could never run.",
    500: "The server failed; its log says how.",
    503: "Not now: the store, the policy, the backend or the identity provider is not there.",
}

ALWAYS: Final = refuses(401, 403, 422, 500, 503)
"""What any route may answer."""
