"""Packs the fractions that start in a round anew, the largest first, where that divides fewer GPUs at no higher a price.

They are served in the order of policy, in which small ones may come before large ones and leave gaps that these do not fit in.
In decreasing size the gaps are filled: D. S. Johnson et al., "Worst-case performance bounds for simple one-dimensional packing
algorithms" (1974). Which jobs start, and how each is served, stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from solver.capacity.free_capacity import FreeCapacity
from solver.model.cluster import DeviceId
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import SharedShape
from solver.placement.fit import Fit
from solver.placement.starts import JobStart
from solver.placement.views import place_in_view
from solver.preemption.new_nomination import NewNomination

LESS_WORTH = 0.01
"""Milli-GPU by which what is left may be worth less, all in all: less than prices are exact."""

SPARED_ONE_IN = 50
"""One of so many GPUs that a round divides must be to spare, or it is not tried: the order of policy packs many fractions well."""


def compacted(
    starts: tuple[JobStart, ...], promises: Iterable[NewNomination], room: FreeCapacity, fit: Fit
) -> tuple[JobStart, ...]:
    """The starts, of which fractions may be elsewhere. `room`: what was free before them."""
    movable = [number for number, start in enumerate(starts) if _is_movable(start)]
    movable.sort(key=lambda number: (-sum(starts[number].charge.values()), number))
    if len(movable) < 2:
        return starts
    around = room.copy()
    for promise in promises:
        promise.take(around)
    before, chosen = around.copy(), set(movable)
    for number, start in enumerate(starts):
        if number not in chosen:
            around.occupy(start.held)
        before.occupy(start.held)
    if not _may_be_fewer(before, room, [starts[number] for number in movable]):
        return starts
    found = list(starts)
    for number in movable:
        start = starts[number]
        placed = place_in_view(around, start.candidate, (start.option,), fit)
        if placed is None:
            return starts
        found[number] = replace(start, placed=placed[1])
    fewer = len(_divided(around)) < len(_divided(before))
    return tuple(found) if fewer and fit.worth(around) >= fit.worth(before) - LESS_WORTH else starts


def _is_movable(start: JobStart) -> bool:
    """One task with a part of one GPU, which lies wherever it is cheapest."""
    spec = start.candidate.job.spec
    is_alone = spec.tasks == 1 == len(start.placed.tasks)
    shapes = start.option.shapes
    return is_alone and not spec.data and any(isinstance(shape, SharedShape) and shape.devices == 1 for shape in shapes)


def _divided(room: FreeCapacity) -> set[DeviceId]:
    return {gpu.device for gpus in room.shared.values() for gpu in gpus}


def _may_be_fewer(after: FreeCapacity, before: FreeCapacity, moving: Sequence[JobStart]) -> bool:
    """Whether GPUs could be spared that were divided: as much as they have is left, where a task moves or fits in."""
    least = min(sum(start.charge.values()) for start in moving)
    own = {device for start in moving for task in start.placed.tasks for device in task.devices}
    divided = [gpu for gpus in after.shared.values() for gpu in gpus if gpu.healthy]
    left = sum(gpu.free_milli for gpu in divided if gpu.free_milli >= least or gpu.device in own)
    fresh = len(_divided(after) - _divided(before))
    return fresh > 0 and left >= MILLI_PER_GPU * max(1, fresh / SPARED_ONE_IN)
