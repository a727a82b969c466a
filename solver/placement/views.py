"""Places for gangs that reservations hold back: found without what is kept for others, taken from what is really free."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.reserved_view import seen
from solver.model.arrays import Mask
from solver.model.workload import Unit
from solver.placement.best_place import place_best
from solver.placement.fit import Fit
from solver.placement.placement import (
    LackingUnit,
    PlacedGang,
    complete_unit,
    grow,
    grow_by_units,
    has_place,
    place,
    realised,
)
from solver.placement.starts import held_by
from solver.queueing.demand import StartCandidate
from solver.quota.options import Option

Chosen = tuple[Option, PlacedGang]


def fits(room: FreeCapacity, candidate: StartCandidate, option: Option) -> bool:
    """Whether the gang would find its place, if nothing else started."""
    return has_place(seen(room, candidate.against), candidate.job.spec, option)


def place_in_view(
    room: FreeCapacity,
    candidate: StartCandidate,
    options: Sequence[Option],
    fit: Fit | None,
    tasks: Sequence[int] | None = None,
    within: Mask | None = None,
) -> Chosen | None:
    """Take room for a gang under one of several equally liked options; `within` these nodes first, where they are named."""
    spec = candidate.job.spec

    def placing(view: FreeCapacity) -> Chosen | None:
        for option in options if within is not None else ():
            placed = place(view, spec, option, within, tasks)
            if placed is not None:
                return option, placed
        return place_best(view, spec, options, fit, tasks)

    if not candidate.against:
        return placing(room)
    chosen = placing(seen(room, candidate.against))
    if chosen is not None:
        room.occupy(held_by(spec, chosen[0], chosen[1].tasks))
    return chosen


def place_at(
    room: FreeCapacity, candidate: StartCandidate, option: Option, hosts: Sequence[Sequence[int]]
) -> PlacedGang | None:
    """Take room for a gang on exactly these nodes, one for each task of each group; None where its view has too little there."""
    spec, view = candidate.job.spec, seen(room, candidate.against)
    with view.trying():
        for shape, nodes in zip(option.shapes, hosts, strict=True):
            for node in nodes:
                if view.free_gpus[node] < shape.gpus:
                    return None
                view.take(node, shape, 1)
    placed = realised(view, spec, option, hosts)
    if candidate.against:
        room.occupy(held_by(spec, option, placed.tasks))
    return placed


def grow_in_view(
    room: FreeCapacity, candidate: StartCandidate, option: Option, placed: PlacedGang, number: int, most: int
) -> PlacedGang:
    """Take room for at most so many more tasks of one group of a gang."""
    return _grown(
        room, candidate, option, placed, lambda view: grow(view, candidate.job.spec, option, placed, number, most)
    )


def grow_by_units_in_view(
    room: FreeCapacity, candidate: StartCandidate, option: Option, placed: PlacedGang, unit: Unit, most: int
) -> PlacedGang:
    """Take room for at most so many more units of several groups of a gang."""
    spec = candidate.job.spec
    return _grown(room, candidate, option, placed, lambda view: grow_by_units(view, spec, option, placed, unit, most))


def complete_unit_in_view(
    room: FreeCapacity,
    candidate: StartCandidate,
    option: Option,
    placed: PlacedGang,
    unit: Unit,
    lacking: LackingUnit,
) -> PlacedGang:
    """Take room for the tasks that one unit of a gang lacks; all of them, or none."""
    spec = candidate.job.spec
    return _grown(
        room, candidate, option, placed, lambda view: complete_unit(view, spec, option, placed, unit, lacking)
    )


def _grown(
    room: FreeCapacity,
    candidate: StartCandidate,
    option: Option,
    placed: PlacedGang,
    growing: Callable[[FreeCapacity], PlacedGang],
) -> PlacedGang:
    """A gang that grows in its view, and takes what it gets from what is really free."""
    if not candidate.against:
        return growing(room)
    grown, spec = growing(seen(room, candidate.against)), candidate.job.spec
    known = {(task.group, task.index) for task in placed.tasks}
    new = [task for task in grown.tasks if (task.group, task.index) not in known]
    room.occupy(held_by(spec, option, new))
    return grown
