"""The last lines of a task's log, found without reading all of it."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.backend import BackendUnreachableError, Logs, TaskStatus

TAIL_LINES = 20
TAIL_BYTES = 4_096
"""Enough for a traceback's last frames, and little enough to keep with every failed job."""


def last_lines(logs: Logs, task: TaskStatus) -> str:
    """At most TAIL_LINES lines; says so in words where the log can't be read."""

    def read(offset: int, limit: int) -> bytes:
        return logs.read_log(task.job, task.attempt, task.group, task.index, offset, limit)

    try:
        end = _length(read)
        text = read(max(0, end - TAIL_BYTES), TAIL_BYTES).decode(errors="replace")
    except (KeyError, OSError, BackendUnreachableError) as error:
        return f"(its log can't be read: {error})"
    return "\n".join(text.splitlines()[-TAIL_LINES:])


def _length(read: Callable[[int, int], bytes]) -> int:
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
