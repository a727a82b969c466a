"""Documents as HTTP answers, and how OpenAPI describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import Response

from solver.world.document import encode
from solver.world.quantities import Quantity


def answer(document: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A document in its one JSON form."""
    # Answers name jobs and people: no cache on the way keeps them.
    kept = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **(headers or {})}
    return Response(encode(document), status, kept, media_type="application/json")


def answers(kind: type[msgspec.Struct], status: int = 200) -> dict[int | str, dict[str, Any]]:
    """For a route's `responses`: this kind of document."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
    return {status: {"description": (kind.__doc__ or "").partition("\n")[0], "content": content}}


def schemas_of(kinds: list[type[msgspec.Struct]]) -> dict[str, Any]:
    """The JSON Schemas of documents and of all they hold, for OpenAPI's `components`."""
    _, components = msgspec.json.schema_components(
        kinds, schema_hook=_quantity_schema, ref_template="#/components/schemas/{name}"
    )
    return components


def _quantity_schema(kind: type[Any]) -> dict[str, Any]:
    if issubclass(kind, Quantity):
        return {"type": "string", "description": kind.expected}
    raise NotImplementedError(f"no schema for a {kind.__name__}")
