"""Assigns devices to tasks on chosen nodes: GPUs, shares of them, MIG instances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count as numbers_from_0
from itertools import islice
from typing import NamedTuple

from solver.capacity.free_capacity import FreeCapacity
from solver.model.cluster import DeviceId, GpuType
from solver.model.quantities import MilliGpu
from solver.model.shape import MigShape, Shape, SharedShape, SharingMode
from solver.model.workload import Bundle, JobSpec, MigSlot, TaskPlacement
from solver.placement.rails import rails_of
from solver.quota.options import Option


class ServedGroup(NamedTuple):
    """A task group under an option: its place in the job, what each of its tasks takes, on which type, and how they are bundled.

    `bundles`: the largest first.
    """

    name: str
    number: int
    shape: Shape
    gpu_type: GpuType | None
    bundles: tuple[Bundle, ...]

    @classmethod
    def of(cls, spec: JobSpec, option: Option, number: int) -> ServedGroup:
        """One of a job's groups."""
        group = spec.task_groups[number]
        return cls(group.name, number, option.shapes[number], option.gpu_types[number], spec.bundles_of(group))


def assign_devices(
    room: FreeCapacity, group: ServedGroup, chosen: Sequence[tuple[int, int]], used: Collection[int] = ()
) -> Iterator[TaskPlacement]:
    """Give the tasks their devices, and the least numbers that are not used."""
    free = (number for number in numbers_from_0() if number not in used)
    rails = rails_of(room, [node for node, _ in chosen])
    taken = {
        node: iter(take(room, node, group.shape, tasks, rails.get(node, ()))) for node, tasks in by_node(chosen).items()
    }
    for node, tasks in chosen:
        share, mode = _share(group.shape, room.nodes[node].pool)
        for devices, slot in islice(taken[node], tasks):
            yield TaskPlacement(group.name, next(free), room.nodes[node].name, devices, share, mode, slot)


def by_node(chosen: Iterable[tuple[int, int]]) -> Mapping[int, int]:
    """How many tasks each node takes in all: one by one its GPUs would be partitioned for fewer than all of them together."""
    tasks: Counter[int] = Counter()
    for node, count in chosen:
        tasks[node] += count
    return tasks


def take(
    room: FreeCapacity, node: int, shape: Shape, tasks: int, first: Sequence[DeviceId] = ()
) -> list[tuple[tuple[DeviceId, ...], MigSlot | None]]:
    """The devices of each task, and the MIG instance where that is its device."""
    if isinstance(shape, MigShape):
        return [((slot.instance.id_on(slot.gpu),), slot) for slot in room.take_instances(node, shape, tasks)]
    return [(devices, None) for devices in room.take(node, shape, tasks, first)]


def _share(shape: Shape, pool: str) -> tuple[MilliGpu | None, SharingMode | None]:
    circle = shape.circle(pool) if isinstance(shape, SharedShape) else None
    return (shape.cost, circle.mode) if circle else (None, None)
