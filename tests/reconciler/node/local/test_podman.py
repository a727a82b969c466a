"""Tasks in real containers of podman: what they see, what they can't, and that nothing of them is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.lifecycle.jobs.retries import classify
from reconciler.node.local.podman import Podman
from reconciler.node.local.runtimes import Runtimes
from reconciler.node.local.secrets import SecretFolder
from reconciler.node.local.terminals import LocalLine
from reconciler.node.local.terms import Terms
from reconciler.protocols.backend import ENDED, Cursor, Epoch, StartGang, StopGang, TaskStatus
from reconciler.protocols.terminals import TerminalEnd
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Cpu, Duration, Memory
from solver.model.shape import Shape
from solver.model.workload import Container, JobName, JobSpec, QueueName, SecretUse, TaskGroup, TaskPlacement
from tests.contracts.backend_world import tell
from tests.contracts.local_worlds import LocalWorld, command_line, eventually, local_world
from tests.reconciler.node.local.podman_image import IMAGE, digest_of, podman_or_why

pytestmark = pytest.mark.thorough

JOB, ONE = JobName("job"), Epoch(1)
WAITS = "while :; do sleep 0.05; done"
PRIVATE = "s3cret-v4lue"


@pytest.fixture
def podman() -> Podman:
    found = podman_or_why()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def world(tmp_path: Path, podman: Podman) -> Iterator[LocalWorld]:
    vault = tmp_path / "vault"
    (vault / "q").mkdir(parents=True, mode=0o700)
    (vault / "q/token").write_text(PRIVATE)
    terms = Terms(SecretFolder(vault, lambda queue: (queue,)))
    with local_world(tmp_path, terms, Runtimes(containers=lambda: podman)) as made:
        yield made
    assert containers(podman, made) == set()


def test_it_sees_its_image_its_folder_and_nothing_of_the_host(world: LocalWorld) -> None:
    script = """id -u; pwd; echo $HOME; echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES $RANK $OWN
        grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status
        ls /root /home /usr 2>&1 | grep -c 'No such'; touch proof && echo wrote
        (echo no > ../log) 2>/dev/null || echo read-only; test -e /lost || (echo x > /x) 2>/dev/null || echo not root"""
    folder = run(world, script, devices=("n1/0", "n1/1"))
    until(world, "succeeded")
    work = f"{folder}/work"
    assert log(world).splitlines() == [
        *("65534", work, work, "0,1 void 0 of the job"),
        *("CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"),
        *("3", "wrote", "read-only", "not root"),
    ]
    assert (folder / "work/proof").exists()
    assert not (folder / "secrets").is_symlink(), "the file of its variables is gone"


def test_it_begins_in_a_folder_of_its_image(world: LocalWorld) -> None:
    folder = run(world, 'pwd; touch "$HOME/proof" && echo wrote', begins_in="/tmp")
    until(world, "succeeded")
    assert log(world) == "/tmp\nwrote\n"
    assert (folder / "work/proof").exists()


def test_an_image_without_the_folder_ends_it_with_what_is_missing(world: LocalWorld) -> None:
    run(world, "echo began", begins_in="/nowhere")
    until(world, "failed")
    assert classify(task(world)) == "launch"
    assert 'workdir "/nowhere" does not exist' in log(world)
    assert "began" not in log(world)


def test_secrets_reach_it_as_files_and_variables_and_no_command_line(world: LocalWorld) -> None:
    uses = SecretUse("token", env="TOKEN"), SecretUse("token", file="token")
    script = f"""test "$TOKEN" = "$(cat $QUORATE_SECRETS/token)" && echo same; ls $QUORATE_SECRETS; {WAITS}"""
    folder = run(world, script, secrets=uses)
    says(world, lambda: log(world) == "same\ntoken\n")
    pids = map(int, filter(str.isdecimal, os.listdir("/proc")))
    assert not any(PRIVATE.encode() in command_line(pid) for pid in pids)
    assert PRIVATE not in (folder / "task.json").read_text()
    held = os.readlink(folder / "secrets")
    world.backend.submit(StopGang(JOB, 1, Duration(5_000)), ONE)
    until(world, "stopped")
    assert not os.path.exists(held)


def test_it_is_told_says_how_far_it_is_and_is_stopped_with_grace(world: LocalWorld) -> None:
    script = (
        """trap 'echo saved; exit 0' TERM; trap 'cat $QUORATE_REQUEST_FILE' USR1
        printf '{"step": 7}' > $QUORATE_PROGRESS_FILE; grep -q world $QUORATE_GANG_FILE && echo ready; """
        + WAITS
    )
    run(world, script)
    says(world, lambda: log(world) == "ready\n")
    world.backend.submit(tell("job", 1, signal="SIGUSR1"), ONE)
    says(world, lambda: log(world).endswith("}"))
    assert json.loads(log(world).splitlines()[1])["number"] == 1
    seen = task(world)
    assert (seen.state, seen.progress and seen.progress.step) == ("running", 7)
    world.restart()
    assert task(world).state == "running", "another agent finds it again"
    world.backend.submit(StopGang(JOB, 1, Duration(60_000)), ONE)
    until(world, "stopped")
    assert "saved" in log(world)


def test_one_that_ignores_the_stop_is_made_to_end(world: LocalWorld) -> None:
    run(world, "trap '' TERM; echo up; " + WAITS)
    says(world, lambda: log(world) == "up\n")
    world.backend.submit(StopGang(JOB, 1, Duration(100)), ONE)
    until(world, "stopped")


def test_nothing_is_left_when_its_supervisor_is_gone(world: LocalWorld, podman: Podman) -> None:
    """Without its mark, which an image's program may clear: its container still knows whose it is."""
    own = f": {uuid.uuid4().hex}; {WAITS}"
    run(world, f"env -i setsid sh -c '{own}' & echo up; {WAITS}")
    says(world, lambda: log(world) == "up\n")
    (supervisor,) = world.supervisors()
    os.kill(supervisor, signal.SIGKILL)
    until(world, "lost")
    assert containers(podman, world) == set()
    assert not [
        pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if own.encode() in command_line(pid)
    ]


