"""Capacity without nodes: how many slots of a shape each cell of the cluster offers, and what a task costs in slots.

A *cell* is the nodes of one GPU type in one block (or in one pool, where no waiting gang asks for a block or closer).
A slot of a reference shape is room for one task of it on one node. A task of shape τ lowers a node's slots of shape σ by
at least min(⌊τ/σ⌋) over all that σ takes, so that Σ ⌊τ/σ⌋ · tasks ≤ slots holds for every set that fits: a valid row.
Where task sizes divide each other and GPUs are what is scarce, these rows are also sufficient (docs/solver-rows.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.model.amounts import NONE
from solver.model.arrays import Ints, Mask
from solver.model.cluster import GpuType, Level
from solver.model.quantities import MILLI_PER_GPU, Cpu, Memory
from solver.model.shape import MigShape, Shape, SharedShape, kept_to, nodes_of
from solver.model.workload import Bundled


@dataclass(frozen=True, slots=True)
class CapacityCell:
    """The nodes of one GPU type in one domain; of these a `part`, where it is split by sets of nodes (solver/milp/cell_parts)."""

    domain: int
    gpu_type: GpuType
    part: int | None = None


@dataclass(slots=True)
class Cells:
    """Slots by reference shape, per cell and per closer domain, worked out once per shape. `parts`: of cells that are split."""

    capacity: FreeCapacity
    level: Level
    parts: dict[CapacityCell, tuple[Mask, ...]] = field(default_factory=dict)
    _slots: dict[tuple[Shape, GpuType], Ints] = field(default_factory=dict)
    _in_parts: dict[tuple[Shape, GpuType], Ints] = field(default_factory=dict)
    _bundles: dict[tuple[Shape, int, Level, GpuType, Bundled], Ints] = field(default_factory=dict)

    @property
    def domains(self) -> int:
        """How many domains the cluster has at the level of the cells."""
        return len(self.capacity.topology[self.level].names)

    def all_of_type(self, gpu_type: GpuType) -> Iterable[CapacityCell]:
        """The cells that have open nodes of a type."""
        mine = self.capacity.of_type(gpu_type) & self.capacity.open_nodes
        for domain in np.unique(self.capacity.topology[self.level].of_node[mine]):
            yield CapacityCell(int(domain), gpu_type)

    def slots(self, shape: Shape, cell: CapacityCell) -> int:
        """Slots of a shape in a cell."""
        if cell.part is not None:
            return int(self._per_node(shape, cell.gpu_type)[self.mask_of(cell)].sum())
        return int(self._per_domain(shape, cell.gpu_type)[cell.domain])

    def bundles(self, shape: Shape, tasks: int, level: Level, cell: CapacityCell, inner: Bundled = ()) -> int:
        """How many times at most `tasks` slots of a shape lie together in one domain of a level, over a cell.

        `inner`: these again in smaller bundles, the largest first.
        """
        return int(self._bundles_per_domain(shape, tasks, level, cell.gpu_type, inner)[cell.domain])

    def free(self, cell: CapacityCell, name: str) -> int:
        """How much is free in a cell of what is called so: CPU, memory, or what else nodes have."""
        usable = self.mask_of(cell) & self.capacity.open_nodes
        return int(np.maximum(self.capacity.free_beside[name][usable], 0).sum())

    def milli_with_instances(self, cell: CapacityCell) -> int:
        """Milli-GPU of a cell that no task has: of whole GPUs, and of those in MIG mode."""
        return int(self.capacity.milli_free((MigShape(),))[self.mask_of(cell)].sum())

    def local(self, shape: Shape, cell: CapacityCell) -> Shape:
        """The shape with what counts in a cell: one trust domain, as it lies in one pool; its set, unless all nodes are in it."""
        if (
            nodes_of(shape)
            and not (self.mask_of(cell) & self.capacity.open_nodes & ~self.capacity.sets[nodes_of(shape)]).any()
        ):
            shape = kept_to(shape, "")
        if not isinstance(shape, SharedShape):
            return shape
        pool = self.capacity.topology["pool"].names[self.pool_of(cell.domain)]
        return msgspec.structs.replace(shape, circles=tuple(circle for circle in shape.circles if circle.pool == pool))

    def divided_slots(self, shape: SharedShape, cell: CapacityCell) -> int:
        """Slots of a share on the GPUs of a cell that are divided already."""
        slots = self.capacity.slots(shape, cell.gpu_type, fresh=False)
        return int(slots[self.mask_of(cell)].sum())

    def cell_of(self, node: int) -> CapacityCell:
        """The cell that a node is in, or the part of it."""
        cell = CapacityCell(self.domain_of(node), self.capacity.nodes[node].gpu_type)
        part = next((number for number, mask in enumerate(self.parts.get(cell, ())) if mask[node]), None)
        return replace(cell, part=part)

    def mask_of(self, cell: CapacityCell) -> Mask:
        """Which nodes are in a cell."""
        if cell.part is not None:
            return self.parts[replace(cell, part=None)][cell.part]
        return self.nodes_of(cell.domain) & self.capacity.of_type(cell.gpu_type)

    def domain_of(self, node: int) -> int:
        """The domain a node's cell lies in."""
        return int(self.capacity.topology[self.level].of_node[node])

    def nodes_of(self, domain: int) -> Mask:
        """Which nodes lie in a domain."""
        mask: Mask = self.capacity.topology[self.level].of_node == domain
        return mask

    def pool_of(self, domain: int) -> int:
        """The pool a domain lies in."""
        first = int(np.flatnonzero(self.capacity.topology[self.level].of_node == domain)[0])
        return int(self.capacity.topology["pool"].of_node[first])

    def _per_node(self, shape: Shape, gpu_type: GpuType) -> Ints:
        key = (shape, gpu_type)
        if key not in self._in_parts:
            self._in_parts[key] = self.capacity.slots(shape, gpu_type)
        return self._in_parts[key]

    def _per_domain(self, shape: Shape, gpu_type: GpuType) -> Ints:
        key = (shape, gpu_type)
        if key not in self._slots:
            slots = self.capacity.slots(shape, gpu_type)
            summed = np.bincount(self.capacity.topology[self.level].of_node, weights=slots, minlength=self.domains)
            self._slots[key] = summed.astype(np.int64)
        return self._slots[key]

    def _bundles_per_domain(self, shape: Shape, tasks: int, level: Level, gpu_type: GpuType, inner: Bundled) -> Ints:
        key = (shape, tasks, level, gpu_type, inner)
        if key not in self._bundles:
            together = self._bundles_in(shape, tasks, level, gpu_type, inner)
            self._bundles[key] = self._summed(together, level, self.level)
        return self._bundles[key]

    def _bundles_in(self, shape: Shape, tasks: int, level: Level, gpu_type: GpuType, inner: Bundled) -> Ints:
        """By domain of a level: as many bundles as its slots do for, and the bundles that these are made of."""
        slots = self.capacity.slots(shape, gpu_type)
        most: Ints = np.bincount(self.capacity.topology[level].of_node, weights=slots).astype(np.int64) // tasks
        if inner:
            (each, within), smaller = inner[0], inner[1:]
            there = self._summed(self._bundles_in(shape, each, within, gpu_type, smaller), within, level)
            most = np.minimum(most, there // (tasks // each))
        return most

    def _summed(self, by_domain: Ints, level: Level, outer: Level) -> Ints:
        """What is known by domain of a level, by domain of another one that is no closer."""
        closer, wider = self.capacity.topology[level], self.capacity.topology[outer]
        outer_of_closer = np.zeros(len(closer.names), dtype=np.int64)
        outer_of_closer[closer.of_node] = wider.of_node
        return np.bincount(outer_of_closer, weights=by_domain, minlength=len(wider.names)).astype(np.int64)


def cost_in_slots(task: Shape, reference: Shape) -> int:
    """By how many slots of `reference` a task lowers the node it runs on, at least; 0 says nothing.

    Slots of a limited reference are those on its nodes: only a task that is on these for certain takes any.
    """
    if nodes_of(reference) not in ("", nodes_of(task)):
        return 0
    ratios = [_share_ratio(task, reference)] if isinstance(reference, SharedShape) else []
    if isinstance(reference, MigShape):
        ratios = [int(isinstance(task, MigShape) and (task.model, task.mig) == (reference.model, reference.mig))]
    ratios += [task.gpus // reference.gpus] if reference.gpus else []
    has = task.beside
    ratios += [has.get(name, 0) // need for name, need in reference.beside.items() if need]
    return min(ratios, default=0)


def _share_ratio(task: Shape, reference: SharedShape) -> int:
    """A whole GPU is worth as many slots as it could be divided into; a share takes from its own trust domain alone."""
    if isinstance(task, SharedShape):
        return task.milli // reference.milli if task.circles == reference.circles else 0
    return task.gpus * (MILLI_PER_GPU // reference.milli)


def reference_shapes(shapes: Iterable[Shape]) -> tuple[Shape, ...]:
    """Shapes to count slots of: those asked for, and their GPUs alone (the chain 1|2|4|8, and fractions below it).

    Those of limited tasks are counted on any node too; those that take what few nodes lack, without that too: a large task and a
    small one take one place for a pod each, so places say little of how many of them there is room for.
    """
    asked = {bare(shape) for shape in shapes}
    asked |= {kept_to(shape, "") for shape in asked if nodes_of(shape)}
    asked |= {msgspec.structs.replace(shape, resources=NONE) for shape in asked if shape.resources}
    return tuple(sorted(asked | {gpus_alone(shape) for shape in asked}, key=size_of))


def size_of(shape: Shape) -> tuple[object, ...]:
    """Sorts shapes by what they take; no two different bare shapes are alike in it."""
    circles = shape.circles if isinstance(shape, SharedShape) else ()
    beside = (shape.cpu, shape.memory, tuple(shape.resources.items()))
    return (shape.cost, *beside, circles, shape.mig or "", nodes_of(shape))


def gpus_alone(shape: Shape) -> Shape:
    """What it needs of GPUs, without all that is beside them."""
    return msgspec.structs.replace(shape, cpu=Cpu(0), memory=Memory(0), resources=NONE)


def bare(shape: Shape) -> Shape:
    """The shape without its wish list of types and without how its share was asked for: what a slot must offer."""
    return msgspec.structs.replace(shape, gpu_types=(), gpu_fraction=None, gpu_memory=None)
