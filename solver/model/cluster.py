"""Nodes and the GPUs in them, as declared and as observed."""

from __future__ import annotations

from typing import Literal, NewType

from solver.model.amounts import CPU, MEMORY, NONE, Amounts
from solver.model.document import Document
from solver.model.quantities import Cpu, Memory

NodeName = NewType("NodeName", str)
DeviceId = NewType("DeviceId", str)
GpuType = NewType("GpuType", str)

Level = Literal["island", "rack", "block", "pool"]
SpreadLevel = Literal["node", "island", "rack", "block"]
LEVELS: tuple[Level, ...] = ("island", "rack", "block", "pool")
"""From the closest to the widest: an island is one NVLink clique, a rack one leaf switch, a block one spine."""


def is_wider(one: Level | None, other: Level | None) -> bool:
    """Level `one` is wider than `other`; None, the whole cluster, is the widest."""
    ordered = (*LEVELS, None)
    return ordered.index(one) > ordered.index(other)


class MigInstance(Document, frozen=True):
    """A part of a GPU with slices of its own. `start`: the first memory slice it takes."""

    profile: str
    start: int

    def id_on(self, gpu: DeviceId) -> DeviceId:
        """Its id as a device. It follows from the place, so an instance can be named before it is made."""
        return DeviceId(f"{gpu}/{self.profile}@{self.start}")


class Gpu(Document, frozen=True):
    """One device. `id` is unique in the cluster (a GPU's UUID); `index` is its place in the node; `memory` 0 is not known.

    `instances`: what it is partitioned into, () nothing yet; None: it is not in MIG mode.
    """

    id: DeviceId
    index: int
    healthy: bool = True
    memory: Memory = Memory(0)
    instances: tuple[MigInstance, ...] | None = None


class Links(Document, frozen=True):
    """GB/s that each GPU has towards those with which it shares a domain of a level, and no closer one."""

    island: float = 900.0
    rack: float = 50.0
    block: float = 50.0
    pool: float = 50.0

    def at(self, level: Level) -> float:
        """That of one level."""
        return {"island": self.island, "rack": self.rack, "block": self.block, "pool": self.pool}[level]


class Node(Document, frozen=True):
    """One machine: the unit of placement and of failure.

    An empty `island` or `rack` means that the node shares none with another node, an empty `block`
    that it lies in the block of its rack alone; so a required level is never met by mere ignorance.
    `data`: what can be read here as fast as from nearby. `labels`: what its pool says of it, each as KEY=VALUE, sorted.
    `keeps_geometry`: its GPUs can't be partitioned anew now, whatever the policy of its pool says. `resources`: what else it has.
    """

    name: NodeName
    pool: str
    cpu: Cpu
    memory: Memory
    gpu_type: GpuType = GpuType("")
    gpus: tuple[Gpu, ...] = ()
    island: str = ""
    rack: str = ""
    block: str = ""
    links: Links = Links()
    data: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    ready: bool = True
    cordoned: bool = False
    keeps_geometry: bool = False
    resources: Amounts = NONE

    @property
    def beside(self) -> dict[str, int]:
        """What it has beside GPUs, by name."""
        return {CPU: int(self.cpu), MEMORY: int(self.memory), **self.resources}

    @property
    def schedulable(self) -> bool:
        """New work may start here."""
        return self.ready and not self.cordoned

    @property
    def path(self) -> tuple[str, ...]:
        """The names of its domains, one for each of LEVELS; domains are named uniquely within their pool."""
        pool, rack = self.pool, self.rack or self.name
        return (f"{pool}/{self.island or self.name}", f"{pool}/{rack}", f"{pool}/{self.block or rack}", pool)

    def domain(self, level: Level) -> str:
        """The name of its domain at a level."""
        return self.path[LEVELS.index(level)]
