"""A task's log has a limit on disk: its head and its end are kept, with true offsets, and it says what is left out between."""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from reconciler.lifecycle.jobs.tail import length_of, start_of_last_lines
from reconciler.model.masking import read_log_masked
from reconciler.model.task_log import GapNotice, offset_after
from reconciler.node.local.folders import StateFolders
from reconciler.protocols.backend import Epoch
from reconciler.supervisor import log
from reconciler.supervisor.log import CappedLog, gap_of
from solver.model.quantities import Memory
from solver.model.workload import JobName
from tests.contracts.backend_world import start
from tests.contracts.local_worlds import LocalWorld, eventually, local_world

JOB, ONE, CAP = JobName("job"), Epoch(1), 2**20
LINE = b"line %012d\n"
LINE_BYTES = len(LINE % 0)
LINES = 8 * CAP // LINE_BYTES
PRINTS = f"import sys\nfor n in range({LINES}): sys.stdout.write('line %012d\\n' % n)"

Read = Callable[[int, int], bytes]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    with local_world(tmp_path) as made:
        yield made


def reader(path: Path, *values: bytes) -> Read:
    return lambda offset, limit: read_log_masked(path, offset, limit, values)


def all_of(read: Read, limit: int, offset: int = 0) -> list[tuple[int, bytes]]:
    """The pieces with their offsets, as `quorate logs` reads them."""
    pieces = []
    while piece := read(offset, limit):
        pieces.append((offset, piece))
        offset = offset_after(offset, piece)
    return pieces


def require_head_and_end(pieces: list[tuple[int, bytes]]) -> None:
    (at,) = [place for place, (_, piece) in enumerate(pieces) if isinstance(piece, GapNotice)]
    head, end = (b"".join(piece for _, piece in part) for part in (pieces[:at], pieces[at + 1 :]))
    whole = b"".join(LINE % number for number in range(LINES))
    assert whole.startswith(head)
    assert whole.endswith(end)
    _, notice = pieces[at]
    assert isinstance(notice, GapNotice)
    assert notice.end == len(whole) - len(end)
    (said,) = re.findall(rb"^\n\[quorate: (\d+) bytes of output are left out here: .*maxPerTask", notice)
    assert int(said) == len(whole) - len(head) - len(end)
    assert min(len(head), len(end)) > CAP // 3
    assert end.startswith(b"line ")


@pytest.mark.parametrize("terminal", [False, True])
def test_a_chatty_task_keeps_within_its_limit(world: LocalWorld, terminal: bool) -> None:
    order = start(world, JOB, ("python3", "-c", PRINTS), (0, (0,)))
    spec = msgspec.structs.replace(order.spec, terminal=terminal)
    world.backend.submit(msgspec.structs.replace(order, spec=spec, log_max=Memory(CAP)), ONE)
    eventually(lambda: [task.state for task in world.backend.changes(0).tasks] == ["succeeded"])  # type: ignore[arg-type]

    def read(offset: int, limit: int) -> bytes:
        return world.backend.read_log(JOB, 1, "worker", 0, offset, limit)

    folder = StateFolders(world.state).attempt(JOB, 1)
    assert sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) < CAP + 65_536
    if not terminal:  # A terminal writes its lines' ends in its own way.
        require_head_and_end(all_of(read, 1_000_000))
        require_head_and_end(all_of(read, 7_777))
    tail = read(start_of_last_lines(read, 3), 1_000).replace(b"\r", b"")
    assert tail == b"".join(LINE % number for number in range(LINES - 3, LINES))
    (path,) = folder.rglob("log")
    assert b"bytes of output are left out here: this log may have 1048576 bytes" in path.read_bytes()


def test_a_log_within_its_limit_is_as_the_task_wrote_it(world: LocalWorld) -> None:
    order = start(world, JOB, ("python3", "-c", "print('x' * 1000000)"), (0, (0,)))
    world.backend.submit(msgspec.structs.replace(order, log_max=Memory(CAP)), ONE)
    eventually(lambda: [task.state for task in world.backend.changes(0).tasks] == ["succeeded"])  # type: ignore[arg-type]
    assert world.backend.read_log(JOB, 1, "worker", 0, 0, 2 * CAP) == b"x" * 1_000_000 + b"\n"


def write(path: Path, lines: range, bytes_max: int = CAP) -> None:
    capped = CappedLog(str(path), bytes_max)
    for some in (lines[at : at + 500] for at in range(0, len(lines), 500)):
        capped.append(b"".join(LINE % number for number in some))
    capped.close()


