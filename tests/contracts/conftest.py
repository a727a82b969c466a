"""Where implementations register for the conformance suites: a line here, and every test of a suite runs against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.contracts.backend_world import BackendWorld, Watcher
from tests.contracts.baremetal_worlds import baremetal_world
from tests.contracts.local_worlds import local_world
from tests.contracts.played_worlds import played_world
from tests.contracts.simulated_worlds import kind_world, unkind_world
from tests.contracts.stores import Stores, postgresql_stores, sqlite_stores

BACKENDS: dict[str, Callable[[Path], AbstractContextManager[BackendWorld]]] = {
    "baremetal": baremetal_world,
    "local": local_world,
    "played": played_world,
    "simulated-kind": kind_world,
    "simulated-unkind": unkind_world,
}
"""Name -> a context manager over an empty folder, which gives a fresh world and leaves nothing running."""

STORES: dict[str, Callable[[Path], AbstractContextManager[Stores]]] = {
    "sqlite": sqlite_stores,
    "postgresql": postgresql_stores,
}
"""Name -> a context manager over an empty folder, which gives empty stores."""
POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.postgresql)


def _backends() -> Iterator[ParameterSet]:
    """Agents on real connections cost much: they are tried where there is time."""
    for name in sorted(BACKENDS):
        yield pytest.param(name, marks=[pytest.mark.thorough] if name == "baremetal" else [])


@pytest.fixture(params=_backends())
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BackendWorld]:
    """One backend with its nodes."""
    with BACKENDS[request.param](tmp_path) as made:
        yield made


@pytest.fixture
def watcher(world: BackendWorld) -> Watcher:
    """Sends orders to the world's backend and keeps what it reports."""
    return Watcher(world)


@pytest.fixture(params=["sqlite", POSTGRESQL])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    """Job source, ledger and history over one empty state."""
    with STORES[request.param](tmp_path) as made:
        yield made
