"""Whether moving jobs could gain a preemptor what it lacks, counted for all candidates at once: it saves most searches.

Moving frees nothing. It gains a slot where small tasks leave a node that others go on beside; a task as large as the preemptor's,
or twice as large, leaves one slot, or two, and needs as many there. Parts of a GPU gain it as a whole once the last of them is
elsewhere, beside others. Of parts of GPUs a preemptor gains something only on the nodes that have such.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.model.arrays import Ints, Mask
from solver.model.cluster import GpuType
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import Shape, nodes_of
from solver.model.workload import Job, JobSpec
from solver.placement.homogeneous_gangs import is_homogeneous
from solver.preemption.consolidation_candidates import ConsolidationCandidates
from solver.quota.options import Option


def in_the_way(running: Iterable[Job], room: FreeCapacity) -> Mask:
    """The nodes on which some of these jobs have GPUs, as a whole or in part."""
    names = {task.node for job in running for task in job.placement if task.devices and task.mig is None}
    held = np.zeros(len(room.nodes), dtype=bool)
    held[[room.index[name] for name in names if name in room.index]] = True
    return held


def could_gain(
    spec: JobSpec, option: Option, room: FreeCapacity, movers: ConsolidationCandidates, able: Mask, most: int
) -> bool:
    """Whether each group by itself might find slots once `most` of those who are `able` have moved. No search finds more."""
    served = zip(option.shapes, option.gpu_types, spec.task_groups, strict=True)
    return all(
        _lacking(shape, gpu_type, group.least, room) <= _most_gained(shape, gpu_type, room, movers, able, most)
        for shape, gpu_type, group in served
        if gpu_type is not None
    )


def gaining(spec: JobSpec, option: Option, room: FreeCapacity, movers: ConsolidationCandidates, able: Mask) -> Mask:
    """Those who are able and gain a slot by moving, where slots are what is lacking: to move others as well gains nothing.

    Where slots do, but not where the gang may be, moving anybody may help.
    """
    (shape, *_), (gpu_type, *_) = option.shapes, option.gpu_types
    kept_together = not is_homogeneous(spec, option) or spec.effective_topology.required
    if kept_together or gpu_type is None or _lacking(shape, gpu_type, spec.task_groups[0].least, room) <= 0:
        return able
    found = able & (_gained_by_each(shape, gpu_type, room, movers, able) > 0)
    found[movers.parts_of(able, MILLI_PER_GPU).holder] = True
    return found


def _lacking(shape: Shape, gpu_type: GpuType, tasks: int, room: FreeCapacity) -> int:
    """Slots that there are too few of, if it is known. CPU and memory, which leave with whoever leaves, are taken for enough."""
    if not shape.gpus or room.partitions.may_change:
        return 0
    slots = np.maximum(room.free_gpus, 0)[room.usable(shape, gpu_type)] // shape.gpus
    return tasks - int(slots.sum())


def _most_gained(
    shape: Shape, gpu_type: GpuType, room: FreeCapacity, movers: ConsolidationCandidates, able: Mask, most: int
) -> int:
    """Slots by which there may be more once the best `most` of them are elsewhere."""
    return int(np.sort(_gained_by_each(shape, gpu_type, room, movers, able))[-most:].sum()) if shape.gpus else 0


def _gained_by_each(
    shape: Shape, gpu_type: GpuType, room: FreeCapacity, movers: ConsolidationCandidates, able: Mask
) -> Ints:
    """By mover, the slots by which there may be more once it is elsewhere; of those who are not able none."""
    rows = able[movers.holder] & room.usable(shape, gpu_type)[movers.node]
    gpus, tasks = movers.gpus[rows], movers.tasks[rows]
    gained: Ints = -(-gpus * tasks // shape.gpus)
    if not nodes_of(shape):
        # Where it goes on it takes slots of the same nodes; a preemptor that is kept to a set of nodes may send it elsewhere.
        gained -= gpus // shape.gpus * tasks
    count = len(movers.all)
    found = np.bincount(movers.holder[rows], weights=gained, minlength=count).astype(np.int64)
    parts = movers.parts_of(able, MILLI_PER_GPU).last
    found += np.bincount(parts.holder[room.usable(shape, gpu_type)[parts.node]], minlength=count)
    return found
