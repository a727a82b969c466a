"""The command line, run in this process as a user would."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import pytest

from reconciler.api.server import ApiServer
from reconciler.cli.main import run
from reconciler.model.clock import SystemClock
from solver.model.cluster import DeviceId, Node
from solver.model.quantities import Instant
from solver.model.workload import JobName, TaskPlacement
from tests.reconciler.api.conftest import NOW, TOKEN, Site, server, site, spec

__all__ = ["server", "site"]


class Ran(NamedTuple):
    """What one command line did."""

    exit_code: int
    out: str
    err: str


class Quorate(Protocol):
    """Runs `quorate` with arguments."""

    def __call__(self, *arguments: str) -> Ran: ...


@pytest.fixture
def quorate(capsys: pytest.CaptureFixture[str]) -> Quorate:
    def run_it(*arguments: str) -> Ran:
        exit_code = run(arguments)
        captured = capsys.readouterr()
        return Ran(exit_code, captured.out, captured.err)

    return run_it


class Now:
    """What every clock of this process says, until a test says otherwise."""

    def __init__(self) -> None:
        self.instant = NOW

    def advance(self, seconds: int) -> None:
        self.instant = self.instant.after(seconds * 1_000)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Iterator[Now]:
    """A clock that stands still, two hours east of Greenwich."""
    told = Now()
    monkeypatch.setattr(SystemClock, "now", lambda _: told.instant)
    monkeypatch.setenv("TZ", "UTC-02:00")
    time.tzset()
    yield told
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def at_server(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    """The command line finds a running server and its token."""
    monkeypatch.setenv("QUORATE_SERVER", server.url)
    monkeypatch.setenv("QUORATE_TOKEN", TOKEN)
    return server


def submitted(site: Site, name: str, gpus: int = 1, replicas: int = 1, at: Instant = NOW) -> JobName:
    """A job of queue `team`, as its owner ada submitted it."""
    return site.store.jobs.submit(JobName(name), spec(gpus, replicas), "ada", at, "").name


def on(node: Node, *gpus: int, index: int = 0) -> TaskPlacement:
    """One task of group `worker` on these GPUs of a node."""
    return TaskPlacement("worker", index, node.name, tuple(DeviceId(f"{node.name}/{gpu}") for gpu in gpus))
