"""Covers the values of a job's secrets in what its tasks have written, with one star for each byte.

Best effort: a task may write a value encoded, cut or reversed, and a value that was replaced since is not known any more. As
many bytes as before, so that a reader's offsets stay true.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

BYTES_MIN: Final = 6
"""Shorter values are not looked for: `on` or `1234` would cover half of a log, and say by that what they are."""

Read = Callable[[int, int], bytes]
"""From an offset, up to so many bytes."""


def read_log_masked(log: Path, offset: int, limit: int, values: Collection[bytes]) -> bytes:
    """A piece of a log with the values covered. Raises OSError."""

    def read(start: int, length: int) -> bytes:
        file.seek(start)
        return file.read(length)

    with log.open("rb") as file:
        return read_masked(read, offset, limit, values)


def read_masked(read: Read, offset: int, limit: int, values: Collection[bytes]) -> bytes:
    """What `read` gives, with the values covered that lie in it, begin before it, or go on behind it."""
    sought = [value for value in values if len(value) >= BYTES_MIN]
    if not sought:
        return read(offset, limit)
    reach = max(map(len, sought)) - 1
    before = min(offset, reach)
    seen = read(offset - before, before + limit + reach)
    covered = bytearray(seen)
    for value in sought:
        for start in _occurrences(seen, value):
            covered[start : start + len(value)] = b"*" * min(len(value), len(seen) - start)
    return bytes(covered[before : before + limit])


def _occurrences(text: bytes, value: bytes) -> Iterator[int]:
    """Where it begins; at the end of the text a part of it counts too, since the rest may be yet to come."""
    start = text.find(value[:BYTES_MIN])
    while start >= 0:
        if text.startswith(value, start) or value.startswith(text[start:]):
            yield start
        start = text.find(value[:BYTES_MIN], start + 1)
