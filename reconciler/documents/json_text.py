"""JSON to plain values without the places in it: for documents that programs send, in which hardly ever something is wrong."""

from __future__ import annotations

import json
from typing import Any, Final

from reconciler.documents.scalars import plain_value

BYTES_MAX: Final = 16 * 1024
"""Larger ones are read with places at once: nothing of so few bytes breaks a budget of YAML, but by its depth."""

_KEY_MAX: Final = 1_000
_READ_OTHERWISE: Final = (b"\\u", b"\\/", b"\x7f")


def plain_json(raw: bytes) -> Any:
    """The value, as YAML would have it; raises ValueError for what is no JSON, or what YAML refuses or reads otherwise.

    YAML takes some line breaks beyond ASCII, and escapes in two halves, for something else.
    """
    if len(raw) > BYTES_MAX or not raw.isascii() or any(mark in raw for mark in _READ_OTHERWISE):
        raise ValueError("to be read as YAML")
    try:
        return _DECODER.decode(raw.decode())
    except RecursionError as error:
        raise ValueError("too deep") from error


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) != len(pairs) or any(len(key) > _KEY_MAX for key in built):
        raise ValueError("a key that YAML refuses")
    return built


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_mapping, parse_int=plain_value, parse_float=plain_value, parse_constant=plain_value
)
