"""Elastic gangs grow: each by as many tasks as quota and room allow, once all that could start have started."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from solver.capacity.free_capacity import FreeCapacity
from solver.model.workload import Unit
from solver.placement.placement import PlacedGang, missing_units, torn_units
from solver.placement.starts import JobStart
from solver.placement.views import complete_unit_in_view, grow_by_units_in_view, grow_in_view
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
    groups = start.candidate.job.spec.task_groups
    for unit in start.candidate.job.spec.units:
        missing = [groups[number].replicas - start.tasks[number] for number in unit.groups]
        # Tasks without GPUs are in no layer: they come when everything else has been handed out.
        if not any(missing) or (lines and not any(groups[number].shape.uses_gpus for number in unit.groups)):
            continue
        # Most of those that could grow find nothing at all in a full cluster, and to look for it level by level takes long.
        ways = ((start.option.shapes[number], start.option.gpu_types[number]) for number in unit.groups)
        if not any(room.offer(*way).total for way in ways):
            continue
        if unit.numbered:
            start = _grown_by_units(start, unit, room, headroom, users, lines)
            continue
        (number,), (step,) = unit.groups, unit.sizes
        allowed = _allowed(start, Unit(unit.groups, (1,)), missing[0], headroom, users, lines)
        placed = _in_steps(start, room, number, allowed, step) if allowed else start.placed
        start = _with_more(start, placed, headroom, users)
    return start


def _grown_by_units(
    start: JobStart, unit: Unit, room: FreeCapacity, headroom: QuotaHeadroom, users: UserRoom, lines: Lines | None
) -> JobStart:
    """First units that have lost tasks get them back, then units join of which the gang has none."""
    spec = start.candidate.job.spec
    for lacking in torn_units(spec, unit, start.placed.tasks):
        rest = Unit(unit.groups, tuple(map(len, lacking.indices)))
        if _allowed(start, rest, 1, headroom, users, lines):
            placed = complete_unit_in_view(room, start.candidate, start.option, start.placed, unit, lacking)
            start = _with_more(start, placed, headroom, users)
    missing = len(missing_units(spec, unit, start.placed.tasks))
    allowed = _allowed(start, unit, missing, headroom, users, lines)
    placed = grow_by_units_in_view(room, start.candidate, start.option, start.placed, unit, allowed)
    return _with_more(start, placed, headroom, users)


def _with_more(start: JobStart, placed: PlacedGang, headroom: QuotaHeadroom, users: UserRoom) -> JobStart:
    """The gang with these tasks, what it has more of them charged."""
    if len(placed.tasks) == len(start.placed.tasks):
        return start
    before, there = start, Counter(task.group for task in placed.tasks)
    groups = start.candidate.job.spec.task_groups
    start = replace(start, placed=placed, tasks=tuple(there[group.name] for group in groups))
    more = {gpu_type: milli - before.charge[gpu_type] for gpu_type, milli in start.charge.items()}
    headroom.take(start.queue, more)
    joined = [now - was for now, was in zip(start.tasks, before.tasks, strict=True)]
    users.take(start.candidate.job, more, _beside(start, joined))
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
    start: JobStart, unit: Unit, missing: int, headroom: QuotaHeadroom, users: UserRoom, lines: Lines | None
) -> int:
    """How many more units no max forbids, of which each lies at least in part inside the lines."""
    job, queue, sizes = start.candidate.job, start.queue, dict(zip(unit.groups, unit.sizes, strict=True))

    def counts(more: int) -> list[int]:
        return [more * sizes.get(place, 0) for place in range(len(start.tasks))]

    def charge(more: int) -> Charge:
        cost = charge_of(start.option.shapes, start.option.gpu_types, counts(more))
        return {gpu_type: milli for gpu_type, milli in cost.items() if milli}

    def inside(more: int) -> bool:
        if start.inside_only:
            return headroom.entitled.part(queue, charge(more)) == sum(charge(more).values())
        return lines is None or lines(headroom).part(queue, charge(more)) > lines(headroom).part(
            queue, charge(more - 1)
        )

    def forbidden(more: int) -> bool:
        cost = charge(more)
        capped = users.blocking(job, cost, _beside(start, counts(more)))
        return not headroom.allows(queue, cost) or bool(capped) or not inside(more)

    return bisect_left(range(1, missing + 1), True, key=forbidden)


def _beside(start: JobStart, tasks: Sequence[int]) -> HostUse:
    """CPU and memory of so many more tasks of each group."""
    shapes = list(zip(start.option.shapes, tasks, strict=True))
    return HostUse(
        sum(int(shape.cpu) * more for shape, more in shapes), sum(int(shape.memory) * more for shape, more in shapes)
    )
