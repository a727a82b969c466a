"""Documents as HTTP answers, and how OpenAPI describes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from fastapi import Response

from solver.world.document import encode


def answer(document: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A document in its one JSON form."""
    # Answers name jobs and people: no cache on the way keeps them.
    kept = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **(headers or {})}
    return Response(encode(document), status, kept, media_type="application/json")


def answers(kind: type[msgspec.Struct], status: int = 200) -> dict[int | str, dict[str, Any]]:
    """For a route's `responses`: this kind of document."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
    return {status: {"description": (kind.__doc__ or "").partition("\n")[0], "content": content}}


def schemas_of(kinds: Iterable[type[msgspec.Struct]]) -> dict[str, Any]:
    """Documents by name, each with its fields, for OpenAPI's `components`; schemas/ has the whole of those in Git.

    Not msgspec's own generator: it can't write a default that is a quantity.
    """
    return {kind.__name__: _outline(kind) for kind in kinds}


def _outline(kind: type[msgspec.Struct]) -> dict[str, Any]:
    fields = msgspec.structs.fields(kind)
    return {
        "type": "object",
        "description": kind.__doc__ or "",
        "properties": {field.encode_name: {} for field in fields},
        "required": [field.encode_name for field in fields if field.required],
    }
