"""The local backend: real processes, real signals, real kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from reconciler.model.clock import SystemClock
from reconciler.node.local import LocalBackend, StateFolderError
from reconciler.node.local.strays import kill_strays
from reconciler.protocols.backend import Cursor, Epoch, StartGang, StopGang, TaskStatus
from reconciler.supervisor import shim
from reconciler.supervisor.processes import start_ticks
from solver.model.cluster import DeviceId
from solver.model.quantities import Duration
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from tests.contracts.backend_world import grow, start, stop, stop_workers
from tests.contracts.local_worlds import LocalWorld, eventually, local_world

JOB = JobName("job")
ONE = Epoch(1)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    with local_world(tmp_path) as made:
        yield made


def test_a_control_plane_killed_at_once_leaves_its_tasks_to_the_next(world: LocalWorld, tmp_path: Path) -> None:
    order = start(world, "job", world.runs(), (0, (0,)), (1, (0,)))
    (tmp_path / "order").write_bytes(msgspec.json.encode(order, enc_hook=str))
    code = """if True:
        import os, signal, sys
        from pathlib import Path
        from reconciler.protocols.backend import Epoch, StartGang
        from reconciler.node.local import LocalBackend
        from reconciler.model.clock import SystemClock
        from solver.model.document import decode
        from tests.contracts.simulated_worlds import NODES
        backend = LocalBackend(Path(sys.argv[1]), lambda: NODES, SystemClock())
        backend.submit(decode(Path(sys.argv[2]).read_bytes(), StartGang), Epoch(1))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    killed = subprocess.run([sys.executable, "-c", code, str(world.state), str(tmp_path / "order")])
    assert killed.returncode == -signal.SIGKILL
    eventually(lambda: states(world) == ["running", "running"])
    for index in (0, 1):
        world.starts(JOB, 1, "worker", index)  # A stop could end it before it has come to signing.
    world.backend.submit(order, ONE)
    world.backend.submit(stop("job"), ONE)
    eventually(lambda: is_stopped(world))
    assert [world.starts(JOB, 1, "worker", index) for index in (0, 1)] == [1, 1]


