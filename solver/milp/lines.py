"""The rows that keep strict queues in line: a gang starts only if all those start that it would delay if they waited.

Classes of a strict queue are stretches of its order, so the members of one start from the first on, and it is enough to
ask of a class ahead whether all of it starts: y ≤ (gangs of it that start) / (its members), and gangs of the later one that
would delay it ≤ members · y.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from solver.milp.builder import ProgramBuilder
from solver.model.cluster import GpuType
from solver.model.workload import JobSpec, QueueName
from solver.queueing.demand import StartCandidate
from solver.queueing.strict_queues import Reach, may_pass
from solver.quota.options import Option


class ClassInLine(Protocol):
    """Jobs that are alike; those of a strict queue stand together in its line."""

    @property
    def queue(self) -> QueueName:
        """The one in which they wait."""

    @property
    def strict(self) -> bool:
        """Whether it is strict."""

    @property
    def members(self) -> tuple[StartCandidate, ...]:
        """In their order."""


class WayInLine(NamedTuple):
    """A column that counts jobs of a class, by its number, that are served with an option."""

    job_class: int
    option: Option
    column: int


@dataclass(frozen=True, slots=True)
class LineRows:
    """Rows over the columns of each way to serve a class. `classes` are in the order of their first members."""

    builder: ProgramBuilder
    classes: Sequence[ClassInLine]
    ways: Iterable[WayInLine]

    def state(self) -> dict[int, int]:
        """Write them all; returns the column `y` of each class that others stand behind."""
        columns: dict[int, list[WayInLine]] = {}
        for way in self.ways:
            columns.setdefault(way.job_class, []).append(way)
        all_started: dict[int, int] = {}
        for later, ahead in self._in_line():
            members = len(self.classes[later].members)
            delaying = [way.column for way in columns.get(later, ()) if self._would_delay(way, ahead)]
            if delaying:
                if ahead not in all_started:
                    all_started[ahead] = self._all_started(ahead, [way.column for way in columns.get(ahead, ())])
                terms = dict.fromkeys(delaying, 1.0) | {all_started[ahead]: -float(members)}
                self.builder.at_most(terms, 0.0)
        return all_started

    def _in_line(self) -> Iterator[tuple[int, int]]:
        """Pairs of a class and one ahead of it in its strict queue, nearest first.

        What a class would delay, classes behind it that take the same would delay too: so its pairs
        end at the first that takes the same.
        """
        lines: dict[str, list[int]] = {}
        for number, known in enumerate(self.classes):
            if known.strict:
                line = lines.setdefault(known.queue, [])
                for ahead in reversed(line):
                    yield number, ahead
                    if self._all_it_takes(number) and self._all_it_takes(number) == self._all_it_takes(ahead):
                        break
                line.append(number)

    def _all_it_takes(self, number: int) -> tuple[GpuType, bool] | None:
        """The one GPU type that all of its gangs take, and whether anything beside it; None for others."""
        reach, shapes = self._reach(number), [group.shape for group in self._spec(number).task_groups]
        if reach.every_host or reach.gpu_types is None or len(reach.gpu_types) != 1:
            return None
        return next(iter(reach.gpu_types)), any(any(shape.beside.values()) for shape in shapes)

    def _would_delay(self, way: WayInLine, ahead: int) -> bool:
        return not may_pass(self._spec(way.job_class), way.option, self._reach(ahead))

    def _reach(self, number: int) -> Reach:
        return Reach.of(self._spec(number))

    def _spec(self, number: int) -> JobSpec:
        return self.classes[number].members[0].job.spec

    def _all_started(self, number: int, columns: Sequence[int]) -> int:
        column = self.builder.column(1)
        members = len(self.classes[number].members)
        self.builder.at_most({column: float(members)} | dict.fromkeys(columns, -1.0), 0.0)
        return column
