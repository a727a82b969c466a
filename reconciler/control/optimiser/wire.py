"""What parent and child say to each other: MessagePack in frames with their length before them, and no pickle."""

from __future__ import annotations

import struct
from typing import IO, Any, Final, TypeVar, get_args

import msgspec
import numpy as np

from solver.milp.optimiser import Effort, Program, Solution
from solver.model.arrays import Floats

T = TypeVar("T")

READY: Final = b"ready"
"""The child's first frame: the solver is imported."""

_LENGTH = struct.Struct(">Q")
_FRAME_BYTES_MAX = 2**32 - 1  # What MessagePack's longest binary can hold; a longer one is garbage.


class WireError(Exception):
    """The other side ended, or did not speak the protocol."""


class OptimiserQuestion(msgspec.Struct, frozen=True):
    """One program to run, from where, and how hard to try."""

    program: Program
    start: Floats
    effort: Effort


class OptimiserAnswer(msgspec.Struct, frozen=True):
    """The best solution found, or None."""

    solution: Solution | None


def write_frame(stream: IO[bytes], content: bytes) -> None:
    """Send one frame. Raises OSError where the other end is closed."""
    stream.write(_LENGTH.pack(len(content)) + content)
    stream.flush()


def read_frame(stream: IO[bytes], bytes_max: int = _FRAME_BYTES_MAX) -> bytes:
    """Receive one frame. Raises WireError at the end of the stream or for a frame that is too long."""
    (length,) = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))
    if length > bytes_max:
        raise WireError(f"announced a frame of {length} bytes, where at most {bytes_max} make sense")
    return _read_exactly(stream, length)


def encode(message: OptimiserQuestion | OptimiserAnswer) -> bytes:
    """A message as the content of a frame."""
    return msgspec.msgpack.encode(message, enc_hook=_array_to_bytes)


def decode(content: bytes, kind: type[T]) -> T:
    """A frame's content as a message. Raises WireError."""
    try:
        return msgspec.msgpack.decode(content, type=kind, dec_hook=_array_from_bytes)
    except (msgspec.DecodeError, ValueError) as error:
        name = kind.__name__.removeprefix("Optimiser").lower()
        raise WireError(f"did not send a well-formed {name}: {error}") from error


def _read_exactly(stream: IO[bytes], length: int) -> bytes:
    content = stream.read(length)
    if len(content) < length:
        raise WireError("ended in the middle of a conversation")
    return content


def _array_to_bytes(value: object) -> bytes:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    raise NotImplementedError(f"no way to send a {type(value).__name__}")


def _array_from_bytes(kind: Any, content: object) -> object:
    """Arrays are one-dimensional; their element type is that of the field, `ndarray[shape, dtype[float64]]`."""
    if isinstance(content, bytes):
        _, dtype = get_args(kind)
        return np.frombuffer(content, dtype=get_args(dtype)[0])
    raise NotImplementedError(f"no way to receive a {kind}")
