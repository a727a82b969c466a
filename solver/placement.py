"""Counts made concrete: puts a gang's tasks on nodes and devices, whole or not at all, best fit and in few domains."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count as numbers_from_0
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solver.closeness import Manners, choose, more_tasks, room_in_domains
from solver.rails import rails_of
from solver.rules.options import Option
from solver.strain import near_data, strain_of, strains_at
from solver.world.cluster import LEVELS, DeviceId, GpuType, Level, is_wider
from solver.world.pledges import Pledged
from solver.world.quantities import MilliGpu
from solver.world.room import Room
from solver.world.shape import MigShape, Shape, SharedShape, SharingMode
from solver.world.workload import Bundle, JobSpec, MigSlot, TaskPlacement, TopologyRequest

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Placed:
    """A gang on its devices, and what it pays per GPU for lying further apart than it wishes (solver/strain)."""

    tasks: tuple[TaskPlacement, ...]
    strain: float

    def pledged(self, before: Room, after: Room) -> Pledged:
        """The GPUs that have to be partitioned anew before it is all there, from the room before and after it was placed."""
        instances = ((task.node, task.mig) for task in self.tasks if task.mig)
        wholes = ((task.node, device) for task in self.tasks if not task.mig for device in task.devices)
        return frozenset(
            (
                *((at, slot.gpu) for at, slot in instances if not after.partitions.stays(after.index[at], slot)),
                *((at, device) for at, device in wholes if before.partitions.is_divided(before.index[at], device)),
            )
        )


def place(
    room: Room, spec: JobSpec, option: Option, within: Mask | None = None, tasks: Sequence[int] | None = None
) -> Placed | None:
    """Take room for so many tasks of each group (None: the least it starts with) and say where; or take nothing, for None.

    Domains are tried from the levels the job prefers, then from the closest, to the widest it allows, in each level the
    one where it pays least for slow links, and of those the one that it fills best.
    A gang that reads data goes where they are near. `within` narrows the nodes, as a hint from the program.
    """
    tasks = tasks or least_tasks(spec)
    if spec.data:
        within = _near_data(room, spec, option, within, tasks)
    return _place(room, spec, option, within, tasks)


def _near_data(room: Room, spec: JobSpec, option: Option, within: Mask | None, tasks: Sequence[int]) -> Mask | None:
    """The nodes near its data, if a gang finds place there and pays no more than it would elsewhere; else all it may use."""
    near = near_data(room, spec.data) & (True if within is None else within)
    here = _place(room.copy(), spec, option, near, tasks)
    elsewhere = _place(room.copy(), spec, option, within, tasks) if here and here.strain else None
    return within if here is None or (elsewhere and elsewhere.strain < here.strain) else near


def _place(room: Room, spec: JobSpec, option: Option, within: Mask | None, tasks: Sequence[int]) -> Placed | None:
    gangs = _gangs(room, spec, option, within, tasks)
    able = [gang for gang in gangs if gang.fits_somewhere()]
    for level in _levels(spec.effective_topology) if able else ():
        for gang in able:
            placed = gang.place_in_one(level) if level else gang.place_among(gang.allowed)
            if placed is not None:
                return Placed(placed, strain_of(room, spec, placed))
    return None


def _gangs(room: Room, spec: JobSpec, option: Option, within: Mask | None, tasks: Sequence[int]) -> Iterator[_Gang]:
    """The gang as it is tried at each level: one that asks for parts of GPUs first on those that are divided already."""
    if room.partitions or any(isinstance(shape, SharedShape) for shape in option.shapes):
        yield _Gang.of(room, spec, option, within, tasks, fresh=False)
    yield _Gang.of(room, spec, option, within, tasks, fresh=True)


def least_tasks(spec: JobSpec) -> tuple[int, ...]:
    """Tasks of each group without which the gang does not start."""
    return tuple(group.least for group in spec.task_groups)


def grow(room: Room, spec: JobSpec, option: Option, placed: Placed, number: int, most: int) -> Placed:
    """Take room for up to `most` more tasks of one group, as near to the others as can be, and say where all are."""
    group, asked = ServedGroup.of(spec, option, number), spec.effective_topology
    tasks = list(placed.tasks)
    nodes = [room.index[task.node] for task in tasks]
    first = sum(task.group == group.name for task in tasks)
    manners = Manners.of(room, spec, placed.tasks)
    for level in _reach(asked):
        near = np.isin(room.topology[level].of_node, room.topology[level].of_node[nodes]) if level else room.open_nodes
        numbers = {task.index for task in tasks if task.group == group.name}
        own = [room.index[task.node] for task in tasks if task.group == group.name]
        slots = room.slots(group.shape, group.gpu_type, within=near & room.open_nodes) * near
        chosen = more_tasks(room, slots, most + first - len(own), group.bundle, manners.of_group(number), own)
        tasks += _realise(room, group, chosen, numbers)
    return Placed(tuple(tasks), strain_of(room, spec, tuple(tasks)))


def realised(room: Room, spec: JobSpec, option: Option, hosts: Sequence[Sequence[int]]) -> Placed:
    """Take room on exactly these nodes, one for each task of each group. The room must be there."""
    tasks = tuple(
        task
        for number, nodes in enumerate(hosts)
        for task in _realise(room, ServedGroup.of(spec, option, number), [(node, 1) for node in nodes])
    )
    return Placed(tasks, strain_of(room, spec, tasks))


def _levels(asked: TopologyRequest) -> Iterator[Level | None]:
    # The preferred levels first, then from the closest to the required one. A gang that wishes nothing goes anywhere at
    # once: how nodes are chosen keeps it in few domains, without tearing others apart for a driver's sake.
    if not asked.levels:
        yield None
    elif asked.communication == "normal":
        yield from (level for level in asked.wishes if not is_wider(level, asked.required))
    yield from _reach(asked)


def _reach(asked: TopologyRequest) -> list[Level | None]:
    """The levels from the closest to the widest that it allows; what is spread goes as far as it may at once."""
    allowed = [level for level in (*LEVELS, None) if not is_wider(level, asked.required)]
    return allowed[-1:] if asked.placement == "spread" else allowed


class ServedGroup(NamedTuple):
    """A task group under an option: its place in the job, what each of its tasks takes, on which type, and how they are bundled."""

    name: str
    number: int
    shape: Shape
    gpu_type: GpuType | None
    bundle: Bundle | None

    @classmethod
    def of(cls, spec: JobSpec, option: Option, number: int) -> ServedGroup:
        """One of a job's groups."""
        group = spec.task_groups[number]
        return cls(group.name, number, option.shapes[number], option.gpu_types[number], spec.bundle_of(group))


