"""Where tasks that are processes begin: in the folder that their job names, or in one of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from reconciler.lifecycle.jobs.retries import classify
from reconciler.protocols.backend import Cursor, Epoch, TaskStatus
from solver.model.workload import JobName, JobSpec
from tests.contracts.backend_world import grow, start
from tests.contracts.local_worlds import LocalWorld, eventually, local_world

ONE = Epoch(1)
SAYS = ("sh", "-c", 'pwd; touch "$QUORATE_JOB.$QUORATE_INDEX"')


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    with local_world(tmp_path) as made:
        yield made


def test_all_tasks_begin_in_the_folder_of_their_job_also_those_that_join(world: LocalWorld, tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    first = start(world, "job", SAYS, (0, (0,)))
    first = msgspec.structs.replace(first, spec=begins_in(first.spec, str(folder)))
    world.backend.submit(first, ONE)
    joining = grow(world, first, 1, (1, (1, (0,))))
    world.backend.submit(msgspec.structs.replace(joining, spec=first.spec), ONE)
    eventually(lambda: [task.state for task in tasks(world, "job")] == ["succeeded", "succeeded"])
    assert [log(world, "job", index) for index in (0, 1)] == [f"{folder}\n", f"{folder}\n"]
    assert {path.name for path in folder.iterdir()} == {"job.0", "job.1"}


def test_a_task_without_one_begins_in_a_folder_of_its_own(world: LocalWorld) -> None:
    world.backend.submit(start(world, "job", SAYS, (0, (0,))), ONE)
    eventually(lambda: [task.state for task in tasks(world, "job")] == ["succeeded"])
    assert log(world, "job") == f"{world.state}/live/job.1/worker.0/work\n"


@pytest.mark.parametrize(
    ("name", "why"),
    [("nowhere", "No such file or directory"), ("file", "Not a directory"), ("file/sub", "Not a directory")],
)
def test_a_folder_that_is_not_there_ends_the_task_with_what_to_do(
    world: LocalWorld, tmp_path: Path, name: str, why: str
) -> None:
    (tmp_path / "file").touch()
    order = start(world, "job", ("sh", "-c", "echo began"), (1, (0,)))
    world.backend.submit(msgspec.structs.replace(order, spec=begins_in(order.spec, f"{tmp_path}/{name}")), ONE)
    eventually(lambda: [task.state for task in tasks(world, "job")] == ["failed"])
    (task,) = tasks(world, "job")
    assert (task.exit_code, classify(task)) == (126, "launch")
    (line,) = log(world, "job").splitlines()
    assert line.startswith(f"quorate: can't begin in {tmp_path}/{name} on node n2 as user ")
    assert why in line
    assert "--chdir none" in line


def begins_in(spec: JobSpec, folder: str) -> JobSpec:
    return msgspec.structs.replace(spec, working_directory=folder)


def tasks(world: LocalWorld, job: str) -> list[TaskStatus]:
    return [task for task in world.backend.changes(Cursor(0)).tasks if task.job == job]


def log(world: LocalWorld, job: str, index: int = 0) -> str:
    return world.backend.read_log(JobName(job), 1, "worker", index, 0, 100_000).decode()
