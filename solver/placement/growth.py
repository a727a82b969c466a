"""Elastic gangs grow: each by as many tasks as quota and room allow, once all that could start have started."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace

from solver.capacity.free_capacity import FreeCapacity
from solver.placement.placement import PlacedGang
from solver.placement.starts import JobStart
from solver.placement.views import grow_in_view
from solver.quota.dominance import HostUse
from solver.quota.entitlement import Charge, Inside, QuotaHeadroom
from solver.quota.options import charge_of
from solver.quota.users import UserRoom

Lines = Callable[[QuotaHeadroom], Inside]
"""The lines that growth has to touch the inside of: guarantees, or fair shares."""

LINES: tuple[Lines | None, ...] = (lambda headroom: headroom.entitled, lambda headroom: headroom.fair, None)
"""What is grown into, in this order."""


def grow_all(
    starts: Sequence[JobStart], room: FreeCapacity, headroom: QuotaHeadroom, users: UserRoom, lines: Lines | None
) -> list[JobStart]:
    """Let all starts grow, the first in the order first; `lines` None: beyond guarantees and fair shares too."""
    grown = list(starts)
    for place in sorted(
        range(len(grown)), key=lambda place: (grown[place].candidate.sub_layer, grown[place].candidate.band)
    ):
        grown[place] = _grown(grown[place], room, headroom, users, lines)
    return grown


def _grown(
    start: JobStart, room: FreeCapacity, headroom: QuotaHeadroom, users: UserRoom, lines: Lines | None
) -> JobStart:
    for number, group in enumerate(start.candidate.job.spec.task_groups):
        missing = group.replicas - start.tasks[number]
        # Tasks without GPUs are in no layer: they come when everything else has been handed out.
        if not missing or (lines and not group.shape.uses_gpus):
            continue
        # Most of those that could grow find nothing at all in a full cluster, and to look for it level by level takes long.
        if not room.offer(start.option.shapes[number], start.option.gpu_types[number]).total:
            continue
        allowed = _allowed(start, number, missing, headroom, users, lines)
        if not allowed:
            continue
        placed = _in_steps(start, room, number, allowed, group.replica_step)
        before, count = start, len(placed.tasks) - len(start.placed.tasks)
        if not count:
            continue
        tasks = (*start.tasks[:number], start.tasks[number] + count, *start.tasks[number + 1 :])
        start = replace(start, placed=placed, tasks=tasks)
        more = {gpu_type: milli - before.charge[gpu_type] for gpu_type, milli in start.charge.items()}
        headroom.take(start.queue, more)
        users.take(start.candidate.job, more, _beside(start, number, count))
    return start


def _in_steps(start: JobStart, room: FreeCapacity, number: int, most: int, step: int) -> PlacedGang:
    """Up to so many more tasks of a group, by whole steps. Steps of one task are taken as far as they find room."""

    def grown(tasks: int) -> PlacedGang:
        return grow_in_view(room, start.candidate, start.option, start.placed, number, tasks)

    most -= most % step
    while step > 1 and most:
        with room.trying():
            found = len(grown(most).tasks) - len(start.placed.tasks)
        if found == most:
            break
        most = found - found % step
    return grown(most) if most else start.placed


def _allowed(
    start: JobStart, number: int, missing: int, headroom: QuotaHeadroom, users: UserRoom, lines: Lines | None
) -> int:
    """How many more tasks of a group no max forbids, of which each lies at least in part inside the lines."""
    job, queue = start.candidate.job, start.queue

    def charge(more: int) -> Charge:
        tasks = [more if place == number else 0 for place in range(len(start.tasks))]
        cost = charge_of(start.option.shapes, start.option.gpu_types, tasks)
        return {gpu_type: milli for gpu_type, milli in cost.items() if milli}

    def inside(more: int) -> bool:
        if start.inside_only:
            return headroom.entitled.part(queue, charge(more)) == sum(charge(more).values())
        return lines is None or lines(headroom).part(queue, charge(more)) > lines(headroom).part(
            queue, charge(more - 1)
        )

    def forbidden(more: int) -> bool:
        cost = charge(more)
        capped = users.blocking(job, cost, _beside(start, number, more))
        return not headroom.allows(queue, cost) or bool(capped) or not inside(more)

    return bisect_left(range(1, missing + 1), True, key=forbidden)


def _beside(start: JobStart, number: int, tasks: int) -> HostUse:
    """CPU and memory of so many more tasks of a group."""
    shape = start.option.shapes[number]
    return HostUse(int(shape.cpu) * tasks, int(shape.memory) * tasks)
