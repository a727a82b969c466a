"""The most that entitled layers could be where others may have to leave: a program over shares, and counts of slots.

A gang is served in one of three manners. `entitled`: others leave for it, so it lies inside its guarantees as a whole. `fair`:
others leave for it, and it lies inside its fair shares. `free`: nobody leaves for it, so it starts on what is free now. Whoever may
lawfully be evicted may leave, for whomever, and there is room as on one large node: more than a plan may do (docs/solver.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from solver.program.builder import ProgramBuilder, summed
from solver.rules.demand import Candidate, SubLayer
from solver.rules.entitlement import Charge, Headroom, Shares
from solver.rules.freeable import Freeable
from solver.rules.options import Option
from solver.rules.tree import Line
from solver.starts import ENTITLED, Segment, Start, parts_inside, segments_of
from solver.world.arrays import Floats
from solver.world.cluster import GpuType
from solver.world.quantities import MILLI_PER_GPU
from solver.world.room import Room
from solver.world.shape import Shape
from solver.world.workload import QueueName

Manner = Literal["entitled", "fair", "free"]
MANNERS: tuple[Manner, ...] = ("entitled", "fair", "free")


class Ask(NamedTuple):
    """What shares see of a gang that is served one way. `tasks`: how many of so many whole GPUs, by type."""

    charge: tuple[tuple[GpuType, int], ...]
    tasks: tuple[tuple[GpuType, int, int], ...]
    inside_only: bool

    @classmethod
    def of(cls, candidate: Candidate, option: Option) -> Ask:
        """That of a gang under one of its options."""
        counts: dict[tuple[GpuType, int], int] = defaultdict(int)
        for shape, gpu_type, group in zip(option.shapes, option.gpu_types, candidate.job.spec.task_groups, strict=True):
            if gpu_type is not None and shape.gpus:
                counts[gpu_type, shape.gpus] += group.least
        tasks = tuple(sorted((*key, count) for key, count in counts.items()))
        return cls(tuple(sorted(option.charge.items())), tasks, candidate.is_inside_only(option))

    def slots(self, gpu_type: GpuType, size: int) -> int:
        """What it takes of the room for tasks of so many GPUs."""
        return sum(gpus // size * count for known, gpus, count in self.tasks if known == gpu_type)


class Alike(NamedTuple):
    """Gangs that shares can't tell apart, with what they ask for under each of their options."""

    queue: QueueName
    layer: SubLayer
    band: int
    asks: tuple[Ask, ...]

    @classmethod
    def of(cls, candidate: Candidate) -> Alike:
        """Those that a gang is one of."""
        asks = tuple(Ask.of(candidate, option) for option in candidate.options)
        return cls(candidate.job.spec.queue, candidate.sub_layer, candidate.band, asks)


class Served(NamedTuple):
    """Gangs of a kind served under the option of this number: what a column counts."""

    alike: Alike
    option: int
    manner: Manner

    @property
    def ask(self) -> Ask:
        """What each of them asks for."""
        return self.alike.asks[self.option]

    def segment(self, gpu_type: GpuType) -> Segment:
        """Where its GPUs count. What may not borrow is counted first, which is left out: it only bounds more."""
        return Segment(True, self.alike.layer, self.alike.band, self.alike.queue, gpu_type)


@dataclass(slots=True)
class Loosening:
    """What is left of nested lines as others leave: linear in the columns `leaving`, and never less than it can be.

    What is left, the limit less min(limit, use), is convex in the use: it lies below the straight line between what it is if
    nobody leaves and if everybody does.
    """

    shares: Shares
    limits: Mapping[Line, int]
    leaving: Mapping[Line, tuple[int, int]]
    _known: dict[Line, tuple[int, int, list[tuple[int, float]]]] = field(default_factory=dict)

    def left(self, line: Line) -> tuple[float, list[tuple[int, float]]]:
        """GPUs that are left if nobody leaves, and what each column of those who do adds."""
        limit = self.limits.get(line, 0)
        now, _, terms = self._inside(line)
        return (limit - now) / MILLI_PER_GPU, terms

    def most(self, line: Line) -> int:
        """Milli-GPU that are left if all leave."""
        return self.limits.get(line, 0) - self._inside(line)[1]

    def _inside(self, line: Line) -> tuple[int, int, list[tuple[int, float]]]:
        """Of the use inside the line: now, once all have left, and GPUs by which each column lowers it."""
        if line not in self._known:
            below = [self._inside(child) for child in self.shares.tree.lines_below(line)]
            if below:
                now, least = sum(known[0] for known in below), sum(known[1] for known in below)
                terms = [term for known in below for term in known[2]]
            else:
                now = self.shares.used.get(line, 0)
                column, milli = self.leaving.get(line, (0, 0))
                least, terms = now - milli, [(column, 1.0)] if milli else []
            limit = self.limits.get(line, 0)
            inside, inside_least = min(limit, now), min(limit, least)
            part = (inside - inside_least) / (now - least) if now > least else 0.0
            self._known[line] = inside, inside_least, [(column, factor * part) for column, factor in terms if part]
        return self._known[line]


