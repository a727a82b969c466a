"""The simulated backend under the conformance suite, in a kind and in an unkind world."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reconciler.backends.simulated.backend import SimulatedBackend
from reconciler.backends.simulated.behaviour import KIND, UNKIND, Faults
from reconciler.backends.simulated.cluster import SimulatedCluster
from reconciler.model.clock import VirtualClock
from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.quantities import Cpu, Duration, Memory
from solver.model.workload import JobName
from tests.contracts.played_commands import PlayedCommands

NODES = tuple(
    Node(
        NodeName(f"n{number}"),
        "pool",
        Cpu(64_000),
        Memory(2**38),
        GpuType("H100"),
        tuple(Gpu(DeviceId(f"n{number}/{index}"), index) for index in range(4)),
    )
    for number in (1, 2)
)


class SimulatedWorld(PlayedCommands):
    """Implements BackendWorld."""

    nodes = NODES
    idle_limit = Duration(60_000)

    def __init__(self, faults: Faults) -> None:
        self._clock = VirtualClock()
        self.cluster = SimulatedCluster(NODES, self._clock, random.Random(7), faults)
        self.backend = SimulatedBackend(self.cluster)

    def settle(self) -> None:
        self._clock.advance(5_000)

    def restart(self) -> None:
        """The object is the world's end of the wire: a crash of the control plane takes nothing from it."""

    def told(self, job: JobName, attempt: int, index: int) -> list[int]:
        heard = self.cluster.tells.heard
        return [told.number for told in heard if (told.job, told.attempt, told.index) == (job, attempt, index)]

    def starts(self, job: JobName, attempt: int, group: str, index: int) -> int:
        wanted = (job, attempt, group, index)
        return sum((ran.job, ran.attempt, ran.group, ran.index) == wanted for ran in self.cluster.intervals)

    def environment(self, job: JobName, attempt: int, group: str, index: int) -> dict[str, str] | None:
        return None


@contextmanager
def kind_world(folder: Path) -> Iterator[SimulatedWorld]:
    """Every message arrives and takes effect at once."""
    yield SimulatedWorld(KIND)


@contextmanager
def unkind_world(folder: Path) -> Iterator[SimulatedWorld]:
    """Messages get lost, late and unanswered; effects and reports are delayed."""
    yield SimulatedWorld(UNKIND)
