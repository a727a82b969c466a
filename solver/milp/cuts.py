"""Rows that forbid what was proven to find no place: so many gangs served in such ways, grown by so much.

More gangs never find places where fewer do not; but more gangs may share what fewer would have to grow by. So one of
these must differ: fewer gangs of a way, more gangs of a way that grows, or less growth. A binary for each says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from solver.milp.builder import ProgramBuilder
from solver.milp.ways import GrowthColumn, Way
from solver.model.arrays import Floats


@dataclass(frozen=True, slots=True)
class ServedGangs:
    """Gangs served one way: how many, and tasks by which each of the ways' groups grows, over all of them."""

    gangs: int
    growth: tuple[tuple[int, int], ...] = ()


Wanted = Mapping[Way, ServedGangs]
"""What is to be placed side by side."""


@dataclass(frozen=True, slots=True)
class Excuse:
    """A binary `column` that is 1 only where `of` is at most a limit, or (`above`) at least it."""

    column: int
    of: int
    limit: int
    above: bool

    def holds(self, values: Floats) -> bool:
        """Whether a point may claim it."""
        value = round(float(values[self.of]))
        return value >= self.limit if self.above else value <= self.limit


def forbid(
    wanted: Wanted, builder: ProgramBuilder, ways: Mapping[Way, int], growth: Mapping[GrowthColumn, int]
) -> list[Excuse]:
    """Write the rows that forbid one combination; returns their binaries, without which no point is complete."""
    excuses = list(_excuses(wanted, builder, ways, growth))
    for excuse in excuses:
        if excuse.above:
            builder.at_most({excuse.column: float(excuse.limit), excuse.of: -1.0}, 0.0)
        else:
            most = builder.most(excuse.of)
            builder.at_most({excuse.of: 1.0, excuse.column: most - excuse.limit}, most)
    builder.at_most({excuse.column: -1.0 for excuse in excuses}, -1.0)
    return excuses


def _excuses(
    wanted: Wanted, builder: ProgramBuilder, ways: Mapping[Way, int], growth: Mapping[GrowthColumn, int]
) -> Iterable[Excuse]:
    for way, served in wanted.items():
        yield Excuse(builder.column(1), ways[way], served.gangs - 1, above=False)
        growing = [(group, tasks) for group, tasks in served.growth if tasks]
        if growing and served.gangs < builder.most(ways[way]):
            yield Excuse(builder.column(1), ways[way], served.gangs + 1, above=True)
        for group, tasks in growing:
            yield Excuse(builder.column(1), growth[GrowthColumn(way, group)], tasks - 1, above=False)
