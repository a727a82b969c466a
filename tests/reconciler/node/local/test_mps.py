"""MPS daemons of shared GPUs, with a stand-in that speaks NVIDIA's commands: real processes on both sides."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.node.local import mps as mps_module
from reconciler.node.local.mps import PROGRAM, Limits, Mps, MpsError, find_mps
from reconciler.protocols.backend import Cursor, Epoch, StartGang, StopGang, TaskStatus
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Duration, Memory, MilliGpu
from solver.model.shape import Shape, SharingMode
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from tests.contracts.local_worlds import LocalWorld, command_line, eventually, local_world
from tests.reconciler.node.local import mps_stand_in

ONE = Epoch(1)
GPU, OTHER = DeviceId("n1/3"), DeviceId("n1/2")
HALF = Limits(MilliGpu(500), Memory(80 * 2**30))
SHOW = (
    'echo "$CUDA_VISIBLE_DEVICES $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE ${CUDA_MPS_PIPE_DIRECTORY:-none}"; exec sleep 600'
)


def test_limits_are_said_for_servers_and_clients_to_come() -> None:
    assert HALF.commands(["1", "2"]) == [
        "set_default_active_thread_percentage 50",
        "set_default_device_pinned_mem_limit 0 40960M",
        "set_active_thread_percentage 1 50",
        "set_device_pinned_mem_limit 1 0 40960M",
        "set_active_thread_percentage 2 50",
        "set_device_pinned_mem_limit 2 0 40960M",
    ]
    assert Limits(MilliGpu(125), Memory(0)).commands([]) == ["set_default_active_thread_percentage 12.5"]


@pytest.fixture
def ground() -> Iterator[Path]:
    """Pytest's own folders are too deep for the names of sockets."""
    made = Path(tempfile.mkdtemp(prefix="mps-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def mps(ground: Path) -> Iterator[Mps]:
    program = ground / PROGRAM
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {mps_stand_in.__file__} "$@"\n')
    program.chmod(0o755)
    made = Mps(str(program), ground / "mps")
    yield made
    made.keep(())
    assert not list(made.folder.glob("*.json"))


def test_a_daemon_is_shared_while_it_has_clients_and_replaced_when_it_has_none(mps: Mps) -> None:
    first = mps.begin(GPU, "3", HALF, has_clients=False)
    assert said(first.folder)[0].endswith("sees 3")
    assert said(first.folder)[1:] == HALF.commands([mps_stand_in.SERVER])
    assert mps.begin(GPU, "3", HALF, has_clients=True) == first
    again = mps.begin(GPU, "3", HALF, has_clients=False)
    assert again.folder != first.folder, "who was a client before may be of another trust domain"
    assert not Path(first.folder).exists()
    other = mps.begin(OTHER, "2", HALF, has_clients=False)
    assert mps.keep({GPU}) == []
    assert Path(again.folder).exists()
    assert not Path(other.folder).exists()
    kill(again.folder)
    assert mps.keep({GPU}) == [GPU]
    assert mps.keep({GPU}) == [], "told once"


def test_one_that_was_only_about_to_be_is_begun_anew(mps: Mps) -> None:
    """Whoever wrote it down was killed before it began."""
    written = mps.begin(GPU, "3", HALF, has_clients=False)
    kill(written.folder)
    found = mps.begin(GPU, "3", HALF, has_clients=True)
    assert found.folder != written.folder
    assert pid_of(found.folder)


def test_what_can_not_be_is_said(ground: Path) -> None:
    with pytest.raises(MpsError, match="does not do '-d'"):
        Mps(str(ground / "none"), ground / "mps").begin(GPU, "3", HALF, has_clients=False)
    with pytest.raises(MpsError, match="shorter --state"):
        Mps("true", ground / ("deep" * 20)).begin(GPU, "3", HALF, has_clients=False)


def test_there_are_daemons_where_the_program_and_the_gpus_are(monkeypatch: pytest.MonkeyPatch, ground: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(mps_module, "REAL_GPUS", ground)
    assert find_mps(ground / "mps") == Mps(f"/bin/{PROGRAM}", ground / "mps")
    monkeypatch.setattr(mps_module, "REAL_GPUS", ground / "none")
    assert find_mps(ground / "mps") is None


@pytest.fixture
def world(ground: Path, mps: Mps) -> Iterator[LocalWorld]:
    with local_world(ground) as made:
        made.mps = mps
        made.restart()
        yield made


def test_tasks_share_a_daemon_which_ends_with_the_last_of_them(world: LocalWorld, mps: Mps) -> None:
    run(world, "a", 250, 500)
    run(world, "b", 250)
    run(world, "c", 500, sharing="time-slicing", gpu=OTHER)
    pipes = [shown(world, "a", 0), shown(world, "a", 1), shown(world, "b", 0)]
    assert [line.split()[:2] for line in pipes] == [["0", "25"], ["0", "50"], ["0", "25"]]
    (pipe,) = {line.split()[2] for line in pipes}
    assert shown(world, "c", 0) == "2  none"
    daemon = str(Path(pipe).parent)
    percents = [line.split()[-1] for line in said(daemon) if line.startswith("set_default_active")]
    assert percents == ["25", "50", "50"], "never less than the largest of those that run may have"
    pid = pid_of(daemon)
    stop(world, "a")
    assert Path(daemon).exists()
    world.restart()
    stop(world, "b")
    eventually(lambda: not tasks(world, "none") and not Path(daemon).exists())  # Each look tries again.
    eventually(lambda: command_line(pid) == b"")  # A zombie has none either.


def test_a_task_with_parts_of_several_gpus_has_a_daemon_for_each(world: LocalWorld) -> None:
    """A process is the client of one: the task is told of all, and begins with the first."""
    show = 'echo "$CUDA_VISIBLE_DEVICES $CUDA_MPS_PIPE_DIRECTORY $QUORATE_MPS_PIPES"; exec sleep 600'
    spec = JobSpec(QueueName("q"), (TaskGroup("w", 1, Shape()),), command=("sh", "-c", show))
    both = TaskPlacement("w", 0, NodeName("n1"), (GPU, OTHER), MilliGpu(500), "mps")
    world.backend.submit(StartGang(JobName("a"), 1, (both,), spec), ONE)
    eventually(lambda: task(world, "a").state != "starting")
    called, first, every = shown(world, "a", 0).split()
    pipes = every.split(",")
    assert (called, first, len(set(pipes))) == ("0", pipes[0], 2)
    sees = [said(str(Path(pipe).parent))[0].split()[-1] for pipe in pipes]
    assert sees == ["3", "2"]
    stop(world, "a")
    eventually(lambda: not tasks(world, "none") and not any(Path(pipe).exists() for pipe in pipes))


def test_clients_of_a_daemon_that_has_died_are_lost_and_the_next_have_a_new_one(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps_module, "MPS_LOOK_MS", 0)
    run(world, "a", 500)
    pipe = shown(world, "a", 0).split()[2]
    kill(str(Path(pipe).parent))
    eventually(lambda: task(world, "a").state == "lost")
    assert task(world, "a").detail == "the MPS daemon of GPU n1/3 has died, and its work on the GPU with it"
    run(world, "b", 500)
    assert shown(world, "b", 0).split()[2] != pipe


def test_a_task_whose_daemon_can_not_be_is_lost_with_the_reason(world: LocalWorld, mps: Mps) -> None:
    Path(mps.program).write_text("#!/bin/sh\nexit 1\n")
    run(world, "a", 500)
    assert task(world, "a").state == "lost"
    assert f"{PROGRAM} does not do '-d'" in task(world, "a").detail


def run(world: LocalWorld, job: str, *shares: int, sharing: SharingMode = "mps", gpu: DeviceId = GPU) -> None:
    spec = JobSpec(QueueName("q"), (TaskGroup("w", len(shares), Shape()),), command=("sh", "-c", SHOW))
    tasks = tuple(
        TaskPlacement("w", index, NodeName("n1"), (gpu,), MilliGpu(share), sharing)
        for index, share in enumerate(shares)
    )
    world.backend.submit(StartGang(JobName(job), 1, tasks, spec), ONE)
    eventually(lambda: task(world, job).state != "starting")


def stop(world: LocalWorld, job: str) -> None:
    world.backend.submit(StopGang(JobName(job), 1, Duration(0)), ONE)
    eventually(lambda: {status.state for status in tasks(world, job)} == {"stopped"})


def task(world: LocalWorld, job: str) -> TaskStatus:
    return tasks(world, job)[0]


def tasks(world: LocalWorld, job: str) -> list[TaskStatus]:
    return [status for status in world.backend.changes(Cursor(0)).tasks if status.job == job]


def shown(world: LocalWorld, job: str, index: int) -> str:
    log = world.state / f"live/{job}.1/w.{index}/log"
    eventually(lambda: log.exists() and log.read_text().endswith("\n"))
    return log.read_text().rstrip("\n")


def said(folder: str) -> list[str]:
    return (Path(folder) / "log" / mps_stand_in.SAID).read_text().splitlines()


def kill(folder: str) -> None:
    """The daemon, which is gone then: it answers for as long as the signal takes."""
    pid = pid_of(folder)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: command_line(pid) == b"")


def pid_of(folder: str) -> int:
    return int(said(folder)[0].split()[1])
