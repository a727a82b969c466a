"""How many tasks a node takes on parts of GPUs, or on GPUs that are made whole for them: each kind by its own count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solver.world.cluster import DeviceId
from solver.world.partitions import Partitions
from solver.world.quantities import MILLI_PER_GPU
from solver.world.shape import Circle, TrustDomain
from solver.world.shared_gpus import SharedGpus
from solver.world.topology import Domains

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class InParts:
    """What a room has in parts: its own arrays and mappings, which it changes. `gpus` and `devices`: those free as a whole."""

    pools: Domains
    gpus: Ints
    devices: Sequence[Sequence[DeviceId]]
    shared: Mapping[int, SharedGpus]
    partitions: Partitions


class Shares(NamedTuple):
    """Tasks on shares of so much each, on GPUs that are divided and, if `fresh`, on whole ones, in the pool of a circle."""

    milli: int
    circles: tuple[Circle, ...]
    fresh: bool

    def at(self, parts: InParts, node: int) -> int:
        """How many fit on one node."""
        domain = self._domain(parts.pools.names[parts.pools.of_node[node]])
        if domain is None:
            return 0
        whole = max(0, int(parts.gpus[node])) if self.fresh else 0
        on_divided = sum(gpu.slots(self.milli, domain) for gpu in parts.shared.get(node, ()))
        return whole * (MILLI_PER_GPU // self.milli) + on_divided

    def everywhere(self, parts: InParts) -> Ints:
        """How many fit on each node."""
        allowed = np.array([self._domain(name) is not None for name in parts.pools.names], dtype=bool)
        per_gpu = MILLI_PER_GPU // self.milli if self.fresh else 0
        count: Ints = np.maximum(parts.gpus, 0) * allowed[parts.pools.of_node] * per_gpu
        for node in parts.shared:
            count[node] = self.at(parts, node)
        return count

    def _domain(self, pool: str) -> TrustDomain | None:
        return next((circle.domain for circle in self.circles if circle.pool == pool), None)


class Instances(NamedTuple):
    """Tasks on MIG instances of a profile of a model, `fresh`: where GPUs are changed for it."""

    model: str
    profile: str
    fresh: bool

    def at(self, parts: InParts, node: int) -> int:
        """How many fit on one node."""
        counted = parts.partitions.counted(node, self.model, self.profile, parts.devices[node] if self.fresh else None)
        return counted.as_it_is + sum(counted.gains)

    def everywhere(self, parts: InParts) -> Ints:
        """How many fit on each node."""
        count = np.zeros(len(parts.gpus), dtype=np.int64)
        for node in parts.partitions.rules:
            count[node] = self.at(parts, node)
        return count


class MadeWhole(NamedTuple):
    """Tasks of so many whole GPUs, where those in MIG mode are made whole that nobody uses."""

    gpus: int

    def at(self, parts: InParts, node: int) -> int:
        """How many fit on one node."""
        return (max(0, int(parts.gpus[node])) + parts.partitions.unused.get(node, 0)) // self.gpus

    def everywhere(self, parts: InParts) -> Ints:
        """How many fit on each node."""
        most: Ints = np.maximum(parts.gpus, 0)
        for node, count in parts.partitions.unused.items():
            most[node] += count
        return most // self.gpus


Parts = Shares | Instances | MadeWhole
