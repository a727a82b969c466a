"""Control groups of tasks: which there are, what is asked of them, and that nothing escapes a real one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.node.local.cgroups import (
    TASKS,
    Cgroups,
    Layout,
    NoCgroupsError,
    find_cgroups,
    layout_of,
    made_in,
)
from reconciler.node.local.runtimes import Processes, Runtimes
from reconciler.protocols.backend import Cursor, Epoch, StartGang, TaskStatus
from reconciler.supervisor import cgroup
from reconciler.supervisor.delivery import UndeliverableError
from solver.model.cluster import NodeName
from solver.model.quantities import Cpu, Memory
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from tests.contracts.local_worlds import LocalWorld, command_line, eventually, local_world

JOB, ONE = JobName("job"), Epoch(1)
ROOT = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
V2 = "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
UNIFIED = "31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
V1 = "32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


@pytest.mark.parametrize(
    ("mounted", "layout", "where"),
    [
        (ROOT + V2, "v2", "/sys/fs/cgroup"),
        (ROOT + V1 + UNIFIED, "hybrid", "/sys/fs/cgroup/unified"),
        (ROOT + V1, "v1", None),
        (ROOT, "none", None),
    ],
)
def test_what_is_mounted_says_which_version_there_is(mounted: str, layout: Layout, where: str | None) -> None:
    assert layout_of(mounted) == (layout, where and Path(where))


def test_limits_are_those_of_the_shape_and_of_what_works() -> None:
    shape = Shape(cpu=Cpu(1_500), memory=Memory(2**30))
    every = Cgroups(Path("/cg"), frozenset({"cpu", "memory", "pids"}), limits_swap=True)
    made = every.of_task(Path("/state/live/job.1/w.0"), shape)
    assert made["settings"] == {
        "cpu.max": "150000 100000",
        "cpu.weight": "150",
        "memory.max": str(2**30),
        "memory.oom.group": "1",
        "memory.swap.max": "0",
        "pids.max": "65536",
    }
    assert made["folder"].startswith("/cg/")
    assert every.of_task(Path("/state/live/job.1/w.1"), shape)["folder"] != made["folder"]
    assert every.of_task(Path("/t"), Shape())["settings"] == {"pids.max": "65536"}
    light = Cgroups(Path("/cg"), frozenset({"cpu", "memory"})).of_task(Path("/t"), Shape(cpu=Cpu(1)))
    assert light["settings"] == {"cpu.max": "100000 100000", "cpu.weight": "1"}
    assert Cgroups(Path("/cg"), frozenset({"cpu"})).of_task(Path("/t"), shape)["settings"].keys() == {
        "cpu.max",
        "cpu.weight",
    }
    assert Cgroups(Path("/cg"), frozenset()).of_task(Path("/t"), shape)["settings"] == {}


def test_a_folder_of_another_user_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control plane ran as root and left it: whoever can make no group in it has none, and no task fails for it."""
    for name in ("cgroup.kill", "cgroup.subtree_control"):
        (tmp_path / TASKS).mkdir(exist_ok=True)
        (tmp_path / TASKS / name).touch()
    assert made_in(tmp_path).folder == tmp_path / TASKS
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(NoCgroupsError, match="quorate-tasks may not be written by this user"):
        made_in(tmp_path)


def test_a_limit_that_the_kernel_does_not_know_is_no_wish(tmp_path: Path) -> None:
    with pytest.raises(UndeliverableError, match=r"control group .* can't be made"):
        cgroup.enter_new({"folder": str(tmp_path / "new"), "settings": {"memory.max": "1"}})


def test_what_the_kernel_ended_at_the_limit_is_read_from_its_events(tmp_path: Path) -> None:
    limited = {"folder": str(tmp_path), "settings": {"memory.max": "1"}}
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 0\n")
    assert not cgroup.ran_out_of_memory(limited)
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 3\n")
    assert cgroup.ran_out_of_memory(limited)
    assert not cgroup.ran_out_of_memory({**limited, "settings": {}})
    assert not cgroup.ran_out_of_memory(None)


@pytest.fixture
def cgroups() -> Cgroups:
    try:
        return find_cgroups()
    except NoCgroupsError as error:
        pytest.skip(f"this machine has no control groups for tasks: {error}")


