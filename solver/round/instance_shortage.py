"""How GPUs are partitioned leaves too little for a gang: in which of its groups, and for how many tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from solver.capacity.free_capacity import FreeCapacity
from solver.model.amounts import NONE
from solver.model.arrays import Ints
from solver.model.cluster import GpuType
from solver.model.quantities import Cpu, Memory
from solver.model.shape import MigShape, Shape
from solver.model.workload import JobSpec, TaskGroup
from solver.placement.placement import place, placing_order
from solver.plan.mig_reasons import MigGeometryReason
from solver.quota.options import Option

_ANY_NUMBER: Final = 10**6
"""Of changes: more than a cluster has GPUs."""


def too_few_instances(
    room: FreeCapacity, spec: JobSpec, option: Option, shortage: Mapping[GpuType, int], free: Ints
) -> Iterator[MigGeometryReason]:
    """Of a gang that asks for instances, and may lie anywhere: each group for which too few can be had, beside those before it.

    `shortage`: so many milli-GPU of a type more have to be free anyway; groups that may have room once they are, are left out.
    `free`: those of each node that are.
    """
    if spec.effective_topology.required or not any(isinstance(shape, MigShape) for shape in option.shapes):
        return
    fits = fit_in_turn(room, spec, option)
    lacking = [known.least - fit for known, fit in zip(spec.task_groups, fits, strict=True)]
    costs = Counter[GpuType]()
    for missing, shape, gpu_type in zip(lacking, option.shapes, option.gpu_types, strict=True):
        if gpu_type is not None and shape.cost:
            costs[gpu_type] += least_freed(free[room.usable(without_hosts(shape), gpu_type)], shape.cost, missing)
    for number, gpu_type in enumerate(option.gpu_types):
        if lacking[number] and gpu_type is not None and costs[gpu_type] > shortage.get(gpu_type, 0):
            yield beside_others(room, spec, option, number, fits[number])


def least_freed(free: Ints, each: int, tasks: int) -> int:
    """How many milli-GPU have to become free at least for so many more tasks of a size, beside what is free on each node."""
    parts: list[int] = (free % each).tolist()
    begun = sorted(each - part for part in parts if part)[: max(tasks, 0)]
    return sum(begun) + each * (max(tasks, 0) - len(begun))


def geometry_reason(room: FreeCapacity, group: TaskGroup, shape: Shape, gpu_type: GpuType | None) -> MigGeometryReason:
    """What one group finds by itself."""
    slots = (
        room.slots(shape, gpu_type, fresh=False),
        room.slots(shape, gpu_type, within=room.open_nodes),
        room.slots(shape, gpu_type),
    )
    fit = tuple(int(known.sum()) for known in slots)
    return _reason(room, group, shape, gpu_type, (fit[0], fit[1], fit[2]))


def without_hosts(shape: Shape) -> Shape:
    """The GPUs of a shape alone."""
    return msgspec.structs.replace(shape, cpu=Cpu(0), memory=Memory(0), resources=NONE)


def beside_others(room: FreeCapacity, spec: JobSpec, option: Option, number: int, fits: int) -> MigGeometryReason:
    """What a group finds beside those before it, which is room for so many tasks with the changes that are left."""
    group, shape, gpu_type = spec.task_groups[number], option.shapes[number], option.gpu_types[number]
    if len(spec.task_groups) == 1:
        return geometry_reason(room, group, without_hosts(shape), gpu_type)
    as_it_is, at_last = (fit_in_turn(_with_changes(room, left), spec, option)[number] for left in (0, _ANY_NUMBER))
    # With more changes groups before it may take what it would have had.
    return _reason(room, group, shape, gpu_type, (min(as_it_is, fits), fits, max(at_last, fits)))


def _with_changes(room: FreeCapacity, left: int) -> FreeCapacity:
    """The room if so many GPUs of each pool might be partitioned anew."""
    changed = room.copy()
    changed.partitions.changes_left = dict.fromkeys(room.partitions.changes_left, left)
    return changed


def fit_in_turn(room: FreeCapacity, spec: JobSpec, option: Option, *, with_hosts: bool = False) -> Sequence[int]:
    """How many tasks of each group find GPUs beside those that are placed before it, of as many as it needs.

    Groups come in the order in which they are placed: the hardest first. `with_hosts`: they find what they need beside GPUs, too.
    """
    shapes = option.shapes if with_hosts else tuple(map(without_hosts, option.shapes))
    if len(shapes) == 1:
        offer = room.offer(shapes[0], option.gpu_types[0], within=room.open_nodes)
        return (min(offer.total, spec.task_groups[0].least),)
    order = placing_order(room, option.shapes)
    fits = dict[int, int]()
    for count, number in enumerate(order, start=1):
        some = sorted(order[:count])
        groups = tuple(
            msgspec.structs.replace(spec.task_groups[n], shape=spec.task_groups[n].shape if with_hosts else shapes[n])
            for n in some
        )
        part = msgspec.structs.replace(spec, task_groups=groups)
        first = replace(
            option,
            gpu_types=tuple(option.gpu_types[n] for n in some),
            shapes=tuple(shapes[n] for n in some),
            heavier=tuple(option.heavier[n] for n in some),
        )
        fits[number] = _most(room, part, first, some.index(number), [fits.get(n, 0) for n in some])
    return [fits[number] for number in range(len(shapes))]


def _most(room: FreeCapacity, spec: JobSpec, option: Option, last: int, tasks: list[int]) -> int:
    """How many tasks of one group find room, up to as many as it needs, beside so many of the others."""
    wanted = spec.task_groups[last].least
    fits, above = 0, wanted + 1
    while above - fits > 1:
        # Most often there is room for all.
        tasks[last] = wanted if above > wanted else (fits + above) // 2
        if place(room.copy(), spec, option, None, tasks) is not None:
            fits = tasks[last]
        else:
            above = tasks[last]
    return fits


def _reason(
    room: FreeCapacity, group: TaskGroup, shape: Shape, gpu_type: GpuType | None, fits: tuple[int, int, int]
) -> MigGeometryReason:
    name, profile = gpu_type or GpuType(""), shape.mig or ""
    left = _changes_left(room, gpu_type)
    return MigGeometryReason(group.name, name, profile, group.least, *fits, left, shape.devices)


def _changes_left(room: FreeCapacity, gpu_type: GpuType | None) -> int:
    """How many GPUs of a type may still be partitioned anew in this round."""
    pools = {node.pool for node in room.nodes if gpu_type in (None, node.gpu_type)}
    return sum(left for pool, left in room.partitions.changes_left.items() if pool in pools)
