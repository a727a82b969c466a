"""Real API servers for all tests of a process: one with nothing in it, two where Quorate is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.kubernetes.cluster import Cluster, running
from hack.kubernetes.components import found, place
from tests.e2e import control_plane
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes import late
from tests.kubernetes.shipping import install
from tests.kubernetes.together import folder_of_all, tell_end
from tests.reconciler.gitops.source.origin import Origin

LOGS = pytest.StashKey[Path]()
LONGEST = (
    "test_seeds_of_faults.py",
    "test_run_mig.py",
    "test_start_recovery.py",
    "test_run_eviction.py",
    "test_taken_over.py",
)
"""Begun first, so that no process is left with one of them while the others have nothing to do."""


@pytest.fixture(scope="session", autouse=True)
def _late(request: pytest.FixtureRequest) -> Iterator[None]:
    seed = request.config.getoption("--late")
    with pytest.MonkeyPatch.context() as patched:
        if seed:
            patched.setattr(control_plane, "QUORATE", ("-m", "tests.kubernetes.late", seed))
            late.begin(int(seed))
        yield


@pytest.fixture(scope="session", autouse=True)
def _told_at_the_end(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    tell_end(folder_of_all(tmp_path_factory), request.session.testsfailed)


@pytest.fixture
def plane(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlPlane]:
    """One that is not started yet, on a repository with the module's POLICY."""
    origin = Origin(tmp_path / "policy")
    origin.commit(request.module.POLICY)
    made = ControlPlane(origin.folder, tmp_path / "state")
    yield made
    made.end()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    pytestconfig.stash[LOGS] = folder
    with running(found(place()), folder) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One of its own where all of deploy/kubernetes is installed, for the whole program: no pods but those of the test."""
    yield from _with_everything(tmp_path_factory.mktemp("shipped"))


@pytest.fixture(scope="session")
def fenced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Another such one, for the parts by themselves. What the fence keeps out, tests with neither need."""
    yield from _with_everything(tmp_path_factory.mktemp("fenced"))


def _with_everything(folder: Path) -> Iterator[Cluster]:
    with running(found(place()), folder) as cluster:
        asyncio.run(install(cluster))
        yield cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first, and last what looks back on all others."""
    places = {name: number for number, name in enumerate(LONGEST)} | {"test_rights.py": len(LONGEST) + 1}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    if exitstatus and (folder := config.stash.get(LOGS, None)):
        terminalreporter.write_line(f"Logs of etcd and the API server, and its audit log: {folder}")
