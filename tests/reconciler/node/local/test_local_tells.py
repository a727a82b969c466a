"""What the local backend tells a task, and what a task tells it, by files: real processes that read and write them."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quorate import checkpoint
from reconciler.node.local.journal import SAME_NEWS_EVERY_MS, LocalJournal
from reconciler.node.local.progress import said_progress
from reconciler.protocols.backend import Cursor, Epoch, Progress, StartGang, TaskStatus
from reconciler.supervisor import dump, processes, teller
from reconciler.supervisor.memory import Meter, used_bytes, written
from reconciler.supervisor.taskfiles import MEMORY, REQUEST, TELLS, TOLD, write_durably
from solver.model.cluster import NodeName
from solver.model.quantities import Instant, Memory
from solver.model.workload import JobName
from tests.contracts.backend_world import UNTIL, grow, start, stop_workers, tell
from tests.contracts.local_worlds import LocalWorld, eventually, local_world

JOB = JobName("job")
ONE = Epoch(1)
SOME = Path("attempt")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    with local_world(tmp_path) as made:
        yield made


def test_a_request_is_a_file_that_appears_whole(world: LocalWorld) -> None:
    world.backend.submit(start(world, "job", world.runs(), (0, (0,))), ONE)
    request = Path(seen_by(world, 0)["QUORATE_REQUEST_FILE"])
    assert not request.exists()
    world.backend.submit(tell("job", 1, reason="time-limit", signal=""), ONE)
    eventually(lambda: task(world).told == 1)
    assert json.loads(request.read_text()) == {"number": 1, "reason": "time-limit", "until": str(UNTIL)}
    assert task(world).state == "running"


def test_a_signal_reaches_the_first_process_alone(world: LocalWorld) -> None:
    script = """trap 'echo parent heard' USR1; sh -c 'trap "echo child heard" USR1; echo ready; while :; do sleep 0.02; done' &
        while :; do sleep 0.02; done"""
    world.backend.submit(start(world, "job", world.shell(script), (0, (0,))), ONE)
    eventually(lambda: b"ready" in log(world))
    world.backend.submit(tell("job", 1), ONE)
    eventually(lambda: b"parent heard" in log(world))
    world.backend.submit(tell("job", 2), ONE)
    eventually(lambda: log(world).count(b"parent heard") == 2)
    assert b"child heard" not in log(world)


def test_a_signal_that_there_is_not_is_said_in_the_log(world: LocalWorld) -> None:
    world.backend.submit(start(world, "job", world.runs(), (0, (0,))), ONE)
    eventually(lambda: task(world).state == "running")
    world.backend.submit(tell("job", 1, signal="SIGSAVE"), ONE)
    eventually(lambda: b"no signal 'SIGSAVE'" in log(world))
    assert task(world).state == "running"


def test_a_dump_shows_every_process_and_where_it_waits(world: LocalWorld) -> None:
    world.backend.submit(start(world, "job", world.shell("sleep 601 & sleep 602 & wait"), (0, (0,))), ONE)
    eventually(lambda: task(world).state == "running" and len(sleepers(world)) == 2)
    world.backend.submit(tell("job", 1, reason="checkpoint", signal=""), ONE)
    eventually(lambda: task(world).told == 1)
    world.backend.submit(tell("job", 2, reason="dump", signal=""), ONE)
    eventually(lambda: dump.END.encode() in log(world))
    said = log(world).decode()
    assert dump.BEGIN in said
    assert "3 processes, " in said
    assert "'sleep 601'" in said
    assert "'sleep 602'" in said
    assert said.count("sleeping") == 3
    request = json.loads(Path(seen_by(world, 0)["QUORATE_REQUEST_FILE"]).read_text())
    assert request["number"] == 1, "a dump took the place of a request that the task may not have read"


def test_tells_that_came_between_two_looks_are_all_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supervisor: list[str]
) -> None:
    tells = teller.TaskTeller(growth=1)
    told_of(tmp_path, (1, "checkpoint", 0), (2, "checkpoint", 1), (3, "dump", 1))
    tells.look(leader=1)
    assert json.loads(Path(REQUEST).read_text())["number"] == 2
    assert supervisor == ["dump"]
    assert Path(TOLD).read_text() == "3"


def test_a_full_disk_puts_a_tell_off_and_sends_no_signal_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supervisor: list[str]
) -> None:
    tells = teller.TaskTeller(growth=0)
    told_of(tmp_path, (1, "checkpoint", 0), signal="SIGUSR1")
    for full_for in (REQUEST, TOLD):
        with monkeypatch.context() as full:
            full.setattr(teller, "write_durably", refuse(full_for))
            tells.look(leader=1)
    assert supervisor == ["SIGUSR1"]
    tells.look(leader=1)
    assert Path(TOLD).read_text() == "1"
    assert supervisor == ["SIGUSR1"]


def test_a_task_whose_first_process_has_ended_is_told_nothing(tmp_path: Path, supervisor: list[str]) -> None:
    tells = teller.TaskTeller(growth=0)
    told_of(tmp_path, (1, "checkpoint", 0), signal="SIGUSR1")
    tells.look(leader=None)
    assert supervisor == []
    assert not Path(REQUEST).exists()


def test_the_file_of_the_gang_follows_its_size(world: LocalWorld) -> None:
    order = start(world, "job", world.runs(), (0, (0,)), (1, (0,)))
    world.backend.submit(order, ONE)
    first = Path(seen_by(world, 0)["QUORATE_GANG_FILE"])
    assert Path(seen_by(world, 1)["QUORATE_GANG_FILE"]) == first
    port = seen_by(world, 0)["MASTER_PORT"]
    assert gang(first) == {
        "attempt": 1,
        "growth": 0,
        "master": f"127.0.0.1:{port}",
        "world": [member(0, 0, "n1"), member(1, 1, "n2")],
    }
    world.backend.submit(grow(world, order, 1, (2, (0, (1,)))), ONE)
    assert gang(first)["growth"] == 1
    assert gang(first)["world"] == [member(0, 0, "n1"), member(1, 1, "n2"), member(2, 2, "n1")]
    world.backend.submit(stop_workers("job", 1, growth=1), ONE)
    world.backend.submit(stop_workers("job", 1, growth=1), ONE)
    assert gang(first)["world"] == [member(0, 0, "n1"), member(2, 1, "n1")]
    world.backend.submit(grow(world, order, 2, (1, (1, (1,)))), ONE)
    assert gang(first)["world"] == [member(0, 0, "n1"), member(1, 1, "n2"), member(2, 2, "n1")]
    assert gang(first)["growth"] == 2


def test_what_an_order_adds_to_the_environment_comes_after_the_jobs_own(world: LocalWorld) -> None:
    order = start(world, "job", world.runs(), (0, (0,)))
    spec = msgspec.structs.replace(order.spec, env={"FROM": "job", "OWN": "yes"})
    extra = {"FROM": "order", "RANK": "no", "QUORATE_RESUME_STEP": "40"}
    world.backend.submit(msgspec.structs.replace(order, spec=spec, environment=extra), ONE)
    joining = msgspec.structs.replace(
        grow(world, order, 1, (1, (1, (0,)))), spec=spec, environment={"QUORATE_RESUME_STEP": "50"}
    )
    world.backend.submit(joining, ONE)
    first, joined = (seen_by(world, index) for index in (0, 1))
    assert (first["FROM"], first["OWN"], first["RANK"], first["QUORATE_RESUME_STEP"]) == ("order", "yes", "0", "40")
    assert (joined["FROM"], joined["QUORATE_RESUME_STEP"]) == ("job", "50")


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ('echo gibberish > "$QUORATE_PROGRESS_FILE"', "is not"),
        ('echo \'{"step": -1}\' > "$QUORATE_PROGRESS_FILE"', "is not"),
        ('mkfifo "$QUORATE_PROGRESS_FILE"', "is not"),
        ('ln -s /dev/zero "$QUORATE_PROGRESS_FILE"', "can't be read"),
        ('mkdir "$QUORATE_PROGRESS_FILE"', "is not"),
    ],
)
def test_whatever_a_task_does_to_its_progress_file_the_backend_goes_on(
    world: LocalWorld, script: str, complaint: str
) -> None:
    world.backend.submit(start(world, "job", world.shell(f"{script}; exec sleep 600"), (0, (0,))), ONE)
    eventually(lambda: complaint in task(world).detail)
    assert task(world).progress is None
    assert task(world).state == "running"


def test_what_a_training_script_says_of_its_work_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "progress"
    monkeypatch.setenv("QUORATE_PROGRESS_FILE", str(path))
    checkpoint.progress(12, 0.5, flops=3.2e15, tokens=64_000)
    said, _ = said_progress(path)
    assert said is not None
    assert (said.step, said.rate, said.flops, said.tokens) == (12, 0.5, 3.2e15, 64_000)
    checkpoint.progress(13)
    assert path.read_text() == '{"step": 13, "rate": 0.0}', "what is not said is left out: older agents read that too"


@pytest.mark.parametrize("wrong", ["-1", "1e22", '"many"', "NaN", "Infinity"])
def test_operations_that_can_not_be_are_not_believed(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "progress").write_text(f'{{"step": 12, "flops": {wrong}}}')
    said, complaint = said_progress(tmp_path / "progress")
    assert (said, "is not" in complaint) == (None, True)


def test_a_rate_need_not_be_said(tmp_path: Path) -> None:
    (tmp_path / "progress").write_text('{"step": 12}')
    said, complaint = said_progress(tmp_path / "progress")
    assert said is not None
    assert (said.step, said.rate, complaint) == (12, 0.0, "")


def test_progress_is_news_once_a_second_and_a_state_at_once() -> None:
    journal, status = LocalJournal(opening=1), TaskStatus(JOB, 1, "worker", 0, NodeName("n1"), "running", Instant(0))
    steps = [msgspec.structs.replace(status, progress=Progress(step, 1.0, Instant(0))) for step in range(4)]
    journal.note_task(SOME, "worker.0", steps[0], Instant(0))
    journal.note_task(SOME, "worker.0", steps[1], Instant(SAME_NEWS_EVERY_MS - 1))
    assert journal.after(Cursor(0)).tasks == (steps[0],)
    journal.note_task(SOME, "worker.0", steps[2], Instant(SAME_NEWS_EVERY_MS))
    assert journal.after(Cursor(0)).tasks == (steps[2],)
    ended = msgspec.structs.replace(steps[3], state="succeeded")
    journal.note_task(SOME, "worker.0", ended, Instant(SAME_NEWS_EVERY_MS + 1))
    assert journal.after(Cursor(0)).tasks == (ended,)


def test_memory_that_forked_processes_share_counts_once_where_it_matters() -> None:
    """Eight workers of a loader that each see the 100 MiB of their parent have little more than it together."""
    script = "import os; memory = bytearray(100 * 2**20); all(os.fork() for _ in range(8)); print(); import time; time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True) as parent:
        try:
            eventually(lambda: len(processes.children_of(parent.pid)) == 8)
            family = [parent.pid, *processes.children_of(parent.pid)]
            assert used_bytes(0, family) > 9 * 100 * 2**20
            assert 100 * 2**20 < used_bytes(300 * 2**20, family) < 300 * 2**20
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


def test_what_ends_a_task_for_its_memory_is_in_its_log(world: LocalWorld) -> None:
    script = f"exec {sys.executable} -c 'memory = bytearray(100 * 2**20); import time; time.sleep(600)'"
    world.backend.submit(asking(world, "32Mi", script), ONE)
    eventually(lambda: task(world).state == "failed")
    # How far it has come when it is looked at depends on how fast it is.
    assert re.search(
        rb"quorate: ended: its processes have [0-9.]+Mi of memory, and its shape asks for 32Mi\n", log(world)
    )
    eventually(lambda: world.processes() == [])


@pytest.fixture
def meter_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "monotonic", (10 * (call // 2) for call in itertools.count()).__next__)
    monkeypatch.setattr(processes, "descendants", lambda: [1, 2])
    return tmp_path


def test_only_what_seems_too_much_is_measured_exactly(meter_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "resident_bytes", lambda _: 60)
    monkeypatch.setattr(processes, "proportional_bytes", lambda _: 49)
    meter = Meter(limit=100)
    assert not meter.look()
    assert meter.seen() == {"peak": 98, "limit": 100, "exceeded": False}
    monkeypatch.setattr(processes, "proportional_bytes", lambda _: 51)
    assert meter.look()
    assert not meter.look(), "it says so once"
    assert json.loads((meter_folder / MEMORY).read_text()) == {"peak": 102, "limit": 100, "exceeded": True}


def test_without_a_limit_nothing_is_too_much(meter_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "resident_bytes", lambda _: 2**50)
    assert not Meter(limit=0).look()


@pytest.mark.parametrize(("size", "said"), [(0, "0"), (1023, "1023"), (2**30, "1Gi"), (1_395_864_371, "1.3Gi")])
def test_bytes_are_written_as_people_read_them(size: int, said: str) -> None:
    assert written(size) == said


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The working folder is a task's, and what would be done to its processes is noted."""
    done: list[str] = []
    (tmp_path / "task").mkdir()
    monkeypatch.chdir(tmp_path / "task")
    monkeypatch.setattr(teller, "dump", lambda: done.append("dump"))
    monkeypatch.setattr(teller, "_send", lambda _, name: done.append(name))
    return done


