"""What ended attempts left on disk is deleted once it is old, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from reconciler.model.clock import SystemClock, VirtualClock
from reconciler.node.local.folders import StateFolders
from reconciler.node.local.retention import AttemptRetention
from reconciler.protocols.backend import Epoch
from reconciler.server.logs import logger
from solver.model.quantities import Duration
from solver.model.workload import JobName
from tests.contracts.backend_world import start
from tests.contracts.local_worlds import LocalWorld, eventually, local_world

ONE, DAY = Epoch(1), Duration(86_400_000)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    """Of four jobs two have ended and are forgotten, one has only ended, and one runs."""
    with local_world(tmp_path) as made:
        for number, job in enumerate(("first", "second", "ended")):
            made.backend.submit(start(made, job, ("echo", job), (0, (number,))), ONE)
        made.backend.submit(start(made, "runs", made.runs(), (1, (0,))), ONE)
        eventually(lambda: all(log(made, job) for job in ("first", "second", "ended")))
        for job in ("first", "second"):
            made.backend.forget(JobName(job), 1, ONE)
        yield made


@pytest.fixture
def later(world: LocalWorld) -> VirtualClock:
    """Two days from now."""
    return VirtualClock(SystemClock().now().after(2 * DAY))


def log(world: LocalWorld, job: str) -> bytes:
    return world.backend.read_log(JobName(job), 1, "worker", 0, 0, 100)


def retention(world: LocalWorld, clock: VirtualClock, keep: Duration = DAY) -> AttemptRetention:
    return AttemptRetention(StateFolders(world.state), clock, keep, logger())


def test_what_is_old_is_deleted_and_said(world: LocalWorld, later: VirtualClock) -> None:
    with capture_logs() as said:
        retention(world, later).look()
        retention(world, later).look()
    assert said == [{"log_level": "info", "event": "logs-deleted", "attempts": 2, "older_than": "24h"}]
    for job in ("first", "second"):
        with pytest.raises(KeyError, match="no task"):
            log(world, job)
    assert log(world, "ended") == b"ended\n"
    assert {path.name for path in (world.state / "live").iterdir()} == {"ended.1", "runs.1"}
    assert list((world.state / "forgotten").iterdir()) == []


def test_it_counts_from_when_the_end_was_recorded(world: LocalWorld, later: VirtualClock) -> None:
    retention(world, later, Duration(3 * DAY)).look()
    assert log(world, "first") == b"first\n"


def test_what_cannot_be_deleted_is_told_once_and_stops_nothing(
    world: LocalWorld, later: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, delete = world.state / "forgotten/first.1", shutil.rmtree

    def refused(folder: Path) -> None:
        if folder == first:
            raise PermissionError(1, "Operation not permitted")
        delete(folder)

    monkeypatch.setattr(shutil, "rmtree", refused)
    looking = retention(world, later)
    with capture_logs() as said:
        looking.look()
        looking.look()
    warned = {"log_level": "warning", "folder": str(first), "message": "Operation not permitted"}
    assert [line for line in said if line["log_level"] == "warning"] == [{"event": "logs-not-deleted", **warned}]
    assert [path.name for path in (world.state / "forgotten").iterdir()] == ["first.1"]


def test_others_may_delete_the_same(world: LocalWorld, later: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    delete = shutil.rmtree

    def twice(folder: Path) -> None:
        delete(folder)
        delete(folder)

    monkeypatch.setattr(shutil, "rmtree", twice)
    with capture_logs() as said:
        retention(world, later).look()
    assert said == []
    assert list((world.state / "forgotten").iterdir()) == []


def test_a_folder_that_cannot_be_listed_is_told(world: LocalWorld, later: VirtualClock) -> None:
    looking = retention(world, later)
    (world.state / "forgotten").rename(world.state / "elsewhere")
    with capture_logs() as said:
        looking.look()
    assert [line["message"] for line in said] == ["No such file or directory"]
    (world.state / "elsewhere").rename(world.state / "forgotten")


def test_it_looks_until_it_is_stopped(world: LocalWorld, later: VirtualClock) -> None:
    looking = retention(world, later)
    looking.stop()
    looking.run()
    assert len(list((world.state / "forgotten").iterdir())) == 2
