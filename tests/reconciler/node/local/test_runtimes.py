"""What podman is told for a task, and what becomes of a job where there is none: without any container."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.node.local import machine, podman
from reconciler.node.local.cgroups import Cgroups, NoCgroupsError
from reconciler.node.local.podman import Podman, podman_of
from reconciler.node.local.runtimes import Beginning, NoContainersError, Processes, Runtimes
from reconciler.node.local.terms import Terms
from reconciler.protocols.backend import Cursor, Epoch, StartGang, TaskStatus
from reconciler.supervisor import remains
from reconciler.supervisor.container import VARIABLE_BYTES_MAX, command_in_container, remove_container, unsayable
from reconciler.supervisor.delivery import UndeliverableError
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Cpu, Memory
from solver.model.shape import Shape
from solver.model.workload import Container, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from tests.contracts.local_worlds import eventually, local_world

IMAGE = "registry.example.org/train@sha256:" + 64 * "0"
SPEC = JobSpec(QueueName("q"), (TaskGroup("w", 1, Shape()),), command=("train", "--all"), container=Container(IMAGE))
ATTEMPT = Path("/state/live/job.1")
CONTENT: dict[str, Any] = {
    "environment": {"CUDA_VISIBLE_DEVICES": "0,3", "OWN": "x", "NVIDIA_VISIBLE_DEVICES": "all"},
    "account": {"uid": 1001, "gid": 1002, "groups": [1002, 44]},
    "command": ["train", "--all"],
    "refused": "",
    "secrets": [],
    "terminal": False,
}
HERE = Podman(("/usr/bin/podman", "--runtime=runc"), "4.3.1", rootless=False, limits=True, init="/catatonit")


def options(runtime: Podman = HERE, container: Container = Container(IMAGE), shape: Shape = Shape()) -> set[str]:  # noqa: B008
    return set(told(runtime, container, shape)["container"]["options"])


def told(runtime: Podman, container: Container = Container(IMAGE), shape: Shape = Shape()) -> dict[str, Any]:  # noqa: B008
    spec = msgspec.structs.replace(SPEC, container=container)
    return runtime.prepared(CONTENT, Beginning(ATTEMPT, ATTEMPT / "w.0", spec, shape))


def test_a_container_has_no_privileges_the_account_of_its_job_and_its_own_folders() -> None:
    assert options() >= {
        *("--cap-drop=all", "--security-opt=no-new-privileges", "--network=host", "--entrypoint=", "--pull=missing"),
        *("--user=1001:1002", "--group-add=44", "--init", "--init-path=/catatonit", "--log-driver=none"),
        *(f"--volume={ATTEMPT}:{ATTEMPT}:ro", f"--volume={ATTEMPT}/w.0/work:{ATTEMPT}/w.0/work:rw"),
        f"--workdir={ATTEMPT}/w.0/work",
    }
    assert "--read-only" not in options()
    assert options(container=Container(IMAGE, "none", read_only=True)) >= {"--network=none", "--read-only"}
    without = told(changed(HERE, init=""))["container"]["options"]
    assert not [option for option in without if option.startswith("--init")]


def changed(runtime: Podman, **changes: Any) -> Podman:
    return dataclasses.replace(runtime, **changes)


def test_a_container_begins_where_its_job_says() -> None:
    spec = msgspec.structs.replace(SPEC, working_directory="/app")
    begun = HERE.prepared(CONTENT, Beginning(ATTEMPT, ATTEMPT / "w.0", spec, Shape()))
    folders = [option for option in begun["container"]["options"] if option.startswith("--workdir")]
    assert folders == ["--workdir=/app"]
    assert begun["environment"]["HOME"] == f"{ATTEMPT}/w.0/work", "it has a folder of its own as well"


def test_limits_are_asked_for_where_podman_can_keep_them() -> None:
    shape = Shape(cpu=Cpu(1_500), memory=Memory(2**30))
    limits = {f"--memory={2**30}b", f"--memory-swap={2**30}b", "--cpus=1.5", "--cpu-shares=1536"}
    assert options(shape=Shape(cpu=Cpu(1))) >= {"--cpus=1", "--cpu-shares=2"}
    assert options(shape=shape) >= {*limits, f"--shm-size={2**30}"}
    assert options(changed(HERE, limits=False), shape=shape).isdisjoint(limits)
    assert not [option for option in options() if option.startswith(("--memory", "--cpus"))]


def test_its_gpus_are_devices_where_they_are_real_and_no_hook_shows_others() -> None:
    real = told(changed(HERE, gives_devices=True))
    assert [each for each in real["container"]["options"] if each.startswith("--device")] == [
        "--device=nvidia.com/gpu=0",
        "--device=nvidia.com/gpu=3",
    ]
    assert "CUDA_VISIBLE_DEVICES" not in real["environment"], "inside they have other numbers"
    declared = told(HERE)
    assert declared["environment"]["CUDA_VISIBLE_DEVICES"] == "0,3"
    for environment in (real["environment"], declared["environment"]):
        assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"
        assert (environment["OWN"], environment["HOME"]) == ("x", f"{ATTEMPT}/w.0/work")


def test_podman_sees_nothing_of_a_jobs_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORATE_TOKEN", "of the agent")
    assert told(HERE)["container"]["environment"].keys() <= {*podman._OWN_VARIABLES, "QUORATE_TASK_FOLDER"}


@pytest.mark.parametrize(
    ("rootless", "version", "limits"),
    [(False, "v1", True), (False, "v2", True), (True, "v2", True), (True, "v1", False)],
)
def test_what_podman_says_of_itself(rootless: bool, version: str, limits: bool) -> None:
    said = {"host": {"security": {"rootless": rootless}, "cgroupVersion": version}, "version": {"Version": "4.3.1"}}
    found = podman_of(("podman",), said, "", gives_devices=False)
    assert (found.rootless, found.limits, found.version) == (rootless, limits, "4.3.1")


def test_variables_are_lines_of_a_file_that_is_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = {**told(HERE), "account": None}
    line = command_in_container(task, {"TOKEN": "s3cret"})
    assert line[:3] == ["/usr/bin/podman", "--runtime=runc", "run"]
    assert line[-3:] == [IMAGE, "train", "--all"]
    assert not any("s3cret" in word for word in line)
    file = Path(line[line.index("--env-file") + 1])
    assert "TOKEN=s3cret\n" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(remains.clear({**task, "container": {**task["container"], "podman": ["true"]}, "cgroup": None})) == []
    assert not file.exists()


def test_a_variable_that_is_no_line_is_refused_by_name_alone() -> None:
    task = {**told(HERE), "environment": {"KEY": "two\nlines"}}
    with pytest.raises(UndeliverableError, match="can't be given KEY") as refused:
        command_in_container(task, {})
    assert "two" not in str(refused.value)
    assert unsayable("A", "x" * VARIABLE_BYTES_MAX)
    assert not unsayable("A", "a=b c'\"")


def test_what_podman_says_against_removing_is_told(tmp_path: Path) -> None:
    def with_program(script: str) -> dict[str, Any]:
        program = tmp_path / "podman"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return {"podman": [str(program)], "name": "quorate-1", "environment": {}}

    assert remove_container(with_program('test "$*" = "rm --force --ignore --time 0 quorate-1"')) == ""
    assert remove_container(with_program("echo busy >&2; exit 125")) == "busy"
    assert "No such file" in remove_container({**with_program(""), "podman": [str(tmp_path / "none")]})
    task = {"container": with_program("echo busy >&2; exit 125"), "cgroup": None}
    assert remains.end_without_supervisor(task) == "its container quorate-1 can't be removed: busy"
    assert remains.end_without_supervisor({}) == "", "a task of an earlier version"
    assert remains.ended_by_kernel({**task, "container": with_program("echo true")})
    assert not remains.ended_by_kernel({**task, "container": with_program("echo false")})


def test_a_job_in_a_container_is_refused_where_there_are_none(tmp_path: Path) -> None:
    runtimes = Runtimes(containers=lacking)
    found = runtimes.unstartable(SPEC)
    assert found is not None
    assert (found.code, found.message) == (
        "no-podman",
        "it asks for a container, and this machine can't run any: podman is not installed",
    )
    assert "Install podman" in found.fix
    assert runtimes.unstartable(msgspec.structs.replace(SPEC, container=None)) is None
    with local_world(tmp_path, runtimes=runtimes) as world:
        placement = TaskPlacement("w", 0, NodeName("n1"), (DeviceId("n1/0"),))
        world.backend.submit(StartGang(JobName("job"), 1, (placement,), SPEC), Epoch(1))

        def task() -> TaskStatus:
            (status,) = world.backend.changes(Cursor(0)).tasks
            return status

        eventually(lambda: task().state == "failed")
        assert task().exit_code == 126
        assert b"podman is not installed. Install podman" in world.backend.read_log(JobName("job"), 1, "w", 0, 0, 1_000)


def test_in_a_container_nobody_is_root() -> None:
    terms = Terms()
    inside = terms._account("ada", SPEC)
    assert (inside.uid if inside else None) == (65_534 if os.geteuid() == 0 else None)
    assert terms._account("ada", msgspec.structs.replace(SPEC, container=None)) is None


def test_a_process_has_a_group_only_where_there_are_any() -> None:
    beginning = Beginning(ATTEMPT, ATTEMPT / "w.0", msgspec.structs.replace(SPEC, container=None), Shape())
    assert Processes().prepared(CONTENT, beginning) == {**CONTENT, "container": None, "cgroup": None}


def lacking() -> Podman:
    raise NoContainersError("podman is not installed")


def test_a_machine_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Cgroups:
        raise NoCgroupsError("cgroup v2 is not mounted (v1)")

    monkeypatch.setattr(machine, "find_cgroups", none)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    found = machine.equipment_of_this_machine(Path("/state"))
    told = found.told
    assert found.runtimes.processes == Processes()
    assert (told["containers"], told["cgroup"]) == (
        "none: podman is not installed",
        "none: cgroup v2 is not mounted (v1)",
    )
    assert "more CPU than they ask for; supervisors look at the memory" in told["unlimited"]
    monkeypatch.setattr(machine, "find_cgroups", lambda: Cgroups(Path("/cg"), frozenset({"cpu", "memory", "pids"})))
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/podman")
    told = machine.equipment_of_this_machine(Path("/state")).told
    assert (told["containers"], told["cgroup"], told["unlimited"]) == ("podman", "/cg", "")