def test_the_next_life_of_a_task_goes_on_with_its_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, range(LINES // 2))
    write(path, range(LINES // 2, LINES))
    require_head_and_end(all_of(reader(path), 100_000))
    assert path.stat().st_blocks * 512 <= CAP


@pytest.mark.parametrize(("before", "after"), [(4 * CAP, CAP), (CAP, 4 * CAP)])
def test_another_limit_holds_from_the_next_life_on(tmp_path: Path, before: int, after: int) -> None:
    path = tmp_path / "log"
    write(path, range(LINES), before)
    write(path, range(LINES, 2 * LINES), after)
    assert path.stat().st_blocks * 512 <= 2 * CAP + after
    _, *_, (_, end) = all_of(reader(path), 10 * CAP)
    assert end.endswith(LINE % (2 * LINES - 1))


def test_every_offset_inside_the_gap_leads_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, range(LINES))
    with path.open("rb") as file:
        gap = gap_of(file.fileno())
    assert gap is not None
    for values in ((), (b"not in it",)):
        read = reader(path, *values)
        for offset in (gap.start, gap.start + 1, gap.start + 300, (gap.start + gap.end) // 2, gap.end - 1):
            piece = read(offset, 1_000)
            assert isinstance(piece, GapNotice), offset
            assert piece.end == gap.end
            assert b"\n[quorate: %d bytes" % (gap.end - offset) in bytes(piece)
        assert (
            read(gap.start - 5, 1_000)
            == (LINE % ((gap.start - 1) // LINE_BYTES) + LINE)[
                (gap.start - 5) % LINE_BYTES : (gap.start - 5) % LINE_BYTES + 5
            ]
        )
        assert read(gap.end, LINE_BYTES) == LINE % (gap.end // LINE_BYTES)
        assert read(gap.end + 3, 4) == (LINE % (gap.end // LINE_BYTES))[3:7]


def test_secrets_are_covered_on_both_sides_of_the_gap(tmp_path: Path) -> None:
    path, secret = tmp_path / "log", b"s3cret-value"
    capped = CappedLog(str(path), CAP)
    for _ in range(LINES // 500):
        capped.append((b"line " + secret + b"\n") * 500)
    capped.close()
    pieces = all_of(reader(path, secret), 99_991)
    assert any(isinstance(piece, GapNotice) for _, piece in pieces)
    told = b"".join(piece for _, piece in pieces)
    assert b"ret-val" not in told
    assert set(told.split(b"\n[quorate")[1].split(b"]\n", 1)[1].splitlines()) == {b"line " + b"*" * len(secret)}


def test_a_log_that_is_cut_while_it_is_read_shows_no_zeros(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, range(10))
    over = threading.Event()

    def go_on() -> None:
        capped, number = CappedLog(str(path), CAP), 10
        while not over.is_set():
            capped.append(b"".join(LINE % each for each in range(number, number + 1_000)))
            number += 1_000
        capped.close()

    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        offset, gaps, read = 0, 0, reader(path)
        while gaps < 20:
            piece = read(offset, 300_000)
            assert b"\0" not in piece
            gaps += isinstance(piece, GapNotice)
            offset = offset_after(offset, piece)
    finally:
        over.set()
        writer.join()


@pytest.mark.parametrize("lines", [1, 50, 10**6])
def test_the_last_lines_of_a_cut_log(tmp_path: Path, lines: int) -> None:
    """Where more are asked for than are kept behind the gap, they begin with what it says."""
    path = tmp_path / "log"
    write(path, range(LINES))
    read = reader(path)
    assert length_of(read) == LINES * LINE_BYTES
    told = b"".join(piece for _, piece in all_of(read, 100_000, start_of_last_lines(read, lines)))
    if lines <= 50:
        assert told == b"".join(LINE % number for number in range(LINES - lines, LINES))
    else:
        assert told.startswith(b"\n[quorate: ")
        assert told.endswith(LINE % (LINES - 1))


def test_a_nearly_full_disk_gets_no_more_and_the_log_says_how_much_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    capped = CappedLog(str(path), CAP)
    capped.append(b"one\n")
    with monkeypatch.context() as full:
        full.setattr(log, "is_nearly_full", lambda _: True)
        capped.append(b"lost\n")
        capped.append(b"lost, too\n")
    capped.append(b"two\n")
    capped.close()
    assert path.read_bytes() == (
        b"one\n\n[quorate: 15 bytes of output are left out here: the disk is nearly full]\ntwo\n"
    )


def test_where_a_file_system_cannot_cut_the_head_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "its file system can't cut it (Operation not supported)")

    monkeypatch.setattr(log, "_punch", refuse)
    path = tmp_path / "log"
    write(path, range(LINES))
    assert path.stat().st_size < CAP + 200
    said = rb"^\[quorate: \d+ bytes of output are left out here: its file system can't cut it .*\]$"
    assert re.search(said, path.read_bytes(), re.MULTILINE)


def test_a_full_disk_is_no_error_of_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capped, real = CappedLog(str(tmp_path / "log"), CAP), os.write

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    capped.append(b"lost\n")
    monkeypatch.setattr(os, "write", real)
    capped.close()
    assert b"5 bytes of output are left out here: No space left on device" in (tmp_path / "log").read_bytes()
