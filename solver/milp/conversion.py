"""Conversion between starts and points: an answer becomes a point of the program, a point becomes starts on real devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.reserved_view import Against
from solver.milp.capacity import Circles, NewlySharedGpus
from solver.milp.cell_parts import Portion
from solver.milp.cells import CapacityCell, Cells, bare
from solver.milp.formulation import Formulation
from solver.milp.hints import Hints
from solver.milp.optimiser import Program
from solver.milp.ways import FlowKind, GrowthColumn, Way
from solver.model.arrays import Floats, Mask
from solver.model.cluster import LEVELS, DeviceId, Level, is_wider
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import SharedShape
from solver.model.workload import JobSpec
from solver.placement.fit import Fit
from solver.placement.greedy import greedy
from solver.placement.placement import PlacedGang, least_tasks
from solver.placement.starts import JobStart, Segment, layer_values, parts_inside, segments_of
from solver.placement.strain import level_of
from solver.placement.views import place_in_view
from solver.queueing.demand import StartCandidate
from solver.queueing.strict_queues import passing_nobody
from solver.quota.entitlement import QuotaHeadroom, Shares
from solver.quota.options import Option


@dataclass(frozen=True, slots=True)
class ProgramStart:
    """One gang that the program wants to start: how, and in which domain where the program says so."""

    candidate: StartCandidate
    option: Option
    level: Level | None
    within: Mask | None
    tasks: tuple[int, ...]

    @property
    def task_milli(self) -> int:
        """Milli-GPU of its largest task."""
        return max(shape.cost for shape in self.option.shapes)

    @property
    def closeness(self) -> int:
        """0 for an island up to the number of levels for anywhere."""
        return (*LEVELS, None).index(self.level)

    @property
    def hardness(self) -> tuple[float, ...]:
        """Sorts the hardest to place first: large tasks, then closely kept gangs, then large gangs.

        In decreasing task size every set on the chain 1|2|4|8 that satisfies the rows can be placed (docs/solver-rows.md).
        """
        return (-self.task_milli, self.closeness, -self.option.worth)


TRIES_MAX = 6
"""Orders of placing tried while a gang finds no place. Few are needed: what helps helps at once or hardly ever."""


def point_of(starts: Sequence[JobStart], formulation: Formulation, program: Program, capacity: FreeCapacity) -> Floats:
    """The columns' values for an answer that is already concrete: the incumbent an optimiser must beat."""
    values = np.zeros(len(program.lower))
    class_of = {c.job.name: number for number, known in enumerate(formulation.classes) for c in known.members}
    milli: dict[Segment, int] = defaultdict(int)
    divided = [(view, cells, set(_divided(cells.capacity))) for view, cells in formulation.views()]
    for start in starts:
        way = _way_of(start, class_of[start.candidate.job.name], formulation, capacity)
        values[formulation.ways[way]] += 1
        for growth, column in _growth_of(way, formulation):
            group = start.candidate.job.spec.task_groups[growth.group]
            values[column] += (start.tasks[growth.group] - group.least) // group.replica_step
        for column in _flow_columns(start, way, formulation, capacity):
            values[column] += 1
        for opened in _opened(start, divided):
            values[formulation.opened[opened]] += 1
        for segment, count in segments_of(start.candidate, start.option, start.charge):
            milli[segment] += count
    headroom = QuotaHeadroom(formulation.shares)
    for columns, inside in ((formulation.entitled, headroom.entitled), (formulation.fair, headroom.fair)):
        for segment, part in parts_inside(milli, inside).items():
            if segment in columns:
                values[columns[segment]] = part / MILLI_PER_GPU
    weighed = formulation.lending.point((start.queue, start.charge) for start in starts)
    values[list(weighed)] = list(weighed.values())
    started = {start.candidate.job.name for start in starts}
    for number, column in formulation.all_started.items():
        values[column] = all(member.job.name in started for member in formulation.classes[number].members)
    return values


