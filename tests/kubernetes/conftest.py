"""Real API servers for all tests of a run: one with nothing in it, one where Quorate is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.kubernetes.cluster import Cluster, running
from hack.kubernetes.components import found, place
from tests.kubernetes.shipping import install

LOGS = pytest.StashKey[Path]()


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
    """What looks back on all others comes last."""
    items.sort(key=lambda item: item.path.name == "test_rights.py")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    if exitstatus and (folder := config.stash.get(LOGS, None)):
        terminalreporter.write_line(f"Logs of etcd and the API server, and its audit log: {folder}")