def test_a_crash_between_accepting_and_starting_is_made_good_by_repeating(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = start(world, "job", world.succeeds(), (0, (0,)))
    crash_before_starting(world, order, monkeypatch)
    world.restart()
    assert states(world) == ["starting"]
    world.backend.submit(order, ONE)
    eventually(lambda: states(world) == ["succeeded"])
    assert world.starts(JOB, 1, "worker", 0) == 1


def test_a_supervisor_that_comes_after_the_stop_starts_nothing(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_before_starting(world, start(world, "job", world.runs(), (0, (0,))), monkeypatch)
    world.backend.submit(stop("job"), ONE)
    assert is_stopped(world)
    late = subprocess.run([sys.executable, "-I", "-S", shim.__file__, str(world.state / "live/job.1/worker.0")])
    assert late.returncode == 0
    assert not (world.state / "live/job.1/worker.0/started").exists()
    assert world.starts(JOB, 1, "worker", 0) == 0


def test_of_several_supervisors_one_starts_the_task(world: LocalWorld) -> None:
    world.backend.submit(start(world, "job", world.runs(), (0, (0,))), ONE)
    folder = world.state / "live/job.1/worker.0"
    racing = [subprocess.Popen([sys.executable, "-I", "-S", shim.__file__, str(folder)]) for _ in range(3)]
    eventually(lambda: states(world) == ["running"])
    eventually(lambda: [process.poll() for process in racing].count(0) >= 2)  # Any of the four may have won the race.
    assert world.starts(JOB, 1, "worker", 0) == 1
    world.backend.submit(stop("job"), ONE)
    assert [process.wait() for process in racing] == [0, 0, 0]


@pytest.mark.parametrize("script", ["sleep 600", "setsid sleep 600 & sleep 600", "env -i sleep 600 & sleep 600"])
def test_a_killed_supervisor_is_a_lost_task_and_nothing_of_it_runs_on(world: LocalWorld, script: str) -> None:
    world.backend.submit(start(world, "job", world.shell(script), (0, (0,))), ONE)
    world.starts(JOB, 1, "worker", 0)
    eventually(lambda: states(world) == ["running"])
    eventually(lambda: [program(pid) for pid in sleeping(world)].count("sleep") == script.count("sleep"))
    os.kill(supervisor_of(started(world)["pid"]), signal.SIGKILL)
    eventually(lambda: states(world) == ["lost"])
    assert sleeping(world) == []


def test_strays_of_a_reused_pid_are_left_alone() -> None:
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    ticks = start_ticks(stranger.pid)
    assert ticks is not None
    assert kill_strays("/no/such/task", stranger.pid, ticks - 1)
    assert stranger.poll() is None
    assert not kill_strays("/no/such/task", stranger.pid, ticks)
    assert stranger.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    "script",
    [
        "trap '' TERM; while :; do sleep 1; done",
        "sh -c 'trap \"\" TERM; sleep 600 & wait; sleep 600' & wait",
        "setsid sh -c 'setsid sleep 600 & sleep 600' & exec sleep 600",
    ],
    ids=["ignores SIGTERM", "grandchildren that ignore it", "daemons"],
)
def test_stopped_means_that_nothing_runs(world: LocalWorld, script: str) -> None:
    world.backend.submit(start(world, "job", world.shell(script), (0, (0,))), ONE)
    eventually(lambda: states(world) == ["running"])
    world.starts(JOB, 1, "worker", 0)
    world.backend.submit(stop("job", grace_ms=300), ONE)
    eventually(lambda: is_stopped(world))
    assert sleeping(world) == []
    assert states(world) == ["stopped"]


def test_what_a_task_leaves_behind_ends_with_it(world: LocalWorld) -> None:
    world.backend.submit(start(world, "job", world.shell("sleep 600 & setsid sleep 600 & exit 4"), (0, (0,))), ONE)
    eventually(lambda: states(world) == ["failed"])
    assert status(world).exit_code == 4
    eventually(lambda: world.processes() == [])


def test_a_task_may_use_its_grace(world: LocalWorld) -> None:
    script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    world.backend.submit(start(world, "job", world.shell(script), (0, (0,))), ONE)
    eventually(lambda: b"ready" in log(world))
    world.backend.submit(stop("job", grace_ms=60_000), ONE)
    eventually(lambda: is_stopped(world))
    assert (status(world).state, status(world).exit_code) == ("stopped", 0)
    assert log(world).endswith(b"saved\n")


def test_a_stop_is_carried_out_though_nobody_looks_again(world: LocalWorld) -> None:
    world.backend.submit(start(world, "job", world.shell("trap '' TERM; sleep 600"), (0, (0,))), ONE)
    eventually(lambda: states(world) == ["running"])
    world.backend.submit(stop("job", grace_ms=100), ONE)
    eventually(lambda: world.processes() == [])


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (("no-such-command",), 127, b"quorate: command not found: 'no-such-command'. Give its full path"),
        (("./train.sh",), 127, b"quorate: command not found: './train.sh', in the folder /"),
        (("/etc/passwd",), 126, b"quorate: can't run '/etc/passwd': "),
        (("sh", "-c", "kill -9 $$"), 137, b""),
        (("sh", "-c", "echo out; echo err >&2; exit 5"), 5, b"out\nerr\n"),
    ],
)
def test_a_failing_command_says_how(world: LocalWorld, command: tuple[str, ...], code: int, said: bytes) -> None:
    world.backend.submit(start(world, "job", command, (0, (0,))), ONE)
    eventually(lambda: states(world) == ["failed"])
    assert status(world).exit_code == code
    assert str(code) in status(world).detail
    assert log(world).startswith(said)


