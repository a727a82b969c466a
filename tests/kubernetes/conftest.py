"""A real API server for all tests of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.kubernetes.cluster import Cluster, running
from hack.kubernetes.components import found, place

LOGS = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    pytestconfig.stash[LOGS] = folder
    with running(found(place()), folder) as cluster:
        yield cluster


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    if exitstatus and (folder := config.stash.get(LOGS, None)):
        terminalreporter.write_line(f"Logs of etcd and the API server, and its audit log: {folder}")