def starts_of(
    values: Floats,
    formulation: Formulation,
    capacity: FreeCapacity,
    candidates: Sequence[StartCandidate],
    shares: Shares,
    fit: Fit | None = None,
) -> tuple[JobStart, ...]:
    """The point made concrete: the best over the orders of placing, filled up with whatever still fits."""
    order = sorted(_decided(values, formulation), key=lambda decided: decided.hardness)
    tries = []
    for _ in range(TRIES_MAX):
        left, placed = _place_in_line(order, capacity, candidates, fit)
        tries.append((left, placed))
        found = {start.candidate.job.name for start in placed}
        if len(found) == len(order):
            break
        # A gang that found no place goes first next time ("squeaky wheel" optimisation; Joslin and Clements, 1999).
        order.sort(key=lambda decided: decided.candidate.job.name in found)
    left, placed = max(tries, key=lambda tried: layer_values(tried[1], formulation.sub_layers, shares))
    return greedy(candidates, left, shares, placed, fit)


def _place_in_line(
    order: Sequence[ProgramStart], capacity: FreeCapacity, candidates: Sequence[StartCandidate], fit: Fit | None
) -> tuple[FreeCapacity, tuple[JobStart, ...]]:
    """Place all; a gang that would pass one of its strict queue that found no place gives its own back. With the room left."""
    while True:
        trial = capacity.copy()
        placed = tuple(_place_all(order, trial, fit))
        staying = passing_nobody(candidates, [(start.candidate, start.option) for start in placed])
        if len(staying) == len(placed):
            return trial, placed
        order = [decided for decided in order if decided.candidate.job.name in staying]


def _divided(capacity: FreeCapacity) -> Iterable[DeviceId]:
    return (gpu.device for gpus in capacity.shared.values() for gpu in gpus)


def _opened(start: JobStart, divided: Iterable[tuple[Against, Cells, set[DeviceId]]]) -> Iterable[NewlySharedGpus]:
    """The columns that count the GPUs it divides: one in every view of jobs that its reservations hold back."""
    for view, cells, already in divided:
        if view <= start.candidate.against:
            yield from (NewlySharedGpus(view, *known) for known in _newly_divided(start, cells, already))


def _newly_divided(start: JobStart, cells: Cells, divided: set[DeviceId]) -> Iterable[tuple[CapacityCell, Circles]]:
    """The whole GPUs that a start is the first of its view to have a part of; adds them to `divided`."""
    shapes = start.shapes
    for task in start.placed.tasks:
        shape, node = shapes[task.group], cells.capacity.index[task.node]
        for device in task.devices if isinstance(shape, SharedShape) else ():
            if device not in divided:
                divided.add(device)
                cell = cells.cell_of(node)
                local = cells.local(shape, cell)
                if isinstance(local, SharedShape):
                    yield cell, local.circles


def _way_of(start: JobStart, number: int, formulation: Formulation, capacity: FreeCapacity) -> Way:
    asked, level = formulation.classes[number].topology, level_of(capacity, start.placed.tasks)
    matching = [
        way
        for way in formulation.ways_of_class(number)
        if way.option.gpu_types == start.option.gpu_types
        and not is_wider(level, way.level)
        and way.pool in (None, _pool_of(start.placed, capacity))
    ]
    if not matching:
        raise AssertionError(f"no column for {start.candidate.job.name} asking {asked} on {start.option.gpu_types}")
    return matching[0]


def _pool_of(placed: PlacedGang, capacity: FreeCapacity) -> int:
    return int(capacity.topology["pool"].of_node[capacity.index[placed.tasks[0].node]])


def _flow_columns(start: JobStart, way: Way, formulation: Formulation, capacity: FreeCapacity) -> Iterable[int]:
    """The columns that count what flows into cells, and into parts of these: once for each that it sends there."""
    for kind, domain in _flows_of(start, way, formulation, capacity):
        yield formulation.flows[kind][domain]
    for portion in _portions_of(start, way, formulation, capacity):
        yield formulation.split.columns[portion]


def _flows_of(
    start: JobStart, way: Way, formulation: Formulation, capacity: FreeCapacity
) -> Iterable[tuple[FlowKind, int]]:
    kept = formulation.kept_at(way) is not None
    for number, group in enumerate(start.candidate.job.spec.task_groups):
        tasks = sorted((task for task in start.placed.tasks if task.group == group.name), key=lambda task: task.index)
        domains = [formulation.cells.domain_of(capacity.index[task.node]) for task in tasks]
        growth = GrowthColumn(way, number)
        if growth in formulation.growth:
            yield from ((formulation.kind_of_growth(growth), domain) for domain in domains[group.least :])
        if not group.shape.uses_gpus:
            continue
        if kept:
            # The gang is one flow, so it is counted once, by the first of its groups that has GPUs.
            yield from (
                (kind, domains[0]) for kind, _ in formulation.kinds_of(way) if number == _first_with_gpus(start)
            )
            continue
        groups = formulation.groups_with(way, number)
        if groups:
            if number == formulation.first_with_gpus(way, groups):
                kind, size = formulation.kind_of_groups(way, groups), groups.size(number, group.least)
                yield from ((kind, domains[first]) for first in range(0, group.least, size))
            continue
        first = 0
        for kind, times in formulation.kinds_of_group(way, number):
            for _ in range(times):
                yield kind, domains[first]
                first += kind.parts[0][2]


