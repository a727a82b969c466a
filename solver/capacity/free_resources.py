"""What is free on each node, counted for whatever shape is asked for, as arrays that a round fills up while it decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from solver.capacity.changes import ChangeLog
from solver.capacity.free_amounts import FreeAmounts
from solver.capacity.gpu_parts import GpuParts, Instances, MadeWhole, Milli, Parts, SharedSlots
from solver.capacity.offers import Offer, Offers, TaskDemand
from solver.capacity.partitions import MigPartitions
from solver.capacity.shared_gpus import SharedGpus
from solver.model.amounts import CPU, MEMORY
from solver.model.arrays import Ints, Mask
from solver.model.cluster import DeviceId, GpuType, Level, Node, NodeName
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import MigShape, Shape, SharedShape, nodes_of
from solver.model.topology import Topology
from solver.model.workload import JobName, TaskPlacement

Reserved = Mapping[JobName, tuple[tuple[TaskPlacement, Shape], ...]]


class _Before(NamedTuple):
    """What a node had before something was tried."""

    gpus: int
    beside: list[int]
    devices: list[DeviceId]
    shared: SharedGpus | None


@lru_cache(maxsize=4096)
def _need(shape: Shape, gpu_type: GpuType | None, fresh: bool, is_partitioned: bool) -> TaskDemand:
    """What a task takes. `is_partitioned`: GPUs in MIG mode may be made whole for it."""
    parts: Parts | None = None
    if isinstance(shape, SharedShape):
        parts = SharedSlots(shape.milli, shape.circles, fresh, shape.devices)
    elif isinstance(shape, MigShape):
        parts = Instances(shape.model, shape.mig or "", fresh, shape.devices)
    elif is_partitioned:
        parts = MadeWhole(max(1, shape.gpus))
    gpus = max(1, shape.gpus) if shape.uses_gpus and parts is None else 0
    beside = tuple((name, amount) for name, amount in shape.beside.items() if amount)
    return TaskDemand(gpus, beside, gpu_type, nodes_of(shape), parts)


@dataclass(slots=True)
class FreeResources:
    """Free GPUs, and what is free beside them, per node, in the order of the snapshot's nodes.

    A GPU is free as a whole (`free_gpus`, `free_devices`), divided (`shared`, for nodes that have such), in MIG mode
    (`partitions`), or in use. Nodes that take no new work have no room. Mutable: `copy` first to try things out, or do it
    while `trying`. `reserved`: what is kept for each holder of a reservation from the jobs that it holds back
    (`capacity/reserved_view`). `sets`: the nodes of each set that task groups may be limited to. `near`: at which nodes data
    are, by their names.
    """

    nodes: tuple[Node, ...]
    topology: Topology
    gpu_types: tuple[GpuType, ...]
    type_of_node: Ints
    open_nodes: npt.NDArray[np.bool_]
    free_gpus: Ints
    free_beside: FreeAmounts
    free_devices: list[list[DeviceId]]
    index: dict[NodeName, int]
    shared: dict[int, SharedGpus] = field(default_factory=dict)
    partitions: MigPartitions = field(default_factory=MigPartitions)
    reserved: Reserved = field(default_factory=dict)
    sets: Mapping[str, Mask] = field(default_factory=dict)
    near: Mapping[str, Mask] = field(default_factory=dict)
    _usable: dict[tuple[GpuType | None, str], Mask] = field(default_factory=dict, repr=False)
    """Which nodes take new work does not change: rooms and their copies share it."""
    _makeable_by_type: dict[tuple[GpuType | None, str], frozenset[int]] = field(default_factory=dict, repr=False)
    _healthy_by_node: dict[int, Sequence[DeviceId]] = field(default_factory=dict, repr=False)
    changes: ChangeLog = field(init=False)
    _offers: Offers = field(init=False)
    _before: dict[int, _Before] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """What it offers is counted as it is asked for."""
        self.changes = ChangeLog()
        parts = GpuParts(self.topology["pool"], self.free_gpus, self.free_devices, self.shared, self.partitions)
        self._offers = Offers(self.topology, self.free_gpus, self.free_beside, parts, self.changes)

    @property
    def free_cpu(self) -> Ints:
        """Free milli-cores per node."""
        return self.free_beside[CPU]

    @property
    def free_memory(self) -> Ints:
        """Free bytes per node."""
        return self.free_beside[MEMORY]

    def copy(self) -> Self:
        """An independent room with the same free capacity."""
        made = replace(
            self,
            free_gpus=self.free_gpus.copy(),
            free_beside=self.free_beside.copy(),
            free_devices=list(self.free_devices),
            shared=dict(self.shared),
            partitions=self.partitions.copy(),
        )
        made._offers.take_over(self._offers)
        return made

    @contextmanager
    def trying(self) -> Iterator[MigPartitions]:
        """What is taken and given back inside is undone at the end, node by node. Yields the partitions of before."""
        partitions, before = self.partitions.copy(), self._before
        mark, gained = len(self.changes.nodes), self.changes.gained
        self._before = {}
        try:
            yield partitions
        finally:
            for node, had in self._before.items():
                self.free_gpus[node] = had.gpus
                self.free_beside.put_back(node, had.beside)
                self.free_devices[node] = had.devices
                if had.shared is None:
                    self.shared.pop(node, None)
                else:
                    self.shared[node] = had.shared
            self.partitions.become(partitions)
            self._before = before
            self._offers.back_to(mark)
            self.changes.gained = gained

    def partition_as(self, partitions: MigPartitions) -> None:
        """Let GPUs be partitioned as in another room of the same pools."""
        for node, gpus in partitions.gpus.items():
            had = self.partitions.gpus[node]
            if gpus is not had and gpus != had:
                self._will_change(node)
        self.changes.gain()
        self.partitions.become(partitions)

    def _will_change(self, node: int) -> None:
        """Called before anything of a node changes."""
        self.changes.nodes.append(node)
        if self._before is not None and node not in self._before:
            gpus, beside = int(self.free_gpus[node]), self.free_beside.at(node)
            self._before[node] = _Before(gpus, beside, self.free_devices[node], self.shared.get(node))

    def offer(self, shape: Shape, gpu_type: GpuType | None, *, fresh: bool = True, within: Mask | None = None) -> Offer:
        """How many tasks of this shape each node and each domain takes; `gpu_type` None accepts any node. Not to be changed.

        `fresh` False: without dividing a GPU that is still whole, or changing how one is partitioned. `within`: so that these
        nodes take as many together; None: each node by itself, as if changes of partitions were not counted.
        Of what takes GPUs as a whole it is kept, and follows the room.
        """
        need = _need(shape, gpu_type, fresh, fresh and self.is_partitioned(shape, gpu_type))
        alone = self._kept(need, shape)
        return alone if within is None else self._together(need, shape, alone, within & self.usable(shape, gpu_type))

    def has_slots(
        self, shape: Shape, gpu_type: GpuType | None, tasks: int, level: Level | None, *, fresh: bool = True
    ) -> bool:
        """Whether one domain of a level (None: all nodes together) takes so many tasks, where `offer` says how many each does."""
        need = _need(shape, gpu_type, fresh, fresh and self.is_partitioned(shape, gpu_type))
        return self._offers.may_reach(need, tasks, level) and self._kept(need, shape).most(level) >= tasks

    def _together(self, need: TaskDemand, shape: Shape, alone: Offer, within: Mask) -> Offer:
        """What these nodes take with the changes of partitions that are left; each `alone`: with as many as it likes."""
        match need.parts:
            case MadeWhole(gpus):
                slots = self.partitions.whole_slots(gpus, self.free_gpus, within)
            case Instances(model, profile, True, devices):
                slots = self.partitions.instance_slots(model, profile, devices, self.free_devices, within)
            case _:
                return alone
        limits = self._kept(need._replace(parts=None), shape).slots
        return Offer(np.minimum(limits, slots), self.topology)

    def _kept(self, need: TaskDemand, shape: Shape) -> Offer:
        return self._offers.known(need) or self._offers.count(need, self.usable(shape, need.gpu_type))

    def settle(self) -> None:
        """Nothing of it changes until it is copied: what its copies were asked for is counted once for all to come."""
        self._offers.settle(self._usable_for)

    def with_sets(self, sets: Mapping[str, Mask]) -> Self:
        """This room, in its place, that knows more sets of nodes."""
        made = replace(self, sets=sets)
        made._offers.take_over(self._offers)
        return made

    def lent(self) -> Self:
        """A copy for a round: sets of nodes that it makes are forgotten with it and its own copies."""
        made = self.copy()
        made._usable, made._makeable_by_type = dict(self._usable), dict(self._makeable_by_type)
        return made

    def limit_to(self, sets: Mapping[str, Mask]) -> None:
        """The sets of nodes that task groups may be limited to are these now."""
        self.sets, self._usable, self._makeable_by_type = sets, {}, {}
        self._offers.forget_sets()

    def slots(self, shape: Shape, gpu_type: GpuType | None, *, fresh: bool = True, within: Mask | None = None) -> Ints:
        """How many tasks of this shape each node takes, as `offer` says: an array of one's own."""
        return self.offer(shape, gpu_type, fresh=fresh, within=within).slots.astype(np.int64)

    def is_partitioned(self, shape: Shape, gpu_type: GpuType | None) -> bool:
        """Whether GPUs in MIG mode could be made whole for it now, if changes are left."""
        unused = self.partitions.unused
        return bool(unused) and not unused.keys().isdisjoint(self._makeable(shape, gpu_type))

    def _makeable(self, shape: Shape, gpu_type: GpuType | None) -> frozenset[int]:
        """The nodes with GPUs that may be made whole for it while they are idle."""
        if not (self.partitions.rules and shape.uses_gpus):
            return frozenset()
        key = (gpu_type, nodes_of(shape))
        found = self._makeable_by_type.get(key)
        if found is None:
            usable, rules = self.usable(shape, gpu_type), self.partitions.rules
            found = frozenset(node for node, rule in rules.items() if rule.changes and usable[node])
            self._makeable_by_type[key] = found
        return found

    def usable(self, shape: Shape, gpu_type: GpuType | None) -> Mask:
        """The nodes that take new work and are of a type (None: any), of those that a shape may be on. Not to be changed."""
        return self._usable_in(gpu_type, nodes_of(shape))

    def _usable_in(self, gpu_type: GpuType | None, node_set: str) -> Mask:
        key = (gpu_type, node_set)
        usable = self._usable.get(key)
        if usable is None:
            usable = self.open_nodes if gpu_type is None else self.open_nodes & self.of_type(gpu_type)
            self._usable[key] = usable = usable & self.sets[node_set] if node_set else usable
        return usable

    def _usable_for(self, need: TaskDemand) -> Mask | None:
        """The nodes that a task may be on; None: copies of this room alone know the set."""
        known = not need.node_set or need.node_set in self.sets
        return self._usable_in(need.gpu_type, need.node_set) if known else None

    def conceivable(self, shape: Shape, gpu_type: GpuType | None) -> Mask:
        """The nodes that would take a task of this shape if enough were free, and whatever may be partitioned were so."""
        usable, parts = self.usable(shape, gpu_type), _need(shape, gpu_type, True, False).parts
        return usable if parts is None else usable & parts.possible(self._offers.parts)

    def of_type(self, gpu_type: GpuType) -> npt.NDArray[np.bool_]:
        """Which nodes have this GPU type; none where the cluster has not heard of it."""
        if gpu_type not in self.gpu_types:
            return np.zeros(len(self.nodes), dtype=bool)
        matches: npt.NDArray[np.bool_] = self.type_of_node == self.gpu_types.index(gpu_type)
        return matches

    def milli_free(self, shapes: Sequence[Shape]) -> Ints:
        """Free milli-GPU per node: whole GPUs, and what is left of divided ones that one of the shapes may share.

        Of GPUs in MIG mode all that no task has, if one of the shapes is an instance, else those that are idle.
        """
        sharers = [shape for shape in shapes if isinstance(shape, SharedShape)]
        free: Ints = self.free_gpus * MILLI_PER_GPU
        if self.partitions:
            with_instances = any(isinstance(shape, MigShape) for shape in shapes)
            free += self._kept(TaskDemand(0, (), None, "", Milli(with_instances)), Shape()).slots
        for node, gpus in self.shared.items() if sharers else ():
            domains = {shape.domain(self.nodes[node].pool) for shape in sharers} - {None}
            usable = [gpu.free_milli for gpu in gpus if gpu.healthy and gpu.domain in domains and gpu.free_milli > 0]
            free[node] += sum(usable) * bool(self.open_nodes[node])
        return free

    @property
    def milli_left(self) -> Ints:
        """Free milli-GPU per node: whole GPUs, and all that is left of divided ones, whoever may share them."""
        free: Ints = self.free_gpus * MILLI_PER_GPU
        for node, gpus in self.shared.items():
            left = sum(gpu.free_milli for gpu in gpus if gpu.healthy and gpu.free_milli > 0)
            free[node] += left * bool(self.open_nodes[node])
        return free
