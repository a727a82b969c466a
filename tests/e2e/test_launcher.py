"""MPI-style launch with real processes: a host file, a launcher that begins last, and workers that wait for nothing of ours."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from reconciler.api.payloads import JobView
from reconciler.client import Client
from solver.model.quantities import Cpu, Memory
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from tests.e2e.control_plane import PATIENCE_S, ControlPlane, until

pytestmark = pytest.mark.thorough

RANKS_OF_ITS_OWN = """\
import os, subprocess, sys
slots = [line.split(" slots=") for line in open(os.environ["QUORATE_HOST_FILE"])]
hosts = [host for host, number in slots for _ in range(int(number))]
assert set(hosts) == {"127.0.0.1"}, "only on this machine can ranks be started without ssh"
ranks = [
    subprocess.Popen(sys.argv[1:], env={**os.environ, "MY_RANK": str(rank), "MY_SIZE": str(len(hosts))})
    for rank in range(len(hosts))
]
sys.exit(max([rank.wait() for rank in ranks]))
"""
"""What mpirun does with a host file, as far as these tests need it."""


def mpi(*launch: str, workers: int = 3) -> JobSpec:
    shape = Shape(gpus=1, cpu=Cpu(1), memory=Memory(2**26))
    groups = (
        TaskGroup("launcher", 1, Shape(cpu=Cpu(1)), launch, launcher=True),
        TaskGroup("worker", workers, shape),
    )
    return JobSpec(QueueName("team"), groups)


@pytest.fixture
def mpirun(tmp_path: Path) -> tuple[str, ...]:
    script = tmp_path / "mpirun.py"
    script.write_text(RANKS_OF_ITS_OWN)
    return (sys.executable, str(script))


@pytest.fixture
def client(plane: ControlPlane) -> Client:
    plane.start().until_ready()
    return plane.client()


def ended(client: Client, name: str) -> JobView:
    return client.wait(name, PATIENCE_S)


def test_ranks_are_started_by_the_launcher_and_it_says_how_they_did(
    client: Client, plane: ControlPlane, mpirun: tuple[str, ...]
) -> None:
    rank = 'echo "rank $MY_RANK of $MY_SIZE, not ${RANK:-ours} ${WORLD_SIZE:-either}, gpus $CUDA_VISIBLE_DEVICES"'
    with client:
        client.submit(JobName("mpi"), mpi(*mpirun, "sh", "-c", rank))
        view = ended(client, "mpi")
        assert view.outcome is not None
        assert (view.outcome.state, view.outcome.message) == (
            "succeeded",
            "the launcher launcher ended with exit code 0",
        )
        said = sorted(client.log("mpi", "launcher").decode().splitlines())
        assert [line.split(", gpus")[0] for line in said] == [f"rank {rank} of 3, not ours either" for rank in range(3)]
        assert len(said[0].split("gpus ")[1].split(",")) == 3, "the GPUs of all, which it hands out"
        assert client.log("mpi", "worker", 0) == b""


@pytest.mark.long
def test_its_exit_code_is_that_of_the_job(client: Client, mpirun: tuple[str, ...]) -> None:
    with client:
        client.submit(JobName("mpi"), mpi(*mpirun, "sh", "-c", "exit $((MY_RANK + 3))"))
        outcome = ended(client, "mpi").outcome
        assert outcome is not None
        assert (outcome.state, outcome.exit_code) == ("failed", 5)
        assert "launcher/0" in outcome.message


@pytest.mark.long
def test_it_begins_once_all_others_run(client: Client, plane: ControlPlane) -> None:
    look = 'for i in 0 1; do test -e "$QUORATE_TASK_FOLDER/../worker.$i/started" && echo there; done'
    with client:
        client.submit(JobName("mpi"), mpi("sh", "-c", look, workers=2))
        assert ended(client, "mpi").outcome is not None
        assert client.log("mpi", "launcher") == b"there\nthere\n"
        events = [event.cause for event in plane.events("mpi") if event.kind == "asked-to-stop"]
        assert events == ["its launcher has ended with exit code 0"]


def test_a_job_that_is_cancelled_ends_whole(client: Client) -> None:
    with client:
        client.submit(JobName("mpi"), mpi("sleep", "600"))
        until("it runs", lambda: client.job("mpi").state == "running")
        client.cancel("mpi")
        assert ended(client, "mpi").state == "cancelled"


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun on this machine")
def test_a_real_mpirun_understands_the_host_file(client: Client) -> None:
    command = ("sh", "-c", 'exec mpirun --allow-run-as-root --hostfile "$QUORATE_HOST_FILE" sh -c "echo here"')
    with client:
        client.submit(JobName("mpi"), mpi(*command))
        assert ended(client, "mpi").state == "succeeded"
        assert client.log("mpi", "launcher").count(b"here") == 3
