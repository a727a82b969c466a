"""The log of a task: no more of it on disk than it may have, and nothing more while the disk is nearly full.

A task writes to its supervisor, by a pipe or a terminal, and the supervisor to the log. A task that wrote to the file itself could
print without end (`yes`), and fill the disk of the ledger before a look now and then could cut the file. A task never outlives its
supervisor, so it loses nothing by the pipe; and what does not fit is dropped, so it never waits for the disk.

The head of the log and its end are kept. What lies between is given back to the disk as a hole (fallocate(2)), so that every byte
keeps its offset: reading by offset and following go on where they were. The last bytes before the hole say what is missing, for
users who look into the file itself; `gap_of` says to readers what to step over.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import NamedTuple

BYTES_MIN = 2**20
"""What every log may have, whatever is asked for."""

BYTES_MAX_DEFAULT = 2**30

RESERVE_BYTES_MAX = 2**30
RESERVE_SHARE = 8
"""Logs leave free an eighth of the disk, at most 1 GiB: for the ledger, and for the files by which tasks end."""

NOTICE_BYTES = 256
_NOTICE = b"\n[quorate: "
_BLOCK = 65_536
"""What is cut out begins and ends at such bounds: the largest blocks of common file systems (XFS, and ext4 on 64 KiB pages)."""

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
"""linux/falloc.h"""

_LINE_BYTES_MAX = 4_096
"""For so long the beginning of a line is looked for behind a gap."""


class Gap(NamedTuple):
    """What is missing of a log: its bytes from `start` on, up to `end`."""

    start: int
    end: int


def gap_of(log: int) -> Gap | None:
    """The gap of an opened log; None: it is whole."""
    size = os.fstat(log).st_size
    hole = os.lseek(log, 0, os.SEEK_HOLE) if size else 0
    start = hole - NOTICE_BYTES
    # Zeros that the task itself wrote may be a hole, too, on file systems that compress.
    if hole >= size or start < 0 or os.pread(log, len(_NOTICE), start) != _NOTICE:
        return None
    try:
        end = os.lseek(log, hole, os.SEEK_DATA)
    except OSError:  # ENXIO: nothing follows.
        return Gap(start, size)
    # From a whole line on: half a line may be half a secret, which nothing would cover.
    line = os.pread(log, _LINE_BYTES_MAX, end).find(b"\n") + 1
    return Gap(start, end + line)


def notice_of(many: int) -> bytes:
    """What is said in place of so many bytes of a gap."""
    return _words(many, "the log has reached its limit (logs.maxPerTask of the SchedulingPolicy)")


class CappedLog:
    """Append to it, from one thread. It never raises: a task must not suffer for its log."""

    def __init__(self, path: str, bytes_max: int) -> None:
        self._log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        # Linux appends what is written to a place, too, where the file was opened to append: pwrite(2), BUGS.
        self._file = os.open(path, os.O_RDWR)
        bytes_max = max(bytes_max, BYTES_MIN)
        gap = gap_of(self._file)  # Of an earlier life of the task.
        self._head = gap.start + NOTICE_BYTES if gap else bytes_max // 2 // _BLOCK * _BLOCK
        self._cut = os.lseek(self._file, self._head, os.SEEK_DATA) if gap else 0
        self._tail_max = max(bytes_max - self._head, BYTES_MIN // 2)
        self._step = self._tail_max // 8 // _BLOCK * _BLOCK
        self._bytes_max = bytes_max
        self._dropped, self._why = 0, ""

    def append(self, content: bytes) -> None:
        """Bring it to the log, or count what is dropped of it."""
        if is_nearly_full(self._log):
            self._drop(len(content), "the disk is nearly full")
            return
        left = memoryview(content)
        try:
            self._make_room(len(content))
            self._say_what_was_dropped()
            while left:
                left = left[os.write(self._log, left) :]
        except OSError as error:
            self._drop(len(left), error.strerror or str(error))

    def close(self) -> None:
        """Say what was dropped at the end, if there is room for a line."""
        with suppress(OSError):
            self._say_what_was_dropped()
        os.close(self._log)
        os.close(self._file)

    def _drop(self, many: int, why: str) -> None:
        self._dropped, self._why = self._dropped + many, why

    def _say_what_was_dropped(self) -> None:
        if self._dropped:
            os.write(self._log, _words(self._dropped, self._why))
            self._dropped = 0

    def _make_room(self, more: int) -> None:
        """Cut out so much that this fits. Raises OSError where the file system can't."""
        end = os.fstat(self._log).st_size + more
        if end - max(self._cut, self._head) <= self._tail_max:
            return
        cut = (end - self._tail_max + self._step) // _BLOCK * _BLOCK
        notice = _words(cut - self._head + NOTICE_BYTES, f"this log may have {self._bytes_max} bytes", NOTICE_BYTES)
        # The notice first: by it readers know a gap, and without it what is cut out just now would be zeros to them.
        before = os.pread(self._file, NOTICE_BYTES, self._head - NOTICE_BYTES)
        os.pwrite(self._file, notice, self._head - NOTICE_BYTES)
        try:
            _punch(self._file, self._head, cut - self._head)
        except OSError:
            os.pwrite(self._file, before, self._head - NOTICE_BYTES)
            raise
        self._cut = cut


def is_nearly_full(opened: int | str) -> bool:
    """Whether the disk of a file has no more left than what logs leave free."""
    disk = os.statvfs(opened)
    reserve = min(RESERVE_BYTES_MAX, disk.f_blocks * disk.f_frsize // RESERVE_SHARE)
    return disk.f_bavail * disk.f_frsize < reserve


def _words(many: int, why: str, length: int = 0) -> bytes:
    line = _NOTICE + f"{many} bytes of output are left out here: {why}".encode()
    return line[: length - 2].ljust(length - 2) + b"]\n" if length else line + b"]\n"


def _punch(file: int, start: int, length: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(file, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_int64(start), ctypes.c_int64(length)) != 0:
        raise OSError(ctypes.get_errno(), f"its file system can't cut it ({os.strerror(ctypes.get_errno())})")