def test_a_task_sees_only_what_it_should(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "secret")
    shape = Shape(gpus=2)
    groups = (TaskGroup("leader", 1, Shape()), TaskGroup("worker", 2, shape, command=world.runs()))
    spec = JobSpec(QueueName("q"), groups, command=world.runs(), env={"MODEL": "a b=c", "RANK": "mine"})
    first, second = world.nodes
    tasks = (
        TaskPlacement("worker", 0, first.name, (first.gpus[2].id, first.gpus[3].id)),
        TaskPlacement("worker", 1, second.name, (second.gpus[1].id, second.gpus[0].id)),
        TaskPlacement("leader", 0, first.name),
    )
    world.backend.submit(StartGang(JOB, 1, tasks, spec), ONE)
    eventually(lambda: states(world) == ["running"] * 3)
    leader, *workers = (world.environment(JOB, 1, *task) for task in (("leader", 0), ("worker", 0), ("worker", 1)))
    assert "CANARY" not in leader
    assert leader["MODEL"] == "a b=c"
    assert leader["CUDA_VISIBLE_DEVICES"] == leader["QUORATE_DEVICES"] == ""
    assert [worker["CUDA_VISIBLE_DEVICES"] for worker in workers] == ["2,3", "1,0"]
    assert [task["RANK"] for task in (leader, *workers)] == ["0", "1", "2"]
    assert [task["LOCAL_RANK"] for task in (leader, *workers)] == ["0", "1", "0"]
    assert workers[1]["QUORATE_NODE"] == second.name
    assert workers[0]["QUORATE_DEVICES"] == f"{first.gpus[2].id},{first.gpus[3].id}"
    assert len({task["PWD"] for task in (leader, *workers)}) == 3
    assert not {"CANARY"} & workers[0].keys()


def test_a_task_ignores_no_signals_that_its_server_ignores(world: LocalWorld) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # As under nohup, or in the background of a script.
    try:
        world.backend.submit(start(world, "job", ("grep", "SigIgn", "/proc/self/status"), (0, (0,))), ONE)
    finally:
        signal.signal(signal.SIGINT, before)
    eventually(lambda: states(world) == ["succeeded"])
    ignored = int(log(world).split()[1], 16)
    assert [number for number in signal.valid_signals() if ignored >> (number - 1) & 1] == []


def test_logs_are_read_in_pieces_and_outlive_forgetting(world: LocalWorld) -> None:
    world.backend.submit(start(world, "job", ("echo", "0123456789"), (0, (0,))), ONE)
    eventually(lambda: states(world) == ["succeeded"])
    for _ in ("live", "forgotten"):
        read = world.backend.read_log
        assert read(JOB, 1, "worker", 0, offset=0, limit=4) == b"0123"
        assert read(JOB, 1, "worker", 0, offset=4, limit=100) == b"456789\n"
        assert read(JOB, 1, "worker", 0, offset=11, limit=100) == b""
        world.backend.forget(JOB, 1, ONE)
    for job, attempt, group, index in [
        (JOB, 2, "worker", 0),
        (JOB, 1, "worker", 1),
        (JobName("../live/job"), 1, "worker", 0),
    ]:
        with pytest.raises(KeyError, match="no task"):
            world.backend.read_log(job, attempt, group, index, offset=0, limit=1)


def test_the_log_of_a_task_that_joins_again_goes_on(world: LocalWorld) -> None:
    order = start(world, "job", world.shell("echo $QUORATE_NODE; exec sleep 600"), (0, (0,)))
    world.backend.submit(order, ONE)
    eventually(lambda: log(world) == b"n1\n")
    world.backend.submit(stop_workers("job", 0), ONE)
    eventually(lambda: bool(world.backend.changes(Cursor(0)).left))
    world.backend.submit(grow(world, order, 1, (0, (1, (0,)))), ONE)
    eventually(lambda: log(world) == b"n1\nn2\n")
    world.backend.submit(stop("job"), ONE)
    eventually(lambda: is_stopped(world))
    world.backend.forget(JOB, 1, ONE)
    assert log(world) == b"n1\nn2\n"


def test_the_shorter_of_two_graces_counts(world: LocalWorld) -> None:
    world.backend.submit(start(world, "job", world.shell("trap '' TERM; while :; do sleep 1; done"), (0, (0,))), ONE)
    world.starts(JOB, 1, "worker", 0)
    world.backend.submit(stop_workers("job", 0, grace_ms=600_000), ONE)
    world.backend.submit(stop("job", grace_ms=100), ONE)
    eventually(lambda: is_stopped(world))


