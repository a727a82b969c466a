"""What the schemas say of a field, by its dotted path: type, limits, default, description and the fields below it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from reconciler.documents.schemas import KINDS, Schema, resolve_reference, schema_of
from reconciler.model.problem import did_you_mean
from solver.model.document import Document

_DEPTH_MAX = 12
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "mapping",
}
_LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "minItems": "at least {} item",
    "maxItems": "at most {} items",
    "maxLength": "at most {} characters",
    "maxProperties": "at most {} entries",
}


class UnknownFieldError(LookupError):
    """There is no such field; `fix` offers the nearest."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.fix = fix


class FieldHelp(Document, frozen=True):
    """One field. `path` begins with the kind; `[]` marks lists. `default` is JSON, "" where there is none."""

    path: str
    type: str
    description: str
    required: bool = False
    default: str = ""
    limits: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    fields: tuple[FieldHelp, ...] = ()


def kinds_help() -> tuple[FieldHelp, ...]:
    """Every kind, without its fields."""
    return tuple(_help(kind, schema_of(kind), f"{kind.lower()}.json", required=False, levels=0) for kind in KINDS)


def field_help(path: str) -> FieldHelp:
    """Help for `queue.spec.quota.max`, whatever the case of the kind; raises UnknownFieldError.

    Where a name is skipped (`queue.spec.max`) and only one field below has the last name, or only one so near, that one is meant.
    """
    first, *names = path.replace("[]", "").split(".")
    kind = next((known for known in KINDS if known.lower() == first.lower()), None)
    if kind is None:
        raise UnknownFieldError(f"there is no kind {first!r}", did_you_mean(first, (known.lower() for known in KINDS)))
    written, schema, base, required = kind, schema_of(kind), f"{kind.lower()}.json", False
    for name in names:
        written, schema, base, required = _step(written, schema, base, name)
    return _help(written, schema, base, required=required, levels=1)


def _step(written: str, schema: Schema, base: str, name: str) -> tuple[str, Schema, str, bool]:
    """From a field to the one of that name below it."""
    for inner_written, inner, inner_base in _below(written, schema, base):
        fields = inner.get("properties", {})
        if name in fields:
            return f"{inner_written}.{name}", fields[name], inner_base, name in inner.get("required", ())
    deeper = [found for found in _all_below(written, schema, base, 0) if found[0].endswith(f".{name}")]
    # What each way of a choice has means several things, and is not meant by its name alone.
    paths = Counter(found[0] for found in deeper)
    single = [found for found in deeper if paths[found[0]] == 1]
    nearest = [found for found in single if found[0].count(".") == min(path.count(".") for path, *_ in single)]
    if len(nearest) == 1:
        return nearest[0]
    direct = [field for _, inner, _ in _below(written, schema, base) for field in inner.get("properties", {})]
    fix = f"Did you mean {' or '.join(found[0] for found in deeper)}?" if deeper else did_you_mean(name, direct)
    raise UnknownFieldError(f"there is no field {name!r} in {written}", fix)


def _below(written: str, schema: Schema, base: str) -> Iterator[tuple[str, Schema, str]]:
    """The mappings right below a field: itself, the items of a list, the ways of a choice."""
    schema, base = resolve_reference(schema, base)
    if "items" in schema:
        yield from _below(f"{written}[]", schema["items"], base)
    elif "properties" in schema:
        yield written, schema, base
    else:
        for way in schema.get("oneOf", ()):
            yield from _below(written, way, base)


def _all_below(written: str, schema: Schema, base: str, depth: int) -> Iterator[tuple[str, Schema, str, bool]]:
    if depth < _DEPTH_MAX:
        for inner_written, inner, inner_base in _below(written, schema, base):
            for name, field in inner.get("properties", {}).items():
                found = f"{inner_written}.{name}"
                yield found, field, inner_base, name in inner.get("required", ())
                yield from _all_below(found, field, inner_base, depth + 1)


def _help(written: str, schema: Schema, base: str, *, required: bool, levels: int) -> FieldHelp:
    schema, base = resolve_reference(schema, base)
    fields = [
        _help(
            f"{inner_written}.{name}", field, inner_base, required=name in inner.get("required", ()), levels=levels - 1
        )
        for inner_written, inner, inner_base in (_below(written, schema, base) if levels else ())
        for name, field in inner.get("properties", {}).items()
    ]
    return FieldHelp(
        path=written,
        type=_type(schema, base),
        description=str(schema.get("description", "")),
        required=required,
        default=json.dumps(schema["default"]) if "default" in schema else "",
        limits=tuple(words.format(schema[keyword]) for keyword, words in _LIMITS.items() if keyword in schema),
        examples=tuple(map(str, schema.get("examples", ()))),
        fields=tuple(fields),
    )


def _type(schema: Schema, base: str) -> str:
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    kind: Any = schema.get("type", "object")
    if kind == "array":
        return f"list of {_type(*resolve_reference(schema['items'], base))}"
    if kind == "object":
        free = schema.get("additionalProperties")
        return f"mapping of names to {_type(*resolve_reference(free, base))}" if isinstance(free, dict) else "mapping"
    kinds = kind if isinstance(kind, list) else [kind]
    return str(schema.get("title") or " or ".join(_TYPES[name] for name in kinds))
