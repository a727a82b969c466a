"""Counts made concrete: puts a gang's tasks on nodes and devices, whole or not at all, best fit and in few domains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solver.fit import Fit
from solver.rules.demand import Option
from solver.world.cluster import LEVELS, DeviceId, GpuType, Level, is_wider
from solver.world.quantities import MilliGpu
from solver.world.room import Room
from solver.world.workload import JobSpec, Shape, SharedShape, SharingMode, TaskPlacement, TopologyRequest

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


def place_best(
    room: Room, spec: JobSpec, options: Sequence[Option], fit: Fit | None = None
) -> tuple[Option, Placed] | None:
    """Take room under one of several equally liked options: where `fit` finds the cheapest place, else the first that fits.

    `fit` chooses for jobs of one task. Gangs stay together as `place` keeps them.
    """
    if fit is not None and spec.tasks == 1:
        return _place_cheapest(room, spec, options, fit)
    for option in options:
        placed = place(room, spec, option)
        if placed is not None:
            return option, placed
    return None


def _place_cheapest(room: Room, spec: JobSpec, options: Sequence[Option], fit: Fit) -> tuple[Option, Placed] | None:
    number = next(number for number, group in enumerate(spec.task_groups) if group.replicas)
    spot = fit.cheapest(room, [(option.shapes[number], option.gpu_types[number]) for option in options])
    if spot is None:
        return None
    option = options[spot.way]
    group = ServedGroup(spec.task_groups[number].name, 1, option.shapes[number], option.gpu_types[number])
    return option, Placed((_realise_at(room, group, spot.node, spot.left_milli),), preferred_met=True)


def _realise_at(room: Room, group: ServedGroup, node: int, left_milli: int | None) -> TaskPlacement:
    """One task on a node, its share on the first GPU of which so much is left; None: on one that is whole."""
    share, mode = _share(group.shape, room.nodes[node].pool)
    if share is None:
        (devices,) = room.take(node, group.shape, 1)
        return TaskPlacement(group.name, 0, room.nodes[node].name, devices)
    device = room.free_devices[node][0] if left_milli is None else _divided(room, group.shape, node, left_milli)
    task = TaskPlacement(group.name, 0, room.nodes[node].name, (device,), share, mode)
    room.hold(task, group.shape)
    return task


def _divided(room: Room, shape: Shape, node: int, left_milli: int) -> DeviceId:
    domain = shape.domain(room.nodes[node].pool) if isinstance(shape, SharedShape) else None
    return next(
        gpu.device for gpu in room.shared[node] if gpu.healthy and gpu.domain == domain and gpu.free_milli == left_milli
    )


def _gangs(room: Room, spec: JobSpec, option: Option, within: Mask | None) -> Iterator[_Gang]:
    """The gang as it is tried at each level: one that asks for parts of GPUs first on those that are divided already."""
    if any(isinstance(shape, SharedShape) for shape in option.shapes):
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
        return cls(room, groups, slots, allowed)

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
            chosen = _spread_counts(self.room, self.slots[0] * nodes, self.groups[0].replicas)
            return None if chosen is None else tuple(_realise(self.room, self.groups[0], chosen))
        return self._place_groups_together(nodes)

    def _place_groups_together(self, nodes: Mask) -> tuple[TaskPlacement, ...] | None:
        # Groups compete for the same nodes: try on a copy, and take from the real room only when all of them found theirs.
        trial = self.room.copy()
        decided: list[tuple[ServedGroup, list[tuple[int, int]]]] = []
        for group, before in zip(self.groups, self.slots, strict=True):
            slots = np.minimum(before, trial.slots(group.shape, None)) * nodes
            chosen = _spread_counts(trial, slots, group.replicas)
            if chosen is None:
                return None
            for node, tasks in chosen:
                trial.take(node, group.shape, tasks)
            decided.append((group, chosen))
        return tuple(task for group, chosen in decided for task in _realise(self.room, group, chosen))


def _realise(room: Room, group: ServedGroup, chosen: list[tuple[int, int]]) -> Iterator[TaskPlacement]:
    index = 0
    for node, tasks in chosen:
        share, mode = _share(group.shape, room.nodes[node].pool)
        for devices in room.take(node, group.shape, tasks):
            yield TaskPlacement(group.name, index, room.nodes[node].name, devices, share, mode)
            index += 1


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