def _portions_of(start: JobStart, way: Way, formulation: Formulation, capacity: FreeCapacity) -> Iterable[Portion]:
    """Its tasks in cells that are split, each by what it flows in with."""
    if not formulation.cells.parts:
        return
    for number, group in enumerate(start.candidate.job.spec.task_groups):
        gpu_type = start.option.gpu_types[number]
        if gpu_type is None:
            continue
        shape, tasks = bare(start.option.shapes[number]), [t for t in start.placed.tasks if t.group == group.name]
        kinds = list(_kinds_of_tasks(way, number, group.least, formulation))
        for place, task in enumerate(sorted(tasks, key=lambda task: task.index)):
            cell = formulation.cells.cell_of(capacity.index[task.node])
            if cell.part is not None:
                kind = kinds[place] if place < group.least else formulation.kind_of_growth(GrowthColumn(way, number))
                names = [(known, other) for known, other, _ in kind.parts]
                yield Portion(kind, names.index((shape, gpu_type)), cell)


def _kinds_of_tasks(way: Way, number: int, least: int, formulation: Formulation) -> Iterable[FlowKind]:
    """For each of the least tasks of a group, in order, what it flows in with."""
    if formulation.kept_at(way):
        ((kind, _),) = formulation.kinds_of(way)
        yield from [kind] * least
    elif groups := formulation.groups_with(way, number):
        yield from [formulation.kind_of_groups(way, groups)] * least
    else:
        for kind, times in formulation.kinds_of_group(way, number):
            yield from [kind] * times * kind.parts[0][2]


def _first_with_gpus(start: JobStart) -> int:
    return next(number for number, group in enumerate(start.candidate.job.spec.task_groups) if group.shape.uses_gpus)


def _growth_of(way: Way, formulation: Formulation) -> list[tuple[GrowthColumn, int]]:
    """The columns by which gangs served one way grow."""
    groups = range(len(way.option.gpu_types))
    return [
        (growth, formulation.growth[growth])
        for group in groups
        if (growth := GrowthColumn(way, group)) in formulation.growth
    ]


def _decided(values: Floats, formulation: Formulation) -> Iterable[ProgramStart]:
    hints = Hints(formulation, values)
    for number, job_class in enumerate(formulation.classes):
        members = iter(job_class.members)
        for way in formulation.ways_of_class(number):
            served = islice(members, round(values[formulation.ways[way]]))
            growing = {growth.group: round(values[column]) for growth, column in _growth_of(way, formulation)}
            for candidate in served:
                tasks = _share_of(growing, candidate.job.spec)
                yield ProgramStart(candidate, way.option, way.level, hints.of(way), tasks)


def _share_of(growing: dict[int, int], spec: JobSpec) -> tuple[int, ...]:
    """The next gang's tasks, out of the units by which all gangs served the same way grow: the first in the order grow first."""
    tasks = list(least_tasks(spec))
    for unit in spec.units:
        # Groups without GPUs have no column.
        more = min(max(growing.get(group, 0) for group in unit.groups), spec.most_more(unit))
        for group, size in zip(unit.groups, unit.sizes, strict=True):
            growing[group] = growing.get(group, 0) - more
            tasks[group] += more * size
    return tuple(tasks)


def _place_all(decided: Iterable[ProgramStart], capacity: FreeCapacity, fit: Fit | None) -> Iterable[JobStart]:
    for wanted in decided:
        least = least_tasks(wanted.candidate.job.spec)
        for tasks in dict.fromkeys((wanted.tasks, least)):
            chosen = place_in_view(capacity, wanted.candidate, (wanted.option,), fit, tasks, wanted.within)
            if chosen is not None:
                yield JobStart(wanted.candidate, *chosen, tasks)
                break