@dataclass(slots=True)
class _Gang:
    """One gang being placed: its groups with their tasks, and how many tasks of each group every node takes."""

    room: Room
    spec: JobSpec
    groups: tuple[tuple[ServedGroup, int], ...]
    slots: list[Ints]
    allowed: Mask
    fresh: bool

    @classmethod
    def of(
        cls, room: Room, spec: JobSpec, option: Option, within: Mask | None, tasks: Sequence[int], *, fresh: bool
    ) -> _Gang:
        allowed = room.open_nodes if within is None else room.open_nodes & within
        # Groups with GPUs are harder to place and go first.
        order = sorted(range(len(tasks)), key=lambda number: -option.shapes[number].cost)
        groups = tuple((ServedGroup.of(spec, option, number), tasks[number]) for number in order)
        slots = [room.slots(group.shape, group.gpu_type, fresh=fresh) * allowed for group, _ in groups]
        return cls(room, spec, groups, slots, allowed, fresh)

    def fits_somewhere(self) -> bool:
        """Necessary, not sufficient: each group alone finds enough slots."""
        return all(int(slots.sum()) >= tasks for (_, tasks), slots in zip(self.groups, self.slots, strict=True))

    def place_in_one(self, level: Level) -> tuple[TaskPlacement, ...] | None:
        """All tasks in one domain of the level, the one left fullest."""
        domains = self.room.topology[level]
        count = len(domains.names)
        able = np.ones(count, dtype=bool)
        manners = Manners.of(self.room, self.spec)
        for (group, tasks), slots in zip(self.groups, self.slots, strict=True):
            able &= room_in_domains(slots, domains.of_node, manners.of_group(group.number).limits) >= tasks
        candidates = np.flatnonzero(able)
        if not len(candidates):
            return None
        free = np.bincount(domains.of_node, weights=self.room.free_gpus * self.allowed, minlength=count)
        strains = strains_at(self.room.topology, self.spec.effective_topology, level)
        for domain in candidates[np.lexsort((free[candidates], strains[candidates]))]:
            placed = self.place_among(self.allowed & (domains.of_node == domain))
            if placed is not None:
                return placed
        return None

    def place_among(self, nodes: Mask) -> tuple[TaskPlacement, ...] | None:
        """All tasks on these nodes."""
        if len(self.groups) == 1:
            ((group, tasks),) = self.groups
            manner = Manners.of(self.room, self.spec).of_group(group.number)
            slots = self._together(self.room, group, self.slots[0], nodes)
            chosen = choose(self.room, slots, tasks, group.bundle, manner)
            return None if chosen is None else tuple(_realise(self.room, group, chosen))
        return self._place_groups_together(nodes)

    def _place_groups_together(self, nodes: Mask) -> tuple[TaskPlacement, ...] | None:
        # Groups compete for the same nodes: try on a copy, and take from the real room only when all of them found theirs.
        trial, manners = self.room.copy(), Manners.of(self.room, self.spec)
        decided: list[tuple[ServedGroup, list[tuple[int, int]]]] = []
        for (group, tasks), before in zip(self.groups, self.slots, strict=True):
            slots = self._together(trial, group, np.minimum(before, trial.slots(group.shape, None)), nodes)
            chosen = choose(trial, slots, tasks, group.bundle, manners.of_group(group.number))
            if chosen is None:
                return None
            for node, count in chosen:
                _take(trial, node, group.shape, count)
            decided.append((group, chosen))
        return tuple(task for group, chosen in decided for task in _realise(self.room, group, chosen))

    def _together(self, room: Room, group: ServedGroup, slots: Ints, nodes: Mask) -> Ints:
        """What these nodes take together, where the changes of partitions that are left do not do for each of them."""
        if not (room.partitions and self.fresh and group.shape.uses_gpus):
            return slots * nodes
        return np.minimum(slots, room.slots(group.shape, group.gpu_type, within=nodes)) * nodes


