"""The program's answer made concrete; in exact mode the program is corrected until its counts can be placed, or it is given up.

The rows of the program are necessary, not sufficient. Where its counts find no place, every placement is tried; if there
is none, a smallest part of them that finds none is forbidden, and the program is run again (a logic-based Benders
decomposition; Hooker and Ottosson, 2003).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from math import inf, isinf

from solver.capacity.free_capacity import FreeCapacity
from solver.milp.certificate import in_step, same
from solver.milp.conversion import point_of, starts_of
from solver.milp.cuts import Excuse, ServedGangs, Wanted, forbid
from solver.milp.exact_packing import Hosts, PackingRequest, PackingSearch, TooManyWaysError
from solver.milp.formulation import Formulation
from solver.milp.optimiser import Effort, Optimiser, Program, Solution, begun
from solver.milp.ways import Way
from solver.model.arrays import Floats
from solver.placement.fit import Fit
from solver.placement.greedy import greedy
from solver.placement.placement import least_tasks
from solver.placement.starts import JobStart, layer_values
from solver.placement.views import place_at
from solver.queueing.demand import StartCandidate
from solver.quota.entitlement import Shares

CUTS_MAX = 200
"""Combinations forbidden in a round before it is given up: the program then stands unproven."""

STEPS_MAX = 300_000
"""Nodes tried for tasks in one round, over all its questions to `PackingSearch`: seconds."""


Places = tuple[Sequence[PackingRequest], Sequence[Hosts]]
"""Gangs, and the nodes of as many of them as were tried."""


@dataclass(frozen=True, slots=True)
class ByProgram:
    """What came of a program: its last statement and answer, the starts made of it, and how many combinations it was forbidden."""

    program: Program
    solution: Solution | None
    starts: tuple[JobStart, ...]
    cuts: int = 0

    @property
    def leaves_bounds_open(self) -> bool:
        """There is an answer, and layers that were not looked into."""
        known = self.solution
        return known is not None and not known.cut_by_clock and any(isinf(layer.bound) for layer in known.reached)

    def without_bounds(self) -> ByProgram:
        """The same, where bounds of the program hold for some of the candidates alone."""
        return self._without_bounds_from(0)

    def without_refuted_bounds(self, values: Sequence[float], point: Callable[[], Floats]) -> ByProgram:
        """The same, less what an answer of these values refutes: a bound that it exceeds, and all after it.

        Only if the program admits its `point`: then the optimiser was wrong, as HiGHS 1.16.0 may be once some layers are locked in.
        Else the program is wrong, which the checker is to tell.
        """
        reached = self.solution.reached[: in_step(values, self.solution)] if self.solution else ()
        above = (
            number
            for number, (value, known) in enumerate(zip(values, reached, strict=False))
            if value > known.bound and not same(value, known.bound)
        )
        first = next(above, None)
        if first is None or not self.program.is_satisfied_by(point()):
            return self
        return self._without_bounds_from(first)

    def _without_bounds_from(self, first: int) -> ByProgram:
        if self.solution is None:
            return self
        open_ = (replace(known, bound=inf) for known in self.solution.reached[first:])
        return replace(self, solution=replace(self.solution, reached=(*self.solution.reached[:first], *open_)))


@dataclass(slots=True)
class Deciding:
    """What a program is run for: which candidates compete in which room, what greedy found, and how hard to try."""

    formulation: Formulation
    capacity: FreeCapacity
    candidates: Sequence[StartCandidate]
    shares: Shares
    optimiser: Optimiser
    effort: Effort
    fit: Fit | None
    excuses: list[Excuse] = field(default_factory=list)

    def begin(self, first: tuple[JobStart, ...]) -> Callable[[], ByProgram]:
        """Ask the program, and wait for its answer later; where it has none, `first` stands."""
        program = self.formulation.builder.build()
        start = point_of(first, self.formulation, program, self.capacity)
        for excuse in self.excuses:
            start[excuse.column] = excuse.holds(start)
        waiting = begun(self.optimiser, program, start, self.effort)

        def answer() -> ByProgram:
            solution = waiting()
            if solution is None:
                return ByProgram(program, None, first)
            starts = starts_of(solution.values, self.formulation, self.capacity, self.candidates, self.shares, self.fit)
            return ByProgram(program, solution, starts)

        return answer

    def until_placed(self, first: tuple[JobStart, ...]) -> ByProgram:
        """Run the program and forbid what finds no place, until what it wants is placed.

        Once only where GPUs may be partitioned: there it is not known what finds no place, since some could be made whole.
        """
        if self.capacity.partitions:
            return self.begin(first)()
        search, known, cuts = PackingSearch(self.capacity, STEPS_MAX), self.formulation, 0
        while True:
            found = replace(self.begin(first)(), cuts=cuts)
            if found.solution is None or found.solution.cut_by_clock or self._is_reached(found) or cuts == CUTS_MAX:
                return found
            wanted = wanted_of(found.solution.values, known)
            try:
                places = self._places(wanted, search)
                if places is not None:
                    return replace(found, starts=self._concrete(places) or found.starts)
                hopeless = self._smallest(wanted, search)
            except TooManyWaysError:
                return found
            self.excuses += forbid(hopeless, known.builder, known.ways, known.growth)
            cuts += 1

    def _is_reached(self, found: ByProgram) -> bool:
        values = layer_values(found.starts, self.formulation.sub_layers, self.shares)
        reached = found.solution.reached if found.solution else ()
        return all(same(value, layer.value) for value, layer in zip(values, reached, strict=True))

    def _smallest(self, wanted: Wanted, search: PackingSearch) -> Wanted:
        """What is left of the hopeless when everything is left out, task by task and gang by gang, without which it still is."""
        known = dict(wanted)
        for way in wanted:
            less = _less(known, way)
            while less is not None and self._places(less, search) is None:
                known, less = less, _less(less, way)
        return known

    def _places(self, wanted: Wanted, search: PackingSearch) -> Places | None:
        """Nodes for all that ask for whole GPUs; None where they find none."""
        for gangs in self._sizes(wanted):
            hosts = search.places([gang for gang in gangs if not gang.asks_for_parts])
            if hosts is not None:
                return gangs, hosts
        return None

    def _sizes(self, wanted: Wanted) -> Iterator[list[PackingRequest]]:
        """The gangs, in every way in which those served alike can share what they grow by."""
        shared = [list(self._gangs(way, served)) for way, served in wanted.items()]
        for chosen in product(*shared):
            yield [gang for gangs in chosen for gang in gangs]

    def _gangs(self, way: Way, served: ServedGangs) -> Iterator[list[PackingRequest]]:
        members = list(islice(self.formulation.classes[way.job_class].members, served.gangs))
        if not members:
            yield []
            return
        spec, growth = members[0].job.spec, dict(served.growth)
        units, least = spec.units, least_tasks(spec)
        per_unit = [
            list(_shared_out(max(growth.get(n, 0) for n in unit.groups), len(members), spec.most_more(unit)))
            for unit in units
        ]
        step = {n: size for unit in units for n, size in zip(unit.groups, unit.sizes, strict=True)}
        place_of = {n: place for place, unit in enumerate(units) for n in unit.groups}
        for more in product(*per_unit):
            yield [
                PackingRequest(
                    member,
                    way.option,
                    way.level,
                    way.pool,
                    tuple(count + more[place_of[n]][place] * step[n] for n, count in enumerate(least)),
                )
                for place, member in enumerate(members)
            ]

    def _concrete(self, places: Places) -> tuple[JobStart, ...]:
        """On devices; () where some were not tried. Gangs that most reservations hold back find what is not kept from them."""
        (gangs, hosts), capacity, starts = places, self.capacity.copy(), []
        if len(hosts) < len(gangs):
            return ()
        for gang, nodes in sorted(zip(gangs, hosts, strict=True), key=lambda pair: -len(pair[0].candidate.against)):
            placed = place_at(capacity, gang.candidate, gang.option, nodes)
            if placed is None:
                return ()
            starts.append(JobStart(gang.candidate, gang.option, placed, gang.tasks))
        return greedy(self.candidates, capacity, self.shares, starts, self.fit)


def wanted_of(values: Floats, formulation: Formulation) -> Wanted:
    """What a point of the program wants to start."""
    growth: dict[Way, list[tuple[int, int]]] = {}
    for known, column in formulation.growth.items():
        if known.group not in formulation.tied_to_others(known.way):
            growth.setdefault(known.way, []).append((known.group, round(values[column])))
    return {
        way: ServedGangs(round(values[column]), tuple(growth.get(way, ())))
        for way, column in formulation.ways.items()
        if round(values[column])
    }


def _less(wanted: dict[Way, ServedGangs], way: Way) -> dict[Way, ServedGangs] | None:
    """One unit less to grow by, else one gang less; None where there is none left."""
    served = wanted.get(way)
    if served is None:
        return None
    growing = [(group, tasks) for group, tasks in served.growth if tasks]
    if growing:
        (group, tasks), *rest = growing
        return wanted | {way: ServedGangs(served.gangs, ((group, tasks - 1), *rest))}
    others = {other: known for other, known in wanted.items() if other != way}
    return others | {way: ServedGangs(served.gangs - 1)} if served.gangs > 1 else others


def _shared_out(units: int, gangs: int, most: int) -> Iterator[tuple[int, ...]]:
    """Every way in which so many gangs grow by so many units together, each by at most `most`."""
    if gangs == 0:
        if units == 0:
            yield ()
        return
    for first in range(min(units, most), -1, -1):
        for rest in _shared_out(units - first, gangs - 1, most):
            yield (first, *rest)
