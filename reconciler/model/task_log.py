"""Where the logs of tasks are read, piece by piece: a part of a log may not be kept."""

from __future__ import annotations

from typing import Protocol, Self

from solver.model.workload import JobName


class GapNotice(bytes):
    """Said in place of a part of a log that is not kept; what is kept goes on at `end`."""

    end: int

    def __new__(cls, words: bytes, end: int) -> Self:
        """Bytes that know where the log goes on."""
        notice = super().__new__(cls, words)
        notice.end = end
        return notice


def offset_after(offset: int, piece: bytes) -> int:
    """Where the next piece of a log begins, after one that was read at `offset`."""
    return piece.end if isinstance(piece, GapNotice) else offset + len(piece)


def piece_at(offset: int, content: bytes, following: int) -> bytes:
    """A piece that came over a wire with where the next one begins; 0: not said."""
    return GapNotice(content, following) if following > offset + len(content) else content


class Logs(Protocol):
    """Where a task's output can be read."""

    def read_log(self, job: JobName, attempt: int, group: str, index: int, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes from `offset`; b"" at the end of what there is so far. Raises KeyError for an unknown task.

        A `GapNotice` where nothing is kept of the log at `offset`. `offset_after` says where the next piece begins.
        """
