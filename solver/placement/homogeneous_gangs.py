"""Gangs of like tasks, which fit wherever enough of their tasks do, in one domain where they require one: counting suffices."""

from __future__ import annotations

from solver.capacity.free_capacity import FreeCapacity
from solver.model.shape import MigShape, SharedShape
from solver.model.workload import JobSpec
from solver.quota.options import Option


def says_it_all(room: FreeCapacity, spec: JobSpec, option: Option) -> bool:
    """Whether counting decides that a gang fits: it is homogeneous, and no GPU could be made whole for it."""
    if not is_homogeneous(spec, option):
        return False
    return not (room.partitions.may_change and room.is_partitioned(option.shapes[0], option.gpu_types[0]))


def is_homogeneous(spec: JobSpec, option: Option) -> bool:
    """Whether a gang is one group that takes no parts of GPUs, and is neither bundled nor spread."""
    return not isinstance(option.shapes[0], SharedShape | MigShape) and lies_anyhow(spec)


def lies_anyhow(spec: JobSpec) -> bool:
    """Whether a gang is one group that is neither bundled nor spread: it fits wherever there are slots enough as they are."""
    group, *others = spec.task_groups
    return not (others or spec.topology.spread or group.topology.spread or spec.bundles_of(group))


def has_room(room: FreeCapacity, spec: JobSpec, option: Option, tasks: int, *, fresh: bool = True) -> bool:
    """Whether so many tasks of the first group of a gang find slots, together where it has to be together.

    Where counting doesn't say all, no more of them fit; but so many do on GPUs that stay as they are (`fresh` False).
    """
    shape, gpu_type, level = option.shapes[0], option.gpu_types[0], spec.effective_topology.required
    return room.has_slots(shape, gpu_type, tasks, level, fresh=fresh and room.partitions.may_change)
