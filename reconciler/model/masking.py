"""Covers the values of a job's secrets in what its tasks have written, with one star for each byte.

Best effort: a task may write a value encoded, cut or reversed, and a value that was replaced since is not known any more. As
many bytes as before, so that a reader's offsets stay true.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from reconciler.model.task_log import GapNotice
from reconciler.supervisor.log import gap_of, notice_of

BYTES_MIN: Final = 6
"""Shorter values are not looked for: `on` or `1234` would cover half of a log, and say by that what they are."""

Read = Callable[[int, int], bytes]
"""From an offset, up to so many bytes."""


def read_log_masked(log: Path, offset: int, limit: int, values: Collection[bytes]) -> bytes:
    """A piece of a log with the values covered. Raises OSError."""

    def read(start: int, length: int) -> bytes:
        if gap and gap.start <= start < gap.end:
            return GapNotice(notice_of(gap.end - start)[:length], gap.end)
        file.seek(start)
        return file.read(min(length, gap.start - start) if gap and start < gap.start else length)

    with log.open("rb") as file:
        gap = gap_of(file.fileno())
        while True:
            piece, before, gap = read_masked(read, offset, limit, values), gap, gap_of(file.fileno())
            # What was cut out while it was read is zeros, and is read as the gap that it is now.
            was_cut = gap and gap != before and offset < gap.end and offset + len(piece) > gap.start
            if isinstance(piece, GapNotice) or not was_cut:
                return piece


def read_masked(read: Read, offset: int, limit: int, values: Collection[bytes]) -> bytes:
    """What `read` gives, with the values covered that lie in it, begin before it, or go on behind it.

    `read` may give a GapNotice, or less than it is asked for where a gap follows.
    """
    sought = [value for value in values if len(value) >= BYTES_MIN]
    if not sought:
        return read(offset, limit)
    reach = max(map(len, sought)) - 1
    before = min(offset, reach)
    seen = read(offset - before, before + limit + reach)
    if isinstance(seen, GapNotice):
        # What is kept goes on between there and `offset`; or `offset` lies in the gap, too, and so it is said there.
        before = max(0, offset - seen.end)
        seen = read(offset - before, before + limit + reach)
    if len(seen) <= before or isinstance(seen, GapNotice):
        return read(offset, limit)
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
