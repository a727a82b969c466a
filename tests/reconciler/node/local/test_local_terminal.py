"""The terminal that a supervisor gives its task, and who attaches to it: real processes at a real pseudo-terminal."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.node.local.terminals import LocalLine
from reconciler.protocols.backend import Activity, Cursor, Epoch, StartGang, StopGang, TaskStatus
from reconciler.protocols.terminals import NoTerminalError, TerminalEnd, Window
from reconciler.supervisor.taskfiles import TERMINAL
from reconciler.supervisor.terminal import SCROLLBACK_BYTES
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from tests.contracts.local_worlds import LocalWorld, eventually, local_world

JOB, ONE = JobName("job"), Epoch(1)
PATIENCE_S = 60


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    # As deep as state folders are: the name of a socket may be 107 bytes long at most.
    deep = tmp_path / ("deep" * 20)
    deep.mkdir()
    with local_world(deep) as made:
        yield made


def begin(world: LocalWorld, script: str, terminal: bool = True) -> Path:
    """Start it, and wait until it runs; the task's folder."""
    spec = JobSpec(QueueName("q"), (TaskGroup("w", 1, Shape()),), command=("sh", "-c", script), terminal=terminal)
    spec = msgspec.structs.replace(spec, type="interactive")
    world.backend.submit(StartGang(JOB, 1, (TaskPlacement("w", 0, NodeName("n1")),), spec, Duration(2_000)), ONE)
    eventually(lambda: task(world).state == "running")
    return world.state / "live" / "job.1" / "w.0"


def task(world: LocalWorld) -> TaskStatus:
    (status,) = world.backend.changes(Cursor(0)).tasks
    return status


def attach(world: LocalWorld) -> LocalLine:
    return world.backend.open_terminal(JOB, 1, "w", 0)


def patiently(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work

    asyncio.run(bounded())


async def sees(line: LocalLine, text: str) -> bytes:
    """Everything shown until then."""
    seen = b""
    while text.encode() not in seen:
        shown = await line.receive()
        assert isinstance(shown, bytes), f"{shown} instead of {text!r} after {seen!r}"
        seen += shown
    return seen


async def end(line: LocalLine) -> TerminalEnd:
    while not isinstance(shown := await line.receive(), TerminalEnd):
        assert shown is not None
    return shown


def test_what_is_typed_is_read_and_what_is_shown_is_in_the_log(world: LocalWorld) -> None:
    folder = begin(world, "test -t 0 && test -t 1 && test -t 2; echo at a terminal: $?; read a; echo got $a; exit 3")
    assert stat.S_IMODE((folder / TERMINAL).stat().st_mode) == 0o600

    async def session() -> None:
        line = attach(world)
        await sees(line, "at a terminal: 0")
        await line.send(b"this\r")
        await sees(line, "got this")
        assert await end(line) == TerminalEnd(3, stopped=False)
        assert await line.receive() is None
        line.close()

    patiently(session())
    eventually(lambda: task(world).state == "failed")
    assert task(world).exit_code == 3
    assert b"got this" in world.backend.read_log(JOB, 1, "w", 0, 0, 1_000)
    assert not (folder / TERMINAL).exists()
    with pytest.raises(NoTerminalError, match="it may have ended"):
        attach(world)


def test_the_window_is_that_of_who_spoke_last(world: LocalWorld) -> None:
    begin(world, "trap 'echo now $(stty size)' WINCH; stty size; while :; do sleep 0.02; done")

    async def session() -> None:
        one, other = attach(world), attach(world)
        await sees(one, "24 80")
        await one.send(Window(40, 120))
        await sees(one, "now 40 120")
        await other.send(Window(50, 132))
        await sees(one, "now 50 132")
        one.close()
        other.close()

    patiently(session())


def test_all_who_are_attached_see_and_may_type(world: LocalWorld) -> None:
    begin(world, "while read word; do echo heard $word; done")

    async def session() -> None:
        one, other = attach(world), attach(world)
        await one.send(b"this\r")
        await sees(other, "heard this")
        await other.send(b"that\r")
        await sees(one, "heard that")
        one.close()
        third = attach(world)
        seen = await sees(third, "heard that")
        assert b"heard this" in seen, "who comes later is shown what was shown before"
        third.close()
        other.close()

    patiently(session())


def test_what_is_shown_again_is_bounded_and_the_log_has_it_all(world: LocalWorld) -> None:
    begin(world, "seq 100000; echo over; read end")

    async def session() -> None:
        eventually(lambda: b"over" in log_of(world)[-100:])
        line = attach(world)
        seen = await sees(line, "over")
        assert SCROLLBACK_BYTES // 2 < len(seen) <= SCROLLBACK_BYTES + 100
        line.close()

    patiently(session())
    assert log_of(world).startswith(b"1\r\n2\r\n")


def log_of(world: LocalWorld) -> bytes:
    return world.backend.read_log(JOB, 1, "w", 0, 0, 2**20)


@pytest.mark.thorough
def test_who_takes_nothing_holds_up_the_task_for_a_while_only(world: LocalWorld) -> None:
    begin(world, "read go; yes | head -c 2000000; echo; echo over; read end")

    async def session() -> None:
        sleeper, awake = attach(world), attach(world)
        await awake.send(b"go\r")
        await sees(awake, "over")
        sleeper.close()
        awake.close()

    patiently(session())


def test_a_task_that_is_told_to_stop_is_hung_up_on(world: LocalWorld) -> None:
    # A shell at a terminal ignores SIGTERM.
    begin(world, "trap '' TERM; trap 'echo hung up; exit 5' HUP; echo ready; while :; do sleep 0.02; done")

    async def session() -> None:
        line = attach(world)
        await sees(line, "ready")
        world.backend.submit(StopGang(JOB, 1, Duration(30_000)), ONE)
        await sees(line, "hung up")
        assert await end(line) == TerminalEnd(5, stopped=True)
        line.close()

    patiently(session())


def test_typing_counts_as_doing_something_though_nothing_is_shown(world: LocalWorld) -> None:
    begin(world, "stty -echo; echo ready; exec cat > /dev/null")

    def activity() -> Activity:
        said = task(world).activity
        return said or Activity(Instant(0), Instant(0))

    async def session() -> None:
        line = attach(world)
        await sees(line, "ready")
        eventually(lambda: activity().seen_at - activity().active_at > 1_000)
        before = activity().active_at
        await line.send(b"x\r")
        eventually(lambda: activity().active_at > before)
        line.close()

    patiently(session())


def test_a_task_that_closes_its_terminal_may_open_it_again(world: LocalWorld) -> None:
    begin(world, "exec <&- >&- 2>&-; sleep 0.5; exec </dev/tty >/dev/tty; echo back; read end; echo at $end")

    async def session() -> None:
        line = attach(world)
        await sees(line, "back")
        await line.send(b"last\r")
        await sees(line, "at last")
        line.close()

    patiently(session())


def test_without_one_there_is_none_to_attach_to(world: LocalWorld) -> None:
    begin(world, "test -t 1 || echo no terminal; sleep 600", terminal=False)
    eventually(lambda: b"no terminal" in log_of(world))
    for group, index in (("w", 0), ("w", 1), ("nobody", 0), ("../..", 0)):
        with pytest.raises(NoTerminalError):
            world.backend.open_terminal(JOB, 1, group, index)