@pytest.fixture
def world(tmp_path: Path, cgroups: Cgroups) -> Iterator[LocalWorld]:
    with local_world(tmp_path, runtimes=Runtimes(Processes(cgroups))) as made:
        yield made


def test_a_task_is_in_its_group_which_is_gone_when_it_has_ended(world: LocalWorld, cgroups: Cgroups) -> None:
    folder = run(world, "grep ^0:: /proc/self/cgroup", Shape(cpu=Cpu(500), memory=Memory(2**28)))
    eventually(lambda: task(world).state == "succeeded")
    group = Path(cgroups.of_task(folder, Shape())["folder"])
    assert (folder / "log").read_text().endswith(f"{group.relative_to(group.parent.parent)}\n")
    assert not group.exists()


def test_nothing_escapes_though_its_supervisor_is_gone_and_it_hides(world: LocalWorld, cgroups: Cgroups) -> None:
    """In a session of its own, without the task's mark in its environment: only the group still knows whose it is."""
    folder = run(world, "env -i setsid sleep 600 & echo $! > hidden; exec sleep 600")
    eventually(lambda: (folder / "work/hidden").exists() and (folder / "work/hidden").read_text() != "")
    hidden = int((folder / "work/hidden").read_text())
    eventually(lambda: command_line(hidden).startswith(b"sleep"))
    (supervisor,) = world.supervisors()
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: task(world).state == "lost")
    assert not is_running(hidden)
    assert not Path(cgroups.of_task(folder, Shape())["folder"]).exists()


@pytest.fixture
def limiting(cgroups: Cgroups) -> Cgroups:
    """Those that limit CPU and memory: `python -m hack.cgroup_v2` has them wherever it runs."""
    missing = {"cpu", "memory", "pids"} - cgroups.controllers
    if missing:
        pytest.skip(f"version 1 has {' and '.join(sorted(missing))} on this machine: run `python -m hack.cgroup_v2`")
    return cgroups


def test_a_group_has_the_limits_of_its_shape(world: LocalWorld, limiting: Cgroups) -> None:
    shape = Shape(cpu=Cpu(1_500), memory=Memory(2**26))
    folder = run(world, "sleep 600", shape)
    eventually(lambda: task(world).state == "running")
    asked = limiting.of_task(folder, shape)
    assert {"cpu.max", "cpu.weight", "memory.max", "memory.oom.group"} <= asked["settings"].keys()
    group = Path(asked["folder"])
    procs = group / "cgroup.procs"
    eventually(lambda: procs.exists() and procs.read_text() != "")
    assert {name: (group / name).read_text().strip() for name in asked["settings"]} == asked["settings"]


def test_the_kernel_ends_all_of_a_task_at_its_limit(world: LocalWorld, limiting: Cgroups) -> None:
    limit = Memory(2**26)
    folder = run(world, "sleep 600 & head -c 400000000 /dev/zero | tail | wc -c; sleep 600", Shape(memory=limit))
    eventually(lambda: task(world).state == "failed")
    used = task(world).memory
    assert used is not None
    assert (used.exceeded, used.limit) == (True, limit)
    assert used.peak <= limit, "it never had more, so it was no look that found it"
    assert not Path(limiting.of_task(folder, Shape())["folder"]).exists()


def test_a_task_that_only_makes_more_of_itself_ends_in_its_own_group(
    world: LocalWorld, limiting: Cgroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.node.local.cgroups.PROCESSES_MAX", 20)
    run(world, "for _ in $(seq 50); do sleep 600 & done; wait", Shape())
    eventually(lambda: task(world).state == "failed")
    assert b"fork" in world.backend.read_log(JOB, 1, "w", 0, 0, 10_000)


def run(world: LocalWorld, script: str, shape: Shape = Shape()) -> Path:  # noqa: B008  (it is frozen)
    """Start it; the task's folder."""
    spec = JobSpec(QueueName("q"), (TaskGroup("w", 1, shape),), command=("sh", "-c", script))
    world.backend.submit(StartGang(JOB, 1, (TaskPlacement("w", 0, NodeName("n1")),), spec), ONE)
    return world.state / "live/job.1/w.0"


def task(world: LocalWorld) -> TaskStatus:
    (status,) = world.backend.changes(Cursor(0)).tasks
    return status


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
