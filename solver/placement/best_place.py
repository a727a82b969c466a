"""Which of the places and GPU types that a job likes equally it gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from solver.capacity.free_capacity import FreeCapacity
from solver.model.cluster import DeviceId
from solver.model.quantities import MilliGpu
from solver.model.shape import Shape, SharedShape
from solver.model.workload import JobSpec, TaskPlacement
from solver.placement.fit import Fit
from solver.placement.placement import PlacedGang, least_tasks, place, place_off_gpus
from solver.quota.options import Option


def place_best(
    room: FreeCapacity, spec: JobSpec, options: Sequence[Option], fit: Fit | None, tasks: Sequence[int] | None = None
) -> tuple[Option, PlacedGang] | None:
    """Take room under one of several equally liked options: where `fit` finds the cheapest place, else the first that fits.

    `fit` chooses for jobs of one task that read no data, and knows nothing of GPUs in MIG mode, or of parts of several GPUs.
    Gangs stay together as `place` keeps them; `tasks` as there.
    """
    alone = spec.tasks == 1 and sum(tasks or least_tasks(spec)) == 1
    if fit is not None and alone and not _wants_several(spec) and not spec.data:
        # Beside GPUs that are free or divided it goes where these miss its cores the least.
        off_gpus = next(_off_gpus(room, spec, options), None)
        if off_gpus:
            return off_gpus
        cheapest = _place_cheapest(room, spec, options, fit)
        if cheapest or not room.partitions:
            return cheapest
    for option in options:
        placed = place(room, spec, option, tasks=tasks)
        if placed is not None:
            return option, placed
    return None


def _off_gpus(room: FreeCapacity, spec: JobSpec, options: Sequence[Option]) -> Iterator[tuple[Option, PlacedGang]]:
    for option in options:
        placed = None if any(option.gpu_types) else place_off_gpus(room, spec, option)
        if placed is not None:
            yield option, placed


def _wants_several(spec: JobSpec) -> bool:
    """MIG instances, or parts of several GPUs."""
    return any(group.shape.mig is not None or group.shape.devices > 1 for group in spec.task_groups)


def _place_cheapest(
    room: FreeCapacity, spec: JobSpec, options: Sequence[Option], fit: Fit
) -> tuple[Option, PlacedGang] | None:
    number = next(number for number, group in enumerate(spec.task_groups) if group.replicas)
    spot = fit.cheapest(room, [(option.shapes[number], option.gpu_types[number]) for option in options])
    if spot is None:
        return None
    option = options[spot.way]
    task = _realise(room, spec.task_groups[number].name, option.shapes[number], spot.node, spot.left_milli)
    return option, PlacedGang((task,), strain=0.0)


def _realise(room: FreeCapacity, group: str, shape: Shape, node: int, left_milli: int | None) -> TaskPlacement:
    """One task on a node, its share on the first GPU of which so much is left; None: on one that is whole."""
    name, pool = room.nodes[node].name, room.nodes[node].pool
    circle = shape.circle(pool) if isinstance(shape, SharedShape) else None
    if circle is None:
        (devices,) = room.take(node, shape, 1)
        return TaskPlacement(group, 0, name, devices)
    device = room.free_devices[node][0] if left_milli is None else _divided(room, shape, node, left_milli)
    task = TaskPlacement(group, 0, name, (device,), MilliGpu(shape.cost), circle.mode)
    room.occupy([(task, shape)])
    return task


def _divided(room: FreeCapacity, shape: Shape, node: int, left_milli: int) -> DeviceId:
    domain = shape.domain(room.nodes[node].pool) if isinstance(shape, SharedShape) else None
    return next(
        gpu.device for gpu in room.shared[node] if gpu.healthy and gpu.domain == domain and gpu.free_milli == left_milli
    )
