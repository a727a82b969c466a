"""A real API server for all tests of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.kubernetes.cluster import Cluster, running
from hack.kubernetes.components import found, place
from tests.kubernetes.fencing import install

LOGS = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    pytestconfig.stash[LOGS] = folder
    with running(found(place()), folder) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def fenced(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A cluster of its own with the fence in force: it would refuse what other tests write as an administrator."""
    folder = tmp_path_factory.mktemp("fenced")
    pytestconfig.stash[LOGS] = folder
    with running(found(place()), folder) as cluster:
        asyncio.run(install(cluster))
        yield cluster


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    if exitstatus and (folder := config.stash.get(LOGS, None)):
        terminalreporter.write_line(f"Logs of etcd and the API server, and its audit log: {folder}")
