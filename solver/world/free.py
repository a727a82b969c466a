"""What is free on each node, counted for whatever shape is asked for, as arrays that a round fills up while it decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from solver.world.changes import Changes
from solver.world.cluster import DeviceId, GpuType, Node, NodeName
from solver.world.masks import Mask
from solver.world.offers import Need, Offer, Offers
from solver.world.partitions import Partitions
from solver.world.quantities import MILLI_PER_GPU
from solver.world.shape import MigShape, Shape, SharedShape, nodes_of
from solver.world.shared_gpus import SharedGpus, share_slots
from solver.world.topology import Topology
from solver.world.workload import JobName, TaskPlacement

Ints = npt.NDArray[np.int64]

Reserved = Mapping[JobName, tuple[tuple[TaskPlacement, Shape], ...]]


class _Before(NamedTuple):
    """What a node had before something was tried."""

    gpus: int
    cpu: int
    memory: int
    devices: list[DeviceId]
    shared: SharedGpus | None


@dataclass(slots=True)
class Free:
    """Free GPUs, CPU (milli-cores) and memory (bytes) per node, in the order of the snapshot's nodes.

    A GPU is free as a whole (`free_gpus`, `free_devices`), divided (`shared`, for nodes that have such), in MIG mode
    (`partitions`), or somebody's. Nodes that take no new work have no room. Mutable: `copy` first to try things out, or do it
    while `trying`. `reserved`: what is kept for each holder of a reservation from those whom it holds back
    (`solver/world/held`). `sets`: which nodes are in each set that task groups may be limited to. `near`: at which nodes data
    are, by their names.
    """

    nodes: tuple[Node, ...]
    topology: Topology
    gpu_types: tuple[GpuType, ...]
    type_of_node: Ints
    open_nodes: npt.NDArray[np.bool_]
    free_gpus: Ints
    free_cpu: Ints
    free_memory: Ints
    free_devices: list[list[DeviceId]]
    index: dict[NodeName, int]
    shared: dict[int, SharedGpus] = field(default_factory=dict)
    partitions: Partitions = field(default_factory=Partitions)
    reserved: Reserved = field(default_factory=dict)
    sets: Mapping[str, Mask] = field(default_factory=dict)
    near: Mapping[str, Mask] = field(default_factory=dict)
    _usable: dict[tuple[GpuType | None, str], Mask] = field(default_factory=dict, repr=False)
    """Which nodes take new work does not change: rooms and their copies share it."""
    changes: Changes = field(init=False)
    _offers: Offers = field(init=False)
    _before: dict[int, _Before] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """What it offers is counted as it is asked for."""
        self.changes = Changes()
        self._offers = Offers(self.topology, self.free_gpus, self.free_cpu, self.free_memory, self.changes)

    def copy(self) -> Self:
        """An independent room with the same free capacity."""
        return replace(
            self,
            free_gpus=self.free_gpus.copy(),
            free_cpu=self.free_cpu.copy(),
            free_memory=self.free_memory.copy(),
            free_devices=list(self.free_devices),
            shared=dict(self.shared),
            partitions=self.partitions.copy(),
        )

    @contextmanager
    def trying(self) -> Iterator[Partitions]:
        """What is taken and given back inside is undone at the end, node by node. Yields the partitions of before."""
        partitions, before, mark = self.partitions, self._before, len(self.changes.nodes)
        self.partitions, self._before = partitions.copy(), {}
        try:
            yield partitions
        finally:
            for node, had in self._before.items():
                self.free_gpus[node], self.free_cpu[node], self.free_memory[node] = had.gpus, had.cpu, had.memory
                self.free_devices[node] = had.devices
                if had.shared is None:
                    self.shared.pop(node, None)
                else:
                    self.shared[node] = had.shared
            self.partitions, self._before = partitions, before
            self._offers.back_to(mark)

    def _will_change(self, node: int) -> None:
        """Called before anything of a node changes."""
        self.changes.nodes.append(node)
        if self._before is not None and node not in self._before:
            gpus, cpu, memory = int(self.free_gpus[node]), int(self.free_cpu[node]), int(self.free_memory[node])
            self._before[node] = _Before(gpus, cpu, memory, self.free_devices[node], self.shared.get(node))

    def offer(self, shape: Shape, gpu_type: GpuType | None, *, fresh: bool = True, within: Mask | None = None) -> Offer:
        """How many tasks of this shape each node and each domain takes; `gpu_type` None accepts any node. Nobody may change it.

        `fresh` False: without dividing a GPU that is still whole, or changing how one is partitioned. `within`: so that these
        nodes take as many together; None: each node by itself, as if changes of partitions were not counted.
        Of what takes GPUs as a whole it is kept, and follows the room.
        """
        in_parts = isinstance(shape, SharedShape | MigShape) or (fresh and self.is_partitioned(shape, gpu_type))
        gpus = 0 if in_parts or not shape.uses_gpus else max(1, shape.gpus)
        need = Need(gpus, shape.cpu, shape.memory, gpu_type, nodes_of(shape))
        whole = self._offers.known(need) or self._offers.count(need, self.usable(shape, gpu_type))
        if not in_parts:
            return whole
        slots = self._slots_in_parts(shape, fresh, None if within is None else within & self.usable(shape, gpu_type))
        return Offer(np.minimum(whole.slots, slots), self.topology)

    def slots(self, shape: Shape, gpu_type: GpuType | None, *, fresh: bool = True, within: Mask | None = None) -> Ints:
        """How many tasks of this shape each node takes, as `offer` says: an array of one's own."""
        return self.offer(shape, gpu_type, fresh=fresh, within=within).slots.copy()

    def is_partitioned(self, shape: Shape, gpu_type: GpuType | None) -> bool:
        """Whether GPUs in MIG mode may be made whole for it now."""
        if not (self.partitions.unused and shape.uses_gpus):
            return False
        return bool(self.usable(shape, gpu_type)[list(self.partitions.unused)].any())

    def _slots_in_parts(self, shape: Shape, fresh: bool, within: Mask | None) -> Ints:
        if isinstance(shape, SharedShape):
            return share_slots(shape, self.free_gpus, self.topology["pool"], self.shared, fresh=fresh)
        if isinstance(shape, MigShape):
            return self.partitions.instance_slots(shape, self.free_devices, fresh=fresh, within=within)
        return self.partitions.whole_slots(shape.gpus, self.free_gpus, within=within)

    def usable(self, shape: Shape, gpu_type: GpuType | None) -> Mask:
        """The nodes that take new work and are of a type (None: any), of those that a shape may be on. Nobody may change it."""
        key = (gpu_type, nodes_of(shape))
        usable = self._usable.get(key)
        if usable is None:
            usable = self.open_nodes if gpu_type is None else self.open_nodes & self.of_type(gpu_type)
            self._usable[key] = usable = usable & self.sets[key[1]] if key[1] else usable
        return usable

    def of_type(self, gpu_type: GpuType) -> npt.NDArray[np.bool_]:
        """Which nodes have this GPU type; none where the cluster has not heard of it."""
        if gpu_type not in self.gpu_types:
            return np.zeros(len(self.nodes), dtype=bool)
        matches: npt.NDArray[np.bool_] = self.type_of_node == self.gpu_types.index(gpu_type)
        return matches

    def milli_free(self, shapes: Sequence[Shape]) -> Ints:
        """Free milli-GPU per node: whole GPUs, and what is left of divided ones that one of the shapes may share.

        Of GPUs in MIG mode all that no task has, if one of the shapes is an instance, else those that nobody uses.
        """
        sharers = [shape for shape in shapes if isinstance(shape, SharedShape)]
        free, instances_too = self.free_gpus * MILLI_PER_GPU, any(isinstance(shape, MigShape) for shape in shapes)
        for node in self.partitions.rules:
            free[node] += self.partitions.milli_free(node, instances_too=instances_too) * bool(self.open_nodes[node])
        for node, gpus in self.shared.items() if sharers else ():
            domains = {shape.domain(self.nodes[node].pool) for shape in sharers} - {None}
            usable = [gpu.free_milli for gpu in gpus if gpu.healthy and gpu.domain in domains and gpu.free_milli > 0]
            free[node] += sum(usable) * bool(self.open_nodes[node])
        return free
