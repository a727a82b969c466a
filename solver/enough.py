"""Which gangs find GPUs enough: what has to be so for them to find a place, and is much cheaper to know than whether they do."""

from __future__ import annotations

from collections.abc import Iterable

from solver.rules.demand import Candidate
from solver.rules.options import Option
from solver.world.cluster import GpuType
from solver.world.room import Room
from solver.world.shape import Shape


def with_enough(candidates: Iterable[Candidate], room: Room, *, fresh: bool = True) -> list[Candidate]:
    """Those for whom there are slots enough under one of their options, for each group by itself.

    `fresh` False: without dividing a GPU that is still whole, or changing how one is partitioned.
    """
    slots: dict[tuple[Shape, GpuType | None], int] = {}

    def are_enough(candidate: Candidate, option: Option) -> bool:
        groups = candidate.job.spec.task_groups
        for group, shape, gpu_type in zip(groups, option.shapes, option.gpu_types, strict=True):
            total = slots.get((shape, gpu_type))
            if total is None:
                total = slots[shape, gpu_type] = room.offer(shape, gpu_type, fresh=fresh).total
            if total < group.least:
                return False
        return True

    return [known for known in candidates if any(are_enough(known, option) for option in known.options)]
