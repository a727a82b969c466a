"""Between plans and programs: an answer becomes a point of the program, and a point becomes starts on real devices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from solver.fit import Fit
from solver.greedy import greedy
from solver.placement import Mask, Placed, place, place_best
from solver.program.capacity import Opened
from solver.program.cells import Cell, Cells
from solver.program.formulate import Formulation
from solver.program.optimiser import Floats, Program
from solver.program.ways import Kind, Way
from solver.rules.demand import Candidate, Option
from solver.rules.entitlement import Headroom, Shares
from solver.starts import Segment, Start, layer_values, parts_inside, segments_of
from solver.world.cluster import LEVELS, DeviceId, Level
from solver.world.quantities import MILLI_PER_GPU
from solver.world.room import Room
from solver.world.workload import SharedShape


@dataclass(frozen=True, slots=True)
class Decided:
    """One gang that the program wants to start: how, and in which domain where the program says so."""

    candidate: Candidate
    option: Option
    level: Level | None
    within: Mask | None

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

        In decreasing task size every set on the chain 1|2|4|8 that satisfies the rows can be placed (docs/solver.md).
        """
        return (-self.task_milli, self.closeness, -self.option.worth)


TRIES_MAX = 6
"""Orders of placing tried while somebody finds no place. Few are needed: what helps helps at once or hardly ever."""


def point_of(starts: Sequence[Start], formulation: Formulation, program: Program, room: Room) -> Floats:
    """The columns' values for an answer that is already concrete: the incumbent an optimiser must beat."""
    values = np.zeros(len(program.lower))
    class_of = {c.job.name: number for number, known in enumerate(formulation.classes) for c in known.members}
    milli: dict[Segment, int] = defaultdict(int)
    divided = {gpu.device for gpus in room.shared.values() for gpu in gpus}
    for start in starts:
        way = _way_of(start, class_of[start.candidate.job.name], formulation, room)
        values[formulation.ways[way]] += 1
        for kind, domain in _flows_of(start, way, formulation, room):
            values[formulation.flows[kind][domain]] += 1
        for key in _newly_divided(start, formulation.cells, divided):
            values[formulation.opened[key]] += 1
        for segment, count in segments_of(start.candidate, start.option):
            milli[segment] += count
    headroom = Headroom(formulation.shares)
    for columns, inside in ((formulation.entitled, headroom.entitled), (formulation.fair, headroom.fair)):
        for segment, part in parts_inside(milli, inside).items():
            if segment in columns:
                values[columns[segment]] = part / MILLI_PER_GPU
    return values


def starts_of(
    values: Floats,
    formulation: Formulation,
    room: Room,
    candidates: Sequence[Candidate],
    shares: Shares,
    fit: Fit | None = None,
) -> tuple[Start, ...]:
    """The point made concrete, filled up with whatever still fits; the best over the orders of placing."""
    order = sorted(_decided(values, formulation), key=lambda decided: decided.hardness)
    answers = []
    for _ in range(TRIES_MAX):
        trial = room.copy()
        placed = tuple(_place_all(order, trial, fit))
        answers.append(greedy(candidates, trial, shares, placed, fit))
        found = {start.candidate.job.name for start in placed}
        if len(found) == len(order):
            break
        # Whoever found no place goes first next time ("squeaky wheel" optimisation; Joslin and Clements, 1999).
        order.sort(key=lambda decided: decided.candidate.job.name in found)
    return max(answers, key=lambda starts: layer_values(starts, formulation.sub_layers, shares))


def _newly_divided(start: Start, cells: Cells, divided: set[DeviceId]) -> Iterable[Opened]:
    """The whole GPUs that a start is the first to have a part of; adds them to `divided`."""
    shapes = start.shapes
    for task in start.placed.tasks:
        shape, node = shapes[task.group], cells.room.index[task.node]
        if isinstance(shape, SharedShape) and not divided.issuperset(task.devices):
            divided.update(task.devices)
            domain = cells.domain_of(node)
            local = cells.local(shape, domain)
            if isinstance(local, SharedShape):
                yield Opened(Cell(domain, cells.room.nodes[node].gpu_type), local.circles)


def _way_of(start: Start, number: int, formulation: Formulation, room: Room) -> Way:
    asked = formulation.classes[number].topology
    matching = [
        way
        for way in formulation.ways_of_class(number)
        if way.option.gpu_types == start.option.gpu_types
        and way.preferred_met == start.placed.preferred_met
        and way.pool in (None, _pool_of(start.placed, room))
    ]
    if not matching:
        raise AssertionError(f"no column for {start.candidate.job.name} asking {asked} on {start.option.gpu_types}")
    return matching[0]


def _pool_of(placed: Placed, room: Room) -> int:
    return int(room.topology["pool"].of_node[room.index[placed.tasks[0].node]])


def _flows_of(start: Start, way: Way, formulation: Formulation, room: Room) -> Iterable[tuple[Kind, int]]:
    shapes = start.shapes
    nodes = {
        (task.group, task.index): room.index[task.node] for task in start.placed.tasks if shapes[task.group].uses_gpus
    }
    kinds = [kind for kind, _ in formulation.kinds_of(way)]
    if kinds and kinds[0].level is not None:
        yield kinds[0], formulation.cells.domain_of(next(iter(nodes.values())))
        return
    by_part = {(kind.parts[0][0], kind.parts[0][1]): kind for kind in kinds}
    for (group, _), node in nodes.items():
        kind = by_part[formulation.part_key(shapes[group], room.nodes[node].gpu_type)]
        yield kind, formulation.cells.domain_of(node)


def _decided(values: Floats, formulation: Formulation) -> Iterable[Decided]:
    domains = {
        kind: [domain for domain, column in columns.items() for _ in range(round(values[column]))]
        for kind, columns in formulation.flows.items()
        if kind.level is not None
    }
    for number, job_class in enumerate(formulation.classes):
        members = iter(job_class.members)
        ways = [way for way in formulation.ways_of_class(number) for _ in range(round(values[formulation.ways[way]]))]
        for way, candidate in zip(ways, members, strict=False):
            yield Decided(candidate, way.option, way.level, _hint(way, formulation, domains))


def _hint(way: Way, formulation: Formulation, domains: dict[Kind, list[int]]) -> Mask | None:
    if way.pool is not None:
        mask: Mask = formulation.cells.room.topology["pool"].of_node == way.pool
        return mask
    for kind, _ in formulation.kinds_of(way):
        if domains.get(kind):
            return formulation.cells.nodes_of(domains[kind].pop(0))
    return None


def _place_all(decided: Iterable[Decided], room: Room, fit: Fit | None) -> Iterable[Start]:
    for wanted in decided:
        spec = wanted.candidate.job.spec
        placed = place(room, spec, wanted.option, wanted.within) if wanted.within is not None else None
        chosen = (wanted.option, placed) if placed else place_best(room, spec, (wanted.option,), fit)
        if chosen is not None:
            yield Start(wanted.candidate, *chosen)