def told_of(folder: Path, *tells: tuple[int, str, int], signal: str = "") -> None:
    listed = [
        {"number": number, "reason": reason, "until": "", "signal": signal, "growth": growth, "at": ""}
        for number, reason, growth in tells
    ]
    (folder / "task" / TELLS).write_text(json.dumps({"tells": listed}))


def refuse(name: str) -> Any:
    def write(path: str, text: str, mode: int = 0o600) -> None:
        if path == name:
            raise OSError(28, "no space left on device")
        write_durably(path, text, mode)

    return write


def asking(world: LocalWorld, memory: str, script: str) -> StartGang:
    order = start(world, "job", world.shell(script), (0, (0,)))
    group = order.spec.task_groups[0]
    shape = msgspec.structs.replace(group.shape, memory=Memory.parse(memory))
    spec = msgspec.structs.replace(order.spec, task_groups=(msgspec.structs.replace(group, shape=shape),))
    return msgspec.structs.replace(order, spec=spec)


def task(world: LocalWorld) -> TaskStatus:
    return world.backend.changes(Cursor(0)).tasks[0]


def seen_by(world: LocalWorld, index: int) -> dict[str, str]:
    """The environment of a worker, once it runs."""
    eventually(lambda: world.starts(JOB, 1, "worker", index) > 0)
    return world.environment(JOB, 1, "worker", index)


def log(world: LocalWorld) -> bytes:
    return world.backend.read_log(JOB, 1, "worker", 0, 0, 100_000)


def gang(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def member(index: int, rank: int, node: str) -> dict[str, Any]:
    return {"group": "worker", "index": index, "rank": rank, "node": node}


def sleepers(world: LocalWorld) -> list[int]:
    """Its processes that are a `sleep`, and do."""
    stats = {pid: processes.read_of(pid, "stat") for pid in world.processes()}
    return [pid for pid, stat in stats.items() if "(sleep) S" in stat]
