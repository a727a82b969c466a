"""Where the last lines of a task's log are, found without reading all of it."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.model.task_log import GapNotice, Logs
from reconciler.protocols.backend import BackendUnreachableError, TaskStatus

Read = Callable[[int, int], bytes]
"""Up to so many bytes (second) of a log from an offset (first); b"" at its end."""

TAIL_LINES = 20
TAIL_BYTES = 4_096
"""Enough for a traceback's last frames, and little enough to keep with every failed job."""

_BLOCK_BYTES = 65_536


def last_lines(logs: Logs, task: TaskStatus) -> str:
    """At most TAIL_LINES lines; says so in words where the log can't be read."""

    def read(offset: int, limit: int) -> bytes:
        return logs.read_log(task.job, task.attempt, task.group, task.index, offset, limit)

    try:
        end = length_of(read)
        start = max(0, end - TAIL_BYTES)
        piece = read(start, TAIL_BYTES)
        text = (read(piece.end, TAIL_BYTES) if isinstance(piece, GapNotice) else piece).decode(errors="replace")
    except (KeyError, OSError, BackendUnreachableError) as error:
        return f"(its log can't be read: {error})"
    return "\n".join(text.splitlines()[-TAIL_LINES:])


def start_of_last_lines(read: Read, lines: int) -> int:
    """The offset at which the last `lines` lines begin; of a log with a gap no further back than that."""
    start = length_of(read)
    # The end of the last line is not the beginning of another.
    wanted = lines + (read(start - 1, 1) == b"\n" if start else 0)
    while start and wanted > 0:
        size = min(start, _BLOCK_BYTES)
        block = read(start - size, size)
        if isinstance(block, GapNotice) or len(block) < size:
            return _behind_gap(read, start - size, start, wanted)
        if block.count(b"\n") >= wanted:
            return start - size + _place_of_nth_last_line_end(block, wanted) + 1
        wanted -= block.count(b"\n")
        start -= size
    return start


def _behind_gap(read: Read, low: int, start: int, wanted: int) -> int:
    """The same where there is a gap between `low` and `start`: at its place, unless enough lines are behind it."""
    piece = read(low, start - low)
    place = low if isinstance(piece, GapNotice) else low + len(piece)
    notice = piece if isinstance(piece, GapNotice) else read(place, _BLOCK_BYTES)
    if not isinstance(notice, GapNotice):
        return place  # It was cut between the two reads, and is read anew from there.
    block = read(notice.end, max(0, start - notice.end))
    if block.count(b"\n") >= wanted and not isinstance(block, GapNotice):
        return notice.end + _place_of_nth_last_line_end(block, wanted) + 1
    return place


def _place_of_nth_last_line_end(block: bytes, number: int) -> int:
    place = len(block)
    for _ in range(number):
        place = block.rindex(b"\n", 0, place)
    return place


def length_of(read: Read) -> int:
    """How long the log is, by doubling and halving: some thirty reads of one byte for a gigabyte."""
    if not read(0, 1):
        return 0
    above = 1
    while read(above, 1):
        above *= 2
    known = above // 2
    while above - known > 1:
        middle = (known + above) // 2
        known, above = (middle, above) if read(middle, 1) else (known, middle)
    return above