def test_its_limits_are_those_of_its_shape(world: LocalWorld) -> None:
    """Files of /dev/shm are memory that no supervisor sees in processes, and the kernel counts."""
    shape = Shape(cpu=Cpu(1_500), memory=Memory(64 * 2**20))
    script = """cd /sys/fs/cgroup; cat cpu.max 2>/dev/null || cat cpu/cpu.cfs_quota_us; cat memory.max 2>/dev/null ||
        cat memory/memory.limit_in_bytes; cat pids.max 2>/dev/null || cat pids/pids.max
        for name in a b; do dd if=/dev/zero of=/dev/shm/$name bs=1M count=63 || exit; done"""
    run(world, script, shape=shape)
    until(world, "failed")
    assert log(world).splitlines()[0].startswith("150000")
    assert log(world).splitlines()[1:3] == [str(int(shape.memory)), "65536"]
    assert "Killed" in log(world)


def test_an_image_by_its_digest_without_network_and_read_only(world: LocalWorld, podman: Podman) -> None:
    container = Container(f"{IMAGE.partition(':')[0]}@{digest_of(podman)}", network="none", read_only=True)
    script = "wc -l < /proc/net/dev; cd /tmp && touch mine && (echo x > /bin/x) 2>&1 | grep -c Read-only; exit 7"
    run(world, script, container=container)
    until(world, "failed")
    assert task(world).exit_code == 7
    assert log(world) == "3\n1\n", "two lines of heading and one for the loopback"


def test_a_terminal_reaches_into_the_container(world: LocalWorld) -> None:
    run(world, "read typed; echo got $typed; test -t 0 && echo a terminal; exit 3", terminal=True)
    until(world, "running")
    asyncio.run(type_into(world.backend.open_terminal(JOB, 1, "w", 0)))
    assert task(world).exit_code == 3
    assert "got it\r\na terminal" in log(world)


async def type_into(line: LocalLine) -> None:
    async with asyncio.timeout(60):
        await line.send(b"it\r")
        while not isinstance(await line.receive(), TerminalEnd):
            pass
    line.close()


def run(
    world: LocalWorld,
    script: str,
    container: Container = Container(IMAGE),  # noqa: B008  (it is frozen)
    shape: Shape = Shape(),  # noqa: B008
    secrets: tuple[SecretUse, ...] = (),
    devices: tuple[str, ...] = (),
    terminal: bool = False,
    begins_in: str = "",
) -> Path:
    """Start it; the task's folder."""
    spec = JobSpec(
        QueueName("q"),
        (TaskGroup("w", 1, shape),),
        command=("sh", "-c", script),
        env={"OWN": "of the job"},
        secrets=secrets,
        container=container,
        terminal=terminal,
        working_directory=begins_in,
    )
    placement = TaskPlacement("w", 0, NodeName("n1"), tuple(map(DeviceId, devices)))
    world.backend.submit(StartGang(JOB, 1, (placement,), spec), ONE)
    return world.state / "live/job.1/w.0"


def until(world: LocalWorld, state: str) -> None:
    eventually(lambda: task(world).state in (state, *ENDED))
    assert task(world).state == state, f"{task(world)}: {log(world)}"


def says(world: LocalWorld, reached: Callable[[], bool]) -> None:
    """Until its log is so; a task that has ended says nothing more."""
    eventually(lambda: task(world).state in ENDED or reached())
    assert reached(), f"{task(world)}: {log(world)}"


def task(world: LocalWorld) -> TaskStatus:
    (status,) = world.backend.changes(Cursor(0)).tasks
    return status


def log(world: LocalWorld) -> str:
    return world.backend.read_log(JOB, 1, "w", 0, 0, 100_000).decode()


def containers(podman: Podman, world: LocalWorld) -> set[str]:
    """Those that there are of its tasks. Others' tests have their own at the same time."""
    tasks = [json.loads(path.read_text()) for path in world.state.glob("live/*/*/task.json")]
    asked = [*podman.program, "ps", "--all", "--format={{.Names}}"]
    there = subprocess.run(asked, capture_output=True, check=True).stdout.decode().split()
    return {task["container"]["name"] for task in tasks} & set(there)
