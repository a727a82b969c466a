"""How many tasks a node takes on parts of GPUs, or on GPUs that are made whole for them: each kind by its own count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solver.capacity.partitions import MigPartitions
from solver.capacity.shared_gpus import SharedGpus, tasks_on
from solver.model.arrays import Ints, Mask
from solver.model.cluster import DeviceId
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import Circle, TrustDomain
from solver.model.topology import Domains


@dataclass(frozen=True, slots=True)
class GpuParts:
    """What a room has in parts: its own arrays and mappings, which it changes. `gpus` and `devices`: those free as a whole."""

    pools: Domains
    gpus: Ints
    devices: Sequence[Sequence[DeviceId]]
    shared: Mapping[int, SharedGpus]
    partitions: MigPartitions


class SharedSlots(NamedTuple):
    """Tasks on shares of so much each, on GPUs that are divided and, if `fresh`, on whole ones, in the pool of a circle.

    `devices`: the different GPUs of which each task has a share.
    """

    milli: int
    circles: tuple[Circle, ...]
    fresh: bool
    devices: int = 1

    def at(self, parts: GpuParts, node: int) -> int:
        """How many fit on one node."""
        domain = self._domain(parts.pools.names[parts.pools.of_node[node]])
        if domain is None:
            return 0
        whole = max(0, int(parts.gpus[node])) if self.fresh else 0
        on_divided = [gpu.slots(self.milli, domain) for gpu in parts.shared.get(node, ())]
        each = MILLI_PER_GPU // self.milli
        return (
            whole * each + sum(on_divided) if self.devices == 1 else tasks_on([each] * whole + on_divided, self.devices)
        )

    def possible(self, parts: GpuParts) -> Mask:
        """Where some may ever fit."""
        allowed = np.array([self._domain(name) is not None for name in parts.pools.names], dtype=bool)
        return np.asarray(allowed[parts.pools.of_node])

    def among(self, parts: GpuParts, nodes: Ints) -> Ints:
        """How many fit on each of some nodes where that is possible."""
        per_gpu = MILLI_PER_GPU // self.milli if self.fresh else 0
        whole: Ints = np.maximum(parts.gpus[nodes], 0)
        count: Ints = whole * per_gpu // self.devices * (whole >= self.devices)
        for number, node in enumerate(nodes.tolist()):
            if node in parts.shared:
                count[number] = self.at(parts, node)
        return count

    def _domain(self, pool: str) -> TrustDomain | None:
        return next((circle.domain for circle in self.circles if circle.pool == pool), None)


class Instances(NamedTuple):
    """Tasks on so many MIG instances each of a profile of a model, `fresh`: where GPUs are changed for it."""

    model: str
    profile: str
    fresh: bool
    devices: int = 1

    def at(self, parts: GpuParts, node: int) -> int:
        """How many fit on one node."""
        counted = parts.partitions.counted(node, self.model, self.profile, parts.devices[node] if self.fresh else None)
        return (counted.as_it_is + sum(counted.gains)) // self.devices

    def possible(self, parts: GpuParts) -> Mask:
        """Where some may ever fit."""
        mask: Mask = np.zeros(len(parts.gpus), dtype=bool)
        mask[[node for node, rule in parts.partitions.rules.items() if rule.model == self.model]] = True
        return mask

    def among(self, parts: GpuParts, nodes: Ints) -> Ints:
        """How many fit on each of some nodes where that is possible."""
        return np.array([self.at(parts, node) for node in nodes.tolist()], dtype=np.int64)


class MadeWhole(NamedTuple):
    """Tasks of so many whole GPUs, where idle ones in MIG mode are made whole."""

    gpus: int

    def at(self, parts: GpuParts, node: int) -> int:
        """How many fit on one node."""
        return (max(0, int(parts.gpus[node])) + parts.partitions.unused.get(node, 0)) // self.gpus

    def possible(self, parts: GpuParts) -> Mask:
        """Where some may ever fit."""
        return np.ones(len(parts.gpus), dtype=bool)

    def among(self, parts: GpuParts, nodes: Ints) -> Ints:
        """How many fit on each of some nodes."""
        unused, more = parts.partitions.unused, np.zeros(len(parts.gpus), dtype=np.int64)
        more[list(unused)] = list(unused.values())
        return np.asarray((np.maximum(parts.gpus[nodes], 0) + more[nodes]) // self.gpus)


@dataclass(frozen=True, slots=True)
class Milli:
    """Milli-GPU of GPUs in MIG mode: of those that could be made whole; or `with_instances` all that no task has.

    No tuple, since what is counted is kept by it: `Milli(True)` would be the same as `MadeWhole(1)`.
    """

    with_instances: bool

    def at(self, parts: GpuParts, node: int) -> int:
        """How many one node has."""
        return parts.partitions.milli_free(node, instances_too=self.with_instances)

    def possible(self, parts: GpuParts) -> Mask:
        """Where there may ever be some."""
        mask: Mask = np.zeros(len(parts.gpus), dtype=bool)
        mask[list(parts.partitions.rules)] = True
        return mask

    def among(self, parts: GpuParts, nodes: Ints) -> Ints:
        """How many each of some nodes has where that is possible."""
        return np.array([self.at(parts, node) for node in nodes.tolist()], dtype=np.int64)


Parts = SharedSlots | Instances | MadeWhole | Milli
