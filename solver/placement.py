"""Counts made concrete: puts a gang's tasks on nodes and devices, whole or not at all, best fit and in few domains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solver.rules.demand import Option
from solver.world.cluster import LEVELS, DeviceId, GpuType, Level, is_wider
from solver.world.quantities import MilliGpu
from solver.world.room import Room
from solver.world.workload import (
    JobSpec,
    MigShape,
    MigSlot,
    Shape,
    SharedShape,
    SharingMode,
    TaskPlacement,
    TopologyRequest,
)

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Placed:
    """A gang on its devices, and whether its preferred level was met."""

    tasks: tuple[TaskPlacement, ...]
    preferred_met: bool


def place(room: Room, spec: JobSpec, option: Option, within: Mask | None = None) -> Placed | None:
    """Take room for the whole gang and say where, or take nothing and return None.

    Domains are tried from the level the job asks for (else from the closest) to the widest it allows, in each level
    the one that the gang fills best. `within` narrows the nodes, as a hint from the program.
    """
    gangs = [gang for gang in _gangs(room, spec, option, within) if gang.fits_somewhere()]
    for level in _levels(spec.effective_topology) if gangs else ():
        for gang in gangs:
            tasks = gang.place_in_one(level) if level else gang.place_among(gang.allowed)
            if tasks is not None:
                return Placed(tasks, _preferred_met(room, spec.effective_topology, tasks))
    return None


def _gangs(room: Room, spec: JobSpec, option: Option, within: Mask | None) -> Iterator[_Gang]:
    """The gang as it is tried at each level: one that asks for parts of GPUs first on those that are divided already."""
    if room.partitions or any(isinstance(shape, SharedShape) for shape in option.shapes):
        yield _Gang.of(room, spec, option, within, fresh=False)
    yield _Gang.of(room, spec, option, within, fresh=True)


def _levels(asked: TopologyRequest) -> Iterator[Level | None]:
    # The preferred level first, then from the closest to the required one: a gang that states no
    # preference is still better off close together, and the cluster less fragmented.
    allowed = [level for level in (*LEVELS, None) if not is_wider(level, asked.required)]
    if asked.preferred in allowed:
        yield asked.preferred
    yield from allowed


def _preferred_met(room: Room, asked: TopologyRequest, tasks: tuple[TaskPlacement, ...]) -> bool:
    if asked.preferred is None:
        return True
    domains = room.topology[asked.preferred].of_node
    return len({int(domains[room.index[task.node]]) for task in tasks}) == 1


class ServedGroup(NamedTuple):
    """A task group under an option: what each of its tasks takes, and on which type."""

    name: str
    replicas: int
    shape: Shape
    gpu_type: GpuType | None


@dataclass(slots=True)
class _Gang:
    """One gang being placed: its groups, and how many tasks of each group every node takes."""

    room: Room
    groups: tuple[ServedGroup, ...]
    slots: list[Ints]
    allowed: Mask
    fresh: bool

    @classmethod
    def of(cls, room: Room, spec: JobSpec, option: Option, within: Mask | None, *, fresh: bool) -> _Gang:
        allowed = room.open_nodes if within is None else room.open_nodes & within
        # Groups with GPUs are harder to place and go first.
        served = (
            ServedGroup(group.name, group.replicas, shape, gpu_type)
            for group, shape, gpu_type in zip(spec.task_groups, option.shapes, option.gpu_types, strict=True)
        )
        groups = tuple(sorted(served, key=lambda group: -group.shape.cost))
        slots = [room.slots(group.shape, group.gpu_type, fresh=fresh) * allowed for group in groups]
        return cls(room, groups, slots, allowed, fresh)

    def fits_somewhere(self) -> bool:
        """Necessary, not sufficient: each group alone finds enough slots."""
        return all(int(slots.sum()) >= group.replicas for group, slots in zip(self.groups, self.slots, strict=True))

    def place_in_one(self, level: Level) -> tuple[TaskPlacement, ...] | None:
        """All tasks in one domain of the level, the one left fullest."""
        domains = self.room.topology[level]
        count = len(domains.names)
        able = np.ones(count, dtype=bool)
        for group, slots in zip(self.groups, self.slots, strict=True):
            able &= np.bincount(domains.of_node, weights=slots, minlength=count) >= group.replicas
        candidates = np.flatnonzero(able)
        if not len(candidates):
            return None
        free = np.bincount(domains.of_node, weights=self.room.free_gpus * self.allowed, minlength=count)
        for domain in candidates[np.argsort(free[candidates], kind="stable")]:
            tasks = self.place_among(self.allowed & (domains.of_node == domain))
            if tasks is not None:
                return tasks
        return None

    def place_among(self, nodes: Mask) -> tuple[TaskPlacement, ...] | None:
        """All tasks on these nodes."""
        if len(self.groups) == 1:
            slots = self._together(self.room, self.groups[0], self.slots[0], nodes)
            chosen = _spread_counts(self.room, slots, self.groups[0].replicas)
            return None if chosen is None else tuple(_realise(self.room, self.groups[0], chosen))
        return self._place_groups_together(nodes)

    def _place_groups_together(self, nodes: Mask) -> tuple[TaskPlacement, ...] | None:
        # Groups compete for the same nodes: try on a copy, and take from the real room only when all of them found theirs.
        trial = self.room.copy()
        decided: list[tuple[ServedGroup, list[tuple[int, int]]]] = []
        for group, before in zip(self.groups, self.slots, strict=True):
            slots = self._together(trial, group, np.minimum(before, trial.slots(group.shape, None)), nodes)
            chosen = _spread_counts(trial, slots, group.replicas)
            if chosen is None:
                return None
            for node, tasks in chosen:
                _take(trial, node, group.shape, tasks)
            decided.append((group, chosen))
        return tuple(task for group, chosen in decided for task in _realise(self.room, group, chosen))

    def _together(self, room: Room, group: ServedGroup, slots: Ints, nodes: Mask) -> Ints:
        """What these nodes take together, where the changes of partitions that are left do not do for each of them."""
        if not (room.partitions and self.fresh and group.shape.uses_gpus):
            return slots * nodes
        return np.minimum(slots, room.slots(group.shape, group.gpu_type, within=nodes)) * nodes


def _realise(room: Room, group: ServedGroup, chosen: list[tuple[int, int]]) -> Iterator[TaskPlacement]:
    index = 0
    for node, tasks in chosen:
        share, mode = _share(group.shape, room.nodes[node].pool)
        for devices, slot in _take(room, node, group.shape, tasks):
            yield TaskPlacement(group.name, index, room.nodes[node].name, devices, share, mode, slot)
            index += 1


def _take(room: Room, node: int, shape: Shape, tasks: int) -> list[tuple[tuple[DeviceId, ...], MigSlot | None]]:
    """The devices of each task, and the MIG instance where that is its device."""
    if isinstance(shape, MigShape):
        return [((slot.instance.id_on(slot.gpu),), slot) for slot in room.take_instances(node, shape, tasks)]
    return [(devices, None) for devices in room.take(node, shape, tasks)]


def _share(shape: Shape, pool: str) -> tuple[MilliGpu | None, SharingMode | None]:
    circle = shape.circle(pool) if isinstance(shape, SharedShape) else None
    return (shape.cost, circle.mode) if circle else (None, None)


def _spread_counts(room: Room, slots: Ints, tasks: int) -> list[tuple[int, int]] | None:
    """Which nodes take how many tasks: few racks and islands, then the nodes that are left fullest."""
    if int(slots.sum()) < tasks:
        return None
    nodes = np.flatnonzero(slots)
    order = nodes[np.argsort(room.free_gpus[nodes], kind="stable")]
    for level in ("island", "rack", "block"):  # stable sorts from the least to the most significant key
        order = order[np.argsort(_domain_rank(room.topology[level].of_node, slots, order, tasks), kind="stable")]
    chosen: list[tuple[int, int]] = []
    for node in order:
        count = min(tasks, int(slots[node]))
        chosen.append((int(node), count))
        tasks -= count
        if not tasks:
            break
    return chosen


def _domain_rank(of_node: Ints, slots: Ints, order: Ints, tasks: int) -> Ints:
    """Sort key that puts the tightest domain that takes all tasks first, else the roomiest first, each kept together."""
    totals = np.bincount(of_node[order], weights=slots[order], minlength=int(of_node.max()) + 1).astype(np.int64)
    mine = totals[of_node[order]]
    unwanted = np.where(mine >= tasks, mine - tasks, 2 * int(totals.max()) + tasks - mine)
    return np.asarray(unwanted * (int(of_node.max()) + 1) + of_node[order], dtype=np.int64)
