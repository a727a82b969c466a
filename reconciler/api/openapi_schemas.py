"""Documents as JSON Schemas for OpenAPI, made from their types: what a field may hold, to the last leaf.

Not msgspec's own generator: it can't write a default that is a quantity, and has no schema for one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import inspect

from solver.model.quantities import MilliGpu

Schema = dict[str, Any]

_SCALARS: Final[dict[type[inspect.Type], Schema]] = {
    inspect.StrType: {"type": "string"},
    inspect.IntType: {"type": "integer"},
    inspect.FloatType: {"type": "number"},
    inspect.BoolType: {"type": "boolean"},
    inspect.DecimalType: {"type": "string", "format": "decimal"},
    inspect.NoneType: {"type": "null"},
    inspect.AnyType: {},
}


def schemas_of(kinds: Iterable[type[msgspec.Struct]]) -> dict[str, Schema]:
    """The documents and all that they are made of, by name. Raises ValueError where two types have one name."""
    found: dict[type[msgspec.Struct], Schema] = {}
    waiting = list(kinds)
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            inner: list[type[msgspec.Struct]] = []
            found[kind] = _struct(inspect.type_info(kind), inner)
            waiting += inner
    named = {name_of(kind): schema for kind, schema in sorted(found.items(), key=lambda item: name_of(item[0]))}
    if len(named) != len(found):
        raise ValueError(f"two documents have one name among {sorted(map(name_of, found))}")
    return named


def name_of(kind: type[msgspec.Struct]) -> str:
    """What a type is called in the description. One way of several says by which field it is known: a reason may be
    called like a document. `CapacityReason` is `Capacity-code`: the field says already that it is a reason."""
    tag = kind.__struct_config__.tag_field
    return f"{kind.__name__.removesuffix('Reason')}-{tag}" if tag else kind.__name__


def _struct(kind: inspect.Type, inner: list[type[msgspec.Struct]]) -> Schema:
    assert isinstance(kind, inspect.StructType)  # noqa: S101  (only structs come in)
    properties = {field.encode_name: _schema(field.type, inner) for field in kind.fields}
    required = [field.encode_name for field in kind.fields if field.required]
    if kind.tag_field is not None:
        properties[kind.tag_field] = {"const": kind.tag}
        required.append(kind.tag_field)
    return {
        "type": "object",
        "description": kind.cls.__doc__ or "",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _schema(kind: inspect.Type, inner: list[type[msgspec.Struct]]) -> Schema:
    match kind:
        case inspect.StructType():
            inner.append(kind.cls)
            return {"$ref": f"#/components/schemas/{name_of(kind.cls)}"}
        case inspect.UnionType():
            return {"anyOf": [_schema(each, inner) for each in kind.types]}
        case inspect.VarTupleType() | inspect.FrozenSetType() | inspect.ListType():
            return {"type": "array", "items": _schema(kind.item_type, inner)}
        case inspect.TupleType():
            parts = [_schema(each, inner) for each in kind.item_types]
            return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
        case inspect.DictType():
            return {"type": "object", "additionalProperties": _schema(kind.value_type, inner)}
        case inspect.LiteralType():
            return {"enum": list(kind.values)}
        case inspect.CustomType():
            # Quantities are written as people write them; of GPUs alone that is a number.
            return {"type": "number"} if kind.cls is MilliGpu else {"type": "string"}
        case _:
            return _SCALARS[type(kind)]