@dataclass(slots=True)
class EntitledBound:
    """The program, and what its columns mean. `room`: what is free now; `freeable`: what there is if all leave who may."""

    candidates: Sequence[Candidate]
    layers: Sequence[SubLayer]
    shares: Shares
    room: Room
    freeable: Freeable
    builder: ProgramBuilder = field(default_factory=ProgramBuilder)
    columns: dict[Served, int] = field(default_factory=dict)
    leaving: dict[Line, tuple[int, int]] = field(default_factory=dict)
    inside: dict[Segment, int] = field(default_factory=dict)
    _slots: dict[tuple[GpuType, int], int] = field(default_factory=dict)

    def state(self) -> None:
        """Write all columns, rows and layers."""
        for line, milli in sorted(self.freeable.charges().items()):
            self.leaving[line] = self.builder.column(milli / MILLI_PER_GPU, integer=False), milli
        entitled = Loosening(self.shares, self.shares.guaranteed, self.leaving)
        fair = Loosening(self.shares, self.shares.fair, self.leaving)
        self._columns_for_gangs({"entitled": entitled, "fair": fair})
        self._rows_of_room()
        self._rows_of_ceilings()
        self._rows_inside(entitled, lambda known: known.manner == "entitled" or known.ask.inside_only)
        self._rows_inside(fair, lambda known: known.manner == "fair")
        self._columns_inside(entitled)
        weight = {(known.sub_layer, known.band): known.weight for known in self.candidates}
        for layer in self.layers:
            mine = {segment: column for segment, column in self.inside.items() if segment.sub_layer == layer}
            terms = {column: weight[layer, segment.band] for segment, column in mine.items()}
            self.builder.maximise(f"{ENTITLED}{layer}", terms, exact=True)

    def point(self, served: Sequence[tuple[Start, Manner]], gone: Sequence[tuple[QueueName, Charge]]) -> Floats:
        """The columns' values where these are served and those have left."""
        values, milli = np.zeros(self.builder.columns), dict[Segment, int]()
        for start, manner in served:
            if not any(start.charge.values()):
                continue  # without GPUs it counts in no layer, and has no column
            option = start.candidate.options.index(start.option)
            values[self.columns[Served(Alike.of(start.candidate), option, manner)]] += 1
            for segment, count in segments_of(start.candidate, start.option, start.charge):
                milli[segment] = milli.get(segment, 0) + count
        for queue, charge in gone:
            for gpu_type, count in charge.items():
                if count:
                    values[self.leaving[Line(queue, gpu_type)][0]] += count / MILLI_PER_GPU
        for segment, part in parts_inside(milli, Headroom(self.shares.without(gone)).entitled).items():
            if not segment.sub_layer.growth and part:
                values[self.inside[segment._replace(may_borrow=True)]] += part / MILLI_PER_GPU
        return values

    def _columns_for_gangs(self, loosened: Mapping[Manner, Loosening]) -> None:
        for alike, members in Counter(map(Alike.of, self.candidates)).items():
            mine = [
                self._column(served, members, loosened.get(manner))
                for option, ask in enumerate(alike.asks)
                for manner in (MANNERS if not ask.inside_only else ("entitled", "free"))
                if sum(milli for _, milli in ask.charge)
                for served in (Served(alike, option, manner),)
            ]
            self.builder.at_most({column: 1.0 for column in mine if column is not None}, members)

    def _column(self, served: Served, members: int, inside: Loosening | None) -> int | None:
        """None where not even one gang can be served so."""
        tree, ask = self.shares.tree, served.ask
        if inside is None:
            allowed = [self._free(gpu_type, gpus) // ask.slots(gpu_type, gpus) for gpu_type, gpus, _ in ask.tasks]
        else:
            lines = ((line, milli) for known, milli in ask.charge for line in tree.lines(served.alike.queue, known))
            allowed = [inside.most(line) // milli for line, milli in lines if milli]
        most = min([members, *allowed])
        if most <= 0:
            return None
        self.columns[served] = self.builder.column(most)
        return self.columns[served]

    def _free(self, gpu_type: GpuType, gpus: int) -> int:
        """How many tasks of so many GPUs find room now."""
        if (gpu_type, gpus) not in self._slots:
            self._slots[gpu_type, gpus] = int(self.room.slots(Shape(gpus), gpu_type).sum())
        return self._slots[gpu_type, gpus]

    def _rows_of_room(self) -> None:
        """Slots by size of tasks, as in solver/program/capacity: of what is free, and once all have left who may."""
        sizes = sorted({(task[0], task[1]) for known in self.columns for task in known.ask.tasks})
        slots = {ask: [(size, ask.slots(*size)) for size in sizes] for ask in {known.ask for known in self.columns}}
        terms: dict[tuple[GpuType, int], dict[int, float]] = {size: {} for size in sizes}
        free: dict[tuple[GpuType, int], dict[int, float]] = {size: {} for size in sizes}
        for known, column in self.columns.items():
            for size, count in slots[known.ask]:
                if count:
                    terms[size][column] = float(count)
                    if known.manner == "free":
                        free[size][column] = float(count)
        for size in sizes:
            self.builder.at_most(terms[size], self.freeable.slots(*size))
            self.builder.at_most(free[size], self._free(*size))

    def _rows_of_ceilings(self) -> None:
        for line, terms in self._charged(lambda _: True).items():
            room = self.shares.room_under_max(line)
            if room is not None:
                gone = [(column, -1.0) for column in self._leaving_below(line)]
                self.builder.at_most(summed([*terms, *gone]), room / MILLI_PER_GPU)

    def _leaving_below(self, line: Line) -> Iterator[int]:
        if line in self.leaving:
            yield self.leaving[line][0]
        for child in self.shares.tree.lines_below(line):
            yield from self._leaving_below(child)

    def _rows_inside(self, inside: Loosening, whole: Callable[[Served], bool]) -> None:
        """Gangs that lie inside lines as a whole."""
        for line, terms in self._charged(whole).items():
            left, more = inside.left(line)
            self.builder.at_most(summed([*terms, *((column, -factor) for column, factor in more)]), left)

    def _charged(self, which: Callable[[Served], bool]) -> dict[Line, list[tuple[int, float]]]:
        """By line, the columns that are charged to it, with GPUs."""
        terms: dict[Line, list[tuple[int, float]]] = defaultdict(list)
        for served, column in self.columns.items():
            if which(served):
                for gpu_type, milli in served.ask.charge:
                    for line in self.shares.tree.lines(served.alike.queue, gpu_type) if milli else ():
                        terms[line].append((column, milli / MILLI_PER_GPU))
        return terms

    def _columns_inside(self, entitled: Loosening) -> None:
        """GPUs of each segment that lie inside guarantees, as the layers count them."""
        takers: dict[Segment, list[tuple[int, float]]] = defaultdict(list)
        for served, column in self.columns.items():
            for gpu_type, milli in served.ask.charge:
                takers[served.segment(gpu_type)].append((column, -milli / MILLI_PER_GPU))
        lines: dict[Line, list[tuple[int, float]]] = defaultdict(list)
        for segment, terms in sorted(takers.items()):
            path = self.shares.tree.lines(segment.queue, segment.gpu_type)
            most = min(map(entitled.most, path), default=0)
            if most > 0:
                column = self.inside[segment] = self.builder.column(most / MILLI_PER_GPU, integer=False)
                self.builder.at_most(summed([(column, 1.0), *terms]), 0.0)
                for line in path:
                    lines[line].append((column, 1.0))
        for line, terms in lines.items():
            left, more = entitled.left(line)
            self.builder.at_most(summed([*terms, *((column, -factor) for column, factor in more)]), left)
