"""The last lines of a log, whatever its length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.lifecycle.jobs.tail import TAIL_BYTES, TAIL_LINES, last_lines, length_of, start_of_last_lines
from reconciler.protocols.backend import BackendUnreachableError, TaskStatus
from solver.model.cluster import NodeName
from solver.model.quantities import Instant
from solver.model.workload import JobName

TASK = TaskStatus(JobName("job"), 1, "worker", 0, NodeName("n1"), "failed", Instant(0), 1)


class Written:
    """Implements Logs over one text, and counts the reads."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.reads = 0

    def read_log(self, job: JobName, attempt: int, group: str, index: int, offset: int, limit: int) -> bytes:
        self.reads += 1
        return self.text[offset : offset + limit]


@pytest.mark.parametrize(
    "length", [0, 1, 2, 3, 4, 5, 255, 256, 257, TAIL_BYTES - 1, TAIL_BYTES, TAIL_BYTES + 1, 100_003]
)
def test_the_end_is_found(length: int) -> None:
    text = bytes(ord("a") + number % 26 for number in range(length))
    assert last_lines(Written(text), TASK) == text[-TAIL_BYTES:].decode()


def test_of_a_long_log_only_the_last_lines_are_kept() -> None:
    written = Written(b"".join(b"line %d\n" % number for number in range(1_000_000)))
    lines = last_lines(written, TASK).splitlines()
    assert lines == [f"line {number}" for number in range(1_000_000 - TAIL_LINES, 1_000_000)]
    assert written.reads < 60


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert last_lines(Written(b"\xff\xfeTraceback\n"), TASK) == "\ufffd\ufffdTraceback"


@pytest.mark.parametrize("error", [KeyError("no task"), BackendUnreachableError("gone"), PermissionError("denied")])
def test_a_log_that_can_not_be_read_is_said(error: Exception) -> None:
    class Unreadable:
        def read_log(self, job: JobName, attempt: int, group: str, index: int, offset: int, limit: int) -> bytes:
            raise error

    assert last_lines(Unreadable(), TASK).startswith("(its log can't be read: ")


@given(st.binary(max_size=300).map(lambda text: bytes(b"\nab"[byte % 3] for byte in text)), st.integers(0, 400))
def test_the_last_lines_begin_where_splitting_would_say(text: bytes, lines: int) -> None:
    def read(offset: int, limit: int) -> bytes:
        return text[offset : offset + limit]

    assert length_of(read) == len(text)
    expected = b"".join(text.splitlines(keepends=True)[-lines:]) if lines else b""
    assert text[start_of_last_lines(read, lines) :] == expected


def test_the_last_lines_of_a_log_of_many_blocks() -> None:
    text = b"".join(b"line %d\n" % number for number in range(100_000))

    def read(offset: int, limit: int) -> bytes:
        return text[offset : offset + limit]

    for lines in (1, 5_000, 60_000, 100_000, 200_000):
        assert text[start_of_last_lines(read, lines) :].splitlines() == text.splitlines()[-lines:]
