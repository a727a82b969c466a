"""The most that entitled layers could be where others may have to leave: a program over shares, and counts of slots.

A gang is served in one of four manners. `entitled`: others leave for it, so it lies inside its guarantees as a whole. `fair`:
others leave for it, and it lies inside its fair shares. `displacing`: it stands before lower work of its queue, which holds more
than it is guaranteed. `free`: no job leaves for it, so it starts on what is free now. Every job that may be evicted may leave,
for any other, and there is room as on one large node: more than a plan may do (docs/solver.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.milp.builder import ProgramBuilder, summed
from solver.milp.loosening import Loosening
from solver.model.arrays import Floats
from solver.model.cluster import GpuType
from solver.model.quantities import MILLI_PER_GPU
from solver.model.shape import Shape
from solver.model.workload import QueueName
from solver.placement.starts import ENTITLED, JobStart, Segment, parts_inside, segments_of
from solver.policy.tree import QuotaLine
from solver.preemption.freeable import Freeable
from solver.queueing.demand import StartCandidate, SubLayer
from solver.quota.entitlement import Charge, QuotaHeadroom, Shares
from solver.quota.options import Option

Manner = Literal["entitled", "fair", "displacing", "free"]
MANNERS: tuple[Manner, ...] = ("entitled", "fair", "displacing", "free")


class Ask(NamedTuple):
    """What shares see of a gang that is served one way. `tasks`: how many of so many whole GPUs, by type."""

    charge: tuple[tuple[GpuType, int], ...]
    tasks: tuple[tuple[GpuType, int, int], ...]
    inside_only: bool

    @classmethod
    def of(cls, candidate: StartCandidate, option: Option) -> Ask:
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
    def of(cls, candidate: StartCandidate) -> Alike:
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

    @property
    def gpus(self) -> float:
        """GPUs of all types."""
        return sum(milli for _, milli in self.ask.charge) / MILLI_PER_GPU

    def segment(self, gpu_type: GpuType) -> Segment:
        """Where its GPUs count. What may not borrow is counted first, which is left out: it only bounds more."""
        return Segment(True, self.alike.layer, self.alike.band, self.alike.queue, gpu_type)


@dataclass(slots=True)
class EntitledBound:
    """The program, and what its columns mean. `capacity`: free now; `freeable`: what there is if all jobs leave that may."""

    candidates: Sequence[StartCandidate]
    layers: Sequence[SubLayer]
    shares: Shares
    capacity: FreeCapacity
    freeable: Freeable
    builder: ProgramBuilder = field(default_factory=ProgramBuilder)
    columns: dict[Served, int] = field(default_factory=dict)
    leaving: dict[QuotaLine, tuple[int, int]] = field(default_factory=dict)
    inside: dict[Segment, int] = field(default_factory=dict)
    _slots: dict[tuple[GpuType, int], int] = field(default_factory=dict)

    def state(self) -> None:
        """Write all columns, rows and layers."""
        for line, milli in sorted(self.freeable.charges().items()):
            self.leaving[line] = self.builder.column(milli / MILLI_PER_GPU, integer=False), milli
        entitled = Loosening(self.shares, self.shares.guaranteed, self.leaving)
        fair = Loosening(self.shares, self.shares.fair, self.leaving)
        self._columns_for_gangs({"entitled": entitled, "fair": fair, "displacing": entitled})
        self._rows_of_room()
        self._rows_of_max()
        self._rows_inside(entitled, lambda known: known.manner == "entitled" or known.ask.inside_only)
        self._rows_inside(fair, lambda known: known.manner == "fair")
        self._columns_inside(entitled)
        self._rows_of_displacing(entitled)
        weight = {(known.sub_layer, known.band): known.weight for known in self.candidates}
        for layer in self.layers:
            mine = {segment: column for segment, column in self.inside.items() if segment.sub_layer == layer}
            terms = {column: weight[layer, segment.band] for segment, column in mine.items()}
            for known, column in self.columns.items():
                if known.manner == "displacing" and known.alike.layer == layer:
                    terms[column] = weight[layer, known.alike.band] * known.gpus
            self.builder.maximise(f"{ENTITLED}{layer}", terms, exact=True)

    def point(
        self, served: Sequence[tuple[JobStart, Manner | None]], gone: Sequence[tuple[QueueName, Charge]]
    ) -> Floats:
        """The columns' values where these are served and those have left. Manner None: it counts in no layer, but is held."""
        values, stated = np.zeros(self.builder.columns), {known.job.name: known for known in self.candidates}
        # What is served without GPUs counts in no layer, and has no column.
        with_gpus = [(start, manner) for start, manner in served if any(start.charge.values())]
        for start, manner in with_gpus:
            if manner is not None:
                # Of options that found no room any more a later question of the round says nothing.
                candidate = stated[start.candidate.job.name]
                option = candidate.options.index(start.option)
                values[self.columns[Served(Alike.of(candidate), option, manner)]] += 1
        for queue, charge in gone:
            for gpu_type, count in charge.items():
                if count:
                    values[self.leaving[QuotaLine(queue, gpu_type)][0]] += count / MILLI_PER_GPU
        for segment, part in self._inside(with_gpus, gone).items():
            if not segment.sub_layer.growth and part:
                values[self.inside[segment._replace(may_borrow=True)]] += part / MILLI_PER_GPU
        return values

    def _inside(
        self, served: Sequence[tuple[JobStart, Manner | None]], gone: Sequence[tuple[QueueName, Charge]]
    ) -> dict[Segment, int]:
        """Milli-GPU inside guarantees, beside those of jobs that displace lower work: their queue holds these first."""
        milli, displaced = dict[Segment, int](), list[tuple[QueueName, Charge]]()
        for start, manner in served:
            if manner in ("displacing", None):
                displaced.append((start.queue, start.charge))
                continue
            for segment, count in segments_of(start.candidate, start.option, start.charge):
                milli[segment] = milli.get(segment, 0) + count
        return parts_inside(milli, QuotaHeadroom(self.shares.without(gone).beside(displaced)).entitled)

    def _columns_for_gangs(self, loosened: Mapping[Manner, Loosening]) -> None:
        members, lower = Counter[Alike](), dict[Alike, Charge]()
        for candidate in self.candidates:
            alike, mine = Alike.of(candidate), self.freeable.lower[candidate.job.name]
            members[alike] += 1
            lower[alike] = max(lower.get(alike, mine), mine, key=lambda charge: sum(charge.values()))
        for alike, count in members.items():
            columns = [
                self._column(served, count, loosened.get(manner), lower[alike])
                for option, ask in enumerate(alike.asks)
                for manner in (MANNERS if not ask.inside_only else ("entitled", "free"))
                if sum(milli for _, milli in ask.charge)
                for served in (Served(alike, option, manner),)
            ]
            self.builder.at_most({column: 1.0 for column in columns if column is not None}, count)

    def _column(self, served: Served, members: int, inside: Loosening | None, lower: Charge) -> int | None:
        """None where not even one gang can be served so. `lower`: what work of its own queue is charged that may leave for it."""
        tree, ask = self.shares.tree, served.ask
        if inside is None:
            allowed = [self._free(gpu_type, gpus) // ask.slots(gpu_type, gpus) for gpu_type, gpus, _ in ask.tasks]
        else:
            lines = ((line, milli) for known, milli in ask.charge for line in tree.lines(served.alike.queue, known))
            allowed = [inside.most(line) // milli for line, milli in lines if milli]
        most = min([members, *allowed])
        if most <= 0 or (served.manner == "displacing" and not any(lower.get(gpu_type) for gpu_type, _ in ask.charge)):
            return None
        self.columns[served] = self.builder.column(most)
        return self.columns[served]

    def _free(self, gpu_type: GpuType, gpus: int) -> int:
        """How many tasks of so many GPUs find room now."""
        if (gpu_type, gpus) not in self._slots:
            self._slots[gpu_type, gpus] = int(self.capacity.slots(Shape(gpus), gpu_type).sum())
        return self._slots[gpu_type, gpus]

    def _rows_of_room(self) -> None:
        """Slots by size of tasks, as in solver/milp/capacity: of what is free, and once all jobs have left that may."""
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

    def _rows_of_max(self) -> None:
        for line, terms in self._charged(lambda _: True).items():
            left = self.shares.left_under_max(line)
            if left is not None:
                gone = [(column, -1.0) for column in self._leaving_below(line)]
                self.builder.at_most(summed([*terms, *gone]), left / MILLI_PER_GPU)

    def _leaving_below(self, line: QuotaLine) -> Iterator[int]:
        if line in self.leaving:
            yield self.leaving[line][0]
        for child in self.shares.tree.lines_below(line):
            yield from self._leaving_below(child)

    def _rows_inside(self, inside: Loosening, whole: Callable[[Served], bool]) -> None:
        """Gangs that lie inside lines as a whole."""
        for line, terms in self._charged(whole).items():
            left, more = inside.left(line)
            self.builder.at_most(summed([*terms, *((column, -factor) for column, factor in more)]), left)

    def _charged(self, which: Callable[[Served], bool]) -> dict[QuotaLine, list[tuple[int, float]]]:
        """By line, the columns that are charged to it, with GPUs."""
        terms: dict[QuotaLine, list[tuple[int, float]]] = defaultdict(list)
        for served, column in self.columns.items():
            if which(served):
                for gpu_type, milli in served.ask.charge:
                    for line in self.shares.tree.lines(served.alike.queue, gpu_type) if milli else ():
                        terms[line].append((column, milli / MILLI_PER_GPU))
        return terms

    def _columns_inside(self, entitled: Loosening) -> None:
        """GPUs of each segment that lie inside guarantees, as the layers count them, beside jobs that displace lower work."""
        asking: dict[Segment, list[tuple[int, float]]] = defaultdict(list)
        for served, column in self.columns.items():
            for gpu_type, milli in served.ask.charge if served.manner != "displacing" else ():
                asking[served.segment(gpu_type)].append((column, -milli / MILLI_PER_GPU))
        lines: dict[QuotaLine, list[tuple[int, float]]] = defaultdict(list)
        for segment, terms in sorted(asking.items()):
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

    def _rows_of_displacing(self, entitled: Loosening) -> None:
        """A job that displaces lower work is inside, beside all others that are, once that has left.

        The first of them was not inside as things stood: all get less than what leaves and what it got. (Of two types it may have
        been inside one.)
        """
        terms = self._charged(lambda known: known.manner == "displacing")
        of_one_type = {
            line: mine for line, mine in self._charged(_displaces_on_one_type).items() if line in self.leaving
        }
        for segment, column in self.inside.items():
            for line in self.shares.tree.lines(segment.queue, segment.gpu_type):
                if line in terms:
                    terms[line].append((column, 1.0))
        for line, both in terms.items():
            self.builder.at_most(summed(both), entitled.most(line) / MILLI_PER_GPU)
        for line, mine in of_one_type.items():
            self.builder.at_most(summed(mine), self.leaving[line][1] / MILLI_PER_GPU + max(gpus for _, gpus in mine))


def _displaces_on_one_type(served: Served) -> bool:
    return served.manner == "displacing" and sum(milli > 0 for _, milli in served.ask.charge) == 1
