"""The base of everything that crosses a wire or is stored: frozen structs with one JSON form and a digest."""

from __future__ import annotations

import hashlib
from threading import Lock
from typing import Any, Final, TypeVar

import msgspec

from solver.model.amounts import Amounts, read_amounts
from solver.model.quantities import decode_quantity, encode_quantity, number_of, quantity_of

API_VERSION: Final = "quorate.dev/v1"

T = TypeVar("T")

_LEARNING: Final = Lock()
_DECODERS: Final[dict[object, msgspec.json.Decoder[Any]]] = {}
_UNPACKERS: Final[dict[object, msgspec.msgpack.Decoder[Any]]] = {}


class Document(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Frozen data with camelCase JSON names; an unknown field is an error."""


def encode(value: object) -> bytes:
    """The one JSON form: sorted keys, quantities as people write them."""
    return msgspec.json.encode(value, enc_hook=encode_quantity, order="sorted")


def decode(text: bytes | str, kind: type[T]) -> T:
    """Read JSON as `kind`; raises msgspec.ValidationError (place and problem) or msgspec.DecodeError."""
    return _decoder(kind).decode(text)


def to_builtins(value: object) -> object:
    """The same as `encode`, as dicts and lists."""
    return msgspec.to_builtins(value, enc_hook=encode_quantity, order="sorted")


def from_builtins(value: object, kind: type[T]) -> T:
    """The same as `decode`, from dicts and lists."""
    _decoder(kind)
    return msgspec.convert(value, type=kind, dec_hook=_read)


def pack(value: object) -> bytes:
    """MessagePack with quantities as integers in their own units: for a process of the same version, and never kept."""
    return msgspec.msgpack.encode(value, enc_hook=number_of)


def unpack(packed: bytes, kind: Any) -> Any:
    """Read what `pack` wrote, in a tenth of the time that JSON takes; raises msgspec.ValidationError or msgspec.DecodeError."""
    found = _UNPACKERS.get(kind)
    if found is None:
        with _LEARNING:
            found = _UNPACKERS[kind] = msgspec.msgpack.Decoder(kind, dec_hook=_unpacked)
    return found.decode(packed)


def _read(kind: type[Any], written: object) -> Any:
    return read_amounts(written) if kind is Amounts else decode_quantity(kind, written)


def _unpacked(kind: type[Any], packed: object) -> Any:
    return read_amounts(packed) if kind is Amounts else quantity_of(kind, packed)


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Made by one thread at a time: msgspec learns a type at its first use, and two threads that do so at once end the process."""
    found = _DECODERS.get(kind)
    if found is None:
        with _LEARNING:
            found = _DECODERS[kind] = msgspec.json.Decoder(kind, dec_hook=_read)
    return found


def digest(value: object) -> str:
    """Names a value by its JSON form, the same on every machine. Equal values differ in it where one spells out a default."""
    return "sha256:" + hashlib.sha256(encode(value)).hexdigest()
