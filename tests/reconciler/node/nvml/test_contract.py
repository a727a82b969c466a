"""The conformance suite of partitions (tests/contracts/test_backend_partitions.py), on real processes and GPUs that NVML shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.node.local.gpus import NodeGpus
from reconciler.node.local_driver import driver_for, gpus_of
from tests.contracts import test_backend_partitions
from tests.contracts.backend_world import Watcher
from tests.contracts.local_worlds import LocalWorld
from tests.reconciler.node.nvml.conftest import Install
from tests.reconciler.node.nvml.library import Library
from tests.reconciler.node.nvml.made import card_of


class NvmlWorld(LocalWorld):
    """One machine with four H100: both declared nodes are it."""

    def gpus(self, kept: Path) -> NodeGpus:
        return gpus_of(driver_for("nvml", kept), kept)


@pytest.fixture
def world(install: Install, tmp_path: Path) -> Iterator[NvmlWorld]:
    install(Library(card_of("H100-80GB", number) for number in range(4)))
    world = NvmlWorld(tmp_path)
    try:
        yield world
    finally:
        world.close()


@pytest.fixture
def watcher(world: NvmlWorld) -> Watcher:
    return Watcher(world)


# Every test of that suite is one of this module too, with the world above.
globals().update({name: test for name, test in vars(test_backend_partitions).items() if name.startswith("test_")})
globals()["gpu"] = test_backend_partitions.gpu
