"""Whether moving could gain a taker what it lacks, counted for all who may move at once: most searches end before they begin.

Moving frees nothing. It gains a slot where small tasks leave a node that others go on beside; a task as large as the taker's, or
twice as large, leaves one slot, or two, and needs as many where it goes on. Of parts of GPUs it gains something only on the nodes
that have such.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from solver.movers import Movers
from solver.rules.options import Option
from solver.world.arrays import Ints, Mask
from solver.world.cluster import GpuType
from solver.world.room import Room
from solver.world.shape import Shape, nodes_of
from solver.world.workload import Job, JobSpec


def in_the_way(running: Iterable[Job], room: Room) -> Mask:
    """The nodes on which some of these jobs have GPUs as a whole."""
    names = {
        task.node
        for job in running
        for task in job.placement
        if task.devices and task.share is None and task.mig is None
    }
    held = np.zeros(len(room.nodes), dtype=bool)
    held[[room.index[name] for name in names if name in room.index]] = True
    return held


def could_gain(spec: JobSpec, option: Option, room: Room, movers: Movers, able: Mask, most: int) -> bool:
    """Whether each group by itself might find slots once `most` of those who are `able` have moved. No search finds more."""
    served = zip(option.shapes, option.gpu_types, spec.task_groups, strict=True)
    return all(
        _might_fit(shape, gpu_type, group.least, room, movers, able, most)
        for shape, gpu_type, group in served
        if gpu_type is not None
    )


def _might_fit(shape: Shape, gpu_type: GpuType, tasks: int, room: Room, movers: Movers, able: Mask, most: int) -> bool:
    if not shape.gpus or room.partitions.may_change:
        return True
    # CPU and memory, which leave with whoever leaves, are taken for enough.
    slots = np.maximum(room.free_gpus, 0)[room.usable(shape, gpu_type)] // shape.gpus
    return int(slots.sum()) + _gained(shape, gpu_type, room, movers, able, most) >= tasks


def _gained(shape: Shape, gpu_type: GpuType, room: Room, movers: Movers, able: Mask, most: int) -> int:
    """Slots of so many GPUs by which there may be more once the best of them are elsewhere."""
    rows = able[movers.holder] & room.usable(shape, gpu_type)[movers.node]
    gpus, tasks = movers.gpus[rows], movers.tasks[rows]
    gained: Ints = -(-gpus * tasks // shape.gpus)
    if not nodes_of(shape):
        # Where it goes on it takes slots of the same nodes; a taker that is kept to a set of nodes may send it elsewhere.
        gained -= gpus // shape.gpus * tasks
    of_each = np.bincount(movers.holder[rows], weights=gained, minlength=most)
    return int(np.sort(of_each)[-most:].sum())