def _realise(
    room: Room, group: ServedGroup, chosen: list[tuple[int, int]], taken: Collection[int] = ()
) -> Iterator[TaskPlacement]:
    """Give the tasks their devices, and the least numbers that are not taken."""
    free = (number for number in numbers_from_0() if number not in taken)
    rails = rails_of(room, [node for node, _ in chosen])
    for node, tasks in chosen:
        share, mode = _share(group.shape, room.nodes[node].pool)
        for devices, slot in _take(room, node, group.shape, tasks, rails.get(node, ())):
            yield TaskPlacement(group.name, next(free), room.nodes[node].name, devices, share, mode, slot)


def _take(
    room: Room, node: int, shape: Shape, tasks: int, first: Sequence[DeviceId] = ()
) -> list[tuple[tuple[DeviceId, ...], MigSlot | None]]:
    """The devices of each task, and the MIG instance where that is its device."""
    if isinstance(shape, MigShape):
        return [((slot.instance.id_on(slot.gpu),), slot) for slot in room.take_instances(node, shape, tasks)]
    return [(devices, None) for devices in room.take(node, shape, tasks, first)]


def _share(shape: Shape, pool: str) -> tuple[MilliGpu | None, SharingMode | None]:
    circle = shape.circle(pool) if isinstance(shape, SharedShape) else None
    return (shape.cost, circle.mode) if circle else (None, None)
