"""The local supervisor's watch: what counts as doing something, on a clock that the test moves."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from reconciler.node.local.tasks import TaskActivity
from reconciler.supervisor import activity, processes, taskfiles
from reconciler.supervisor.activity import ActivityWatch
from reconciler.supervisor.processes import children_of, cpu_s_of_descendants
from tests.contracts.local_worlds import eventually

EVERY_S = 10.0
BUSY_FOR_A_WHILE = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"


class Clock:
    now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The task's folder is the working folder, and the clock stands still."""
    monkeypatch.chdir(tmp_path)
    told = Clock()
    monkeypatch.setattr(time, "monotonic", told.monotonic)
    return told


@pytest.fixture
def no_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests' children use of a CPU is nothing to this one."""
    monkeypatch.setattr(processes, "cpu_s_of_descendants", lambda: 0.0)


def idle_s(clock: Clock, watch: ActivityWatch, after_s: float) -> float:
    return seen(clock, watch, after_s).idle_ms / 1_000


def seen(clock: Clock, watch: ActivityWatch, after_s: float) -> TaskActivity:
    clock.now_s += after_s
    watch.look()
    return msgspec.json.decode(Path(taskfiles.ACTIVITY).read_bytes(), type=TaskActivity)


@pytest.mark.usefixtures("no_cpu")
def test_a_line_in_the_log_is_told_apart(clock: Clock) -> None:
    watch, told = ActivityWatch(EVERY_S), []
    for line in ("", "one", "", ""):
        with Path(taskfiles.LOG).open("a") as log:
            log.write(line)
        found = seen(clock, watch, 10)
        told.append((found.idle_ms, found.log_idle_ms))
    assert told == [(10_000, 10_000), (20_000, 0), (30_000, 10_000), (40_000, 20_000)]


@pytest.mark.usefixtures("no_cpu")
def test_what_is_typed_is_something_and_told_apart_from_the_cpu(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, used = iter([0, 3, 3]), iter([0.0, 0.0, 5.0])
    monkeypatch.setattr(processes, "cpu_s_of_descendants", lambda: next(used))
    watch = ActivityWatch(EVERY_S, lambda: next(keys))
    told = [(found.idle_ms, found.typed_idle_ms) for found in (seen(clock, watch, 10), seen(clock, watch, 10))]
    assert told == [(0, 0), (0, 10_000)]


@pytest.mark.parametrize(("cpu_s", "idle"), [(0.09, True), (0.11, False)])
def test_a_hundredth_of_a_core_is_nothing_and_more_is_something(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, cpu_s: float, idle: bool
) -> None:
    used = iter([5.0, 5.0 + cpu_s])
    monkeypatch.setattr(processes, "cpu_s_of_descendants", lambda: next(used))
    watch = ActivityWatch(EVERY_S)
    assert (idle_s(clock, watch, 10) > 0) == idle


def test_one_look_after_a_long_pause_finds_what_a_look_in_time_would_have_found(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = iter([0.0, 0.2])
    monkeypatch.setattr(processes, "cpu_s_of_descendants", lambda: next(used))
    watch = ActivityWatch(EVERY_S)
    assert idle_s(clock, watch, 3_600) == 0


@pytest.mark.usefixtures("no_cpu")
def test_it_looks_no_more_often_than_it_shall(clock: Clock) -> None:
    watch = ActivityWatch(EVERY_S)
    assert [idle_s(clock, watch, 9), idle_s(clock, watch, 1)] == [0, 10]


@pytest.mark.usefixtures("no_cpu")
def test_a_disk_that_is_full_ends_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = ActivityWatch(EVERY_S)
    with monkeypatch.context() as full:
        full.setattr(activity, "write_durably", _refuse)
        assert idle_s(clock, watch, 10) == 0
    assert idle_s(clock, watch, 10) == 20


def test_a_child_that_has_ended_counts() -> None:
    before = cpu_s_of_descendants()
    subprocess.run(["sh", "-c", BUSY_FOR_A_WHILE], check=True)
    assert cpu_s_of_descendants() > before


@pytest.fixture
def grandchild() -> Iterator[int]:
    """A busy process two generations down, in a session of its own."""
    script = "setsid sh -c 'while :; do :; done' & echo $!; wait"
    child = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    pid = int(child.stdout.readline())
    yield pid
    os.kill(pid, 9)
    child.wait()
    child.stdout.close()


def test_a_grandchild_in_a_session_of_its_own_counts(grandchild: int) -> None:
    """Kernels of notebooks are such."""
    assert grandchild not in children_of(os.getpid())
    before = cpu_s_of_descendants()
    eventually(lambda: cpu_s_of_descendants() > before)


def _refuse(path: str, text: str) -> None:
    raise OSError(28, "no space left on device")