def test_names_stay_inside_their_folder(world: LocalWorld) -> None:
    world.backend.submit(StopGang(JobName("../../outside/.."), 1, Duration(0)), ONE)
    assert [entry.parent for entry in world.state.rglob("stop")] == [
        world.state / "live/%2E%2E%2F%2E%2E%2Foutside%2F%2E%2E.1"
    ]


def test_a_device_that_is_not_here_is_a_lost_task_that_says_so(world: LocalWorld) -> None:
    order = start(world, "job", world.runs(), (0, (0,)))
    strange = msgspec.structs.replace(order.tasks[0], devices=(DeviceId("elsewhere/0"),))
    world.backend.submit(msgspec.structs.replace(order, tasks=(strange,)), ONE)
    assert states(world) == ["lost"]
    assert "elsewhere/0" in status(world).detail
    world.restart()
    assert world.starts(JOB, 1, "worker", 0) == 0


def test_a_node_that_is_no_longer_declared_is_not_ready(tmp_path: Path, world: LocalWorld) -> None:
    declared = [world.nodes]
    backend = LocalBackend(tmp_path / "other", lambda: declared[0], SystemClock())
    before = backend.changes(Cursor(0))
    declared[0] = world.nodes[:1]
    assert [(node.name, node.ready) for node in backend.changes(before.cursor).nodes] == [("n2", False)]


def test_a_state_folder_that_cannot_be_written_is_explained(world: LocalWorld, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateFolderError, match=r"file/state: .*Not a directory.* Make it a folder this user can write"):
        LocalBackend(tmp_path / "file/state", lambda: (), SystemClock())
    world.backend.submit(stop("job"), ONE)
    (world.state / "epoch").write_text("gibberish")
    with pytest.raises(StateFolderError, match="damaged"):
        world.backend.submit(stop("job"), ONE)
    (world.state / "epoch").write_text("1")


def test_a_full_disk_is_explained_and_no_outcome_is_lost(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "quorate-test", str(disk)], capture_output=True)
    if mount.returncode != 0:
        pytest.skip(f"needs the right to mount a small disk: {mount.stderr.decode()}")
    try:
        with local_world(disk) as world:
            world.backend.submit(
                start(world, "job", world.shell(f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"), (0, (0,))), ONE
            )
            eventually(lambda: states(world) == ["running"])
            world.starts(JOB, 1, "worker", 0)
            fill(disk / "filler")
            with pytest.raises(StateFolderError, match="No space left on device"):
                world.backend.submit(start(world, "late", world.runs(), (0, (1,))), ONE)
            (tmp_path / "go").write_text("")
            eventually(lambda: not task_runs(world))
            assert states(world) == ["running"]
            (disk / "filler").unlink()
            eventually(lambda: states(world) == ["succeeded"])
            world.backend.submit(start(world, "late", world.succeeds(), (0, (1,))), ONE)
            eventually(lambda: states(world) == ["succeeded", "succeeded"])
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


class Crash(BaseException):
    """The control plane dies here."""


def crash_before_starting(world: LocalWorld, order: StartGang, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submit an order, and die when everything is on disk but no supervisor was started."""

    def crash(*_: object, **__: object) -> int:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_spawn", crash)
        with pytest.raises(Crash):
            world.backend.submit(order, ONE)


def states(world: LocalWorld) -> list[str]:
    return [task.state for task in world.backend.changes(Cursor(0)).tasks]


def status(world: LocalWorld) -> TaskStatus:
    return world.backend.changes(Cursor(0)).tasks[0]


def is_stopped(world: LocalWorld) -> bool:
    return bool(world.backend.changes(Cursor(0)).stopped)


def log(world: LocalWorld) -> bytes:
    return world.backend.read_log(JOB, 1, "worker", 0, 0, 10_000)


def started(world: LocalWorld) -> dict[str, int]:
    content: dict[str, int] = json.loads((world.state / "live/job.1/worker.0/started").read_text())
    return content


def sleeping(world: LocalWorld) -> list[int]:
    """Its processes that are a `sleep` or a shell, and not a supervisor."""
    return [pid for pid in world.processes() if program(pid) in ("sleep", "sh")]


def program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "ended"


def task_runs(world: LocalWorld) -> bool:
    return Path(f"/proc/{started(world)['pid']}").exists()


def supervisor_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            return
