"""The base of everything that crosses a wire or is stored: frozen structs with one JSON form and a digest."""

from __future__ import annotations

import hashlib
from typing import Final, TypeVar

import msgspec

from solver.world.quantities import decode_quantity, encode_quantity

API_VERSION: Final = "quorate.dev/v1"

T = TypeVar("T")


class Document(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Frozen data with camelCase JSON names; an unknown field is an error."""


def encode(value: object) -> bytes:
    """The one JSON form: sorted keys, quantities as people write them."""
    return msgspec.json.encode(value, enc_hook=encode_quantity, order="sorted")


def decode(text: bytes | str, kind: type[T]) -> T:
    """Read JSON as `kind`; raises msgspec.ValidationError (place and problem) or msgspec.DecodeError."""
    return msgspec.json.decode(text, type=kind, dec_hook=decode_quantity)


def to_builtins(value: object) -> object:
    """The same as `encode`, as dicts and lists."""
    return msgspec.to_builtins(value, enc_hook=encode_quantity, order="sorted")


def from_builtins(value: object, kind: type[T]) -> T:
    """The same as `decode`, from dicts and lists."""
    return msgspec.convert(value, type=kind, dec_hook=decode_quantity)


def digest(value: object) -> str:
    """Names a value by its content: equal values have equal digests, on every machine."""
    return "sha256:" + hashlib.sha256(encode(value)).hexdigest()
