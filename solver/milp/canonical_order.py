"""A program with its columns and rows in an order that follows from its numbers alone.

Of answers that are equally good an optimiser returns one that depends on the order in which the program is written, and that is
the order of names. In the canonical order two programs that differ in names alone are the same to it. Columns and rows are told
apart by what they share entries with, again and again (colour refinement; B. Weisfeiler and A. Leman, 1968). Of those that stay
alike one is taken first, and what follows from that is told apart again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from solver.milp.optimiser import Objective, Program
from solver.model.arrays import Floats, Ints

Colours = npt.NDArray[np.uint64]

ROUNDS = 4
"""How far apart columns may be that tell each other apart, in rows, each time."""

COLUMNS_MAX = 1_500
"""Programs of more columns keep the order in which they are written."""


@dataclass(frozen=True, slots=True)
class CanonicalOrder:
    """`program` in its canonical order; `columns`: by place there the number of the column that it was."""

    program: Program
    columns: Ints

    @classmethod
    def of(cls, program: Program) -> CanonicalOrder:
        """The order of a program; its own where it is too large to look for one."""
        count = len(program.lower)
        if count > COLUMNS_MAX:
            return cls(program, np.arange(count))
        columns, rows = _told_apart(program)
        return cls(_in_order(program, columns, rows), columns)

    def given_back(self, values: Floats) -> Floats:
        """The values of an answer, by the numbers that columns had."""
        found = np.empty_like(values)
        found[self.columns] = values
        return found


def _told_apart(program: Program) -> tuple[Ints, Ints]:
    """The columns and the rows, in order."""
    columns, rows = _refined(
        program, _first_colours(program), _mixed(_bits(program.row_lower), _bits(program.row_upper))
    )
    while True:
        order = np.argsort(columns, kind="stable")
        alike = np.flatnonzero(columns[order[1:]] == columns[order[:-1]])
        if not len(alike):
            return order, np.argsort(rows, kind="stable")
        columns[order[alike[0]]] = _mixed(columns[order[alike[0]]], np.uint64(1))
        columns, rows = _refined(program, columns, rows)


def _first_colours(program: Program) -> Colours:
    colours = _mixed(_bits(program.upper), program.integer.astype(np.uint64))
    for objective in program.objectives:
        worth = np.zeros(len(program.lower))
        worth[objective.columns] = objective.coefficients
        colours = _mixed(colours, _bits(worth))
    return colours


def _refined(program: Program, columns: Colours, rows: Colours) -> tuple[Colours, Colours]:
    values = _bits(program.entry_value)
    for _ in range(ROUNDS):
        rows = _with_neighbours(rows, program.entry_row, _mixed(columns[program.entry_column], values))
        columns = _with_neighbours(columns, program.entry_column, _mixed(rows[program.entry_row], values))
    return columns, rows


def _with_neighbours(colours: Colours, places: Ints, seen: Colours) -> Colours:
    """Each colour with those that are seen from its place, in whatever order."""
    total = np.zeros(len(colours), dtype=np.uint64)
    np.add.at(total, places, seen)
    return _mixed(colours, total)


def _bits(values: Floats) -> Colours:
    # Sums of the same terms may differ in their last digits by the order in which they were added up.
    rounded = np.array([float(f"{value:.9g}") for value in values.tolist()]) + 0.0
    return rounded.view(np.uint64)


def _mixed(one: Colours | np.uint64, other: Colours | np.uint64) -> Colours:
    """Two colours as one: splitmix64 (G. Steele, D. Lea, C. Flood, 2014)."""
    with np.errstate(over="ignore"):
        mixed = np.asarray(one * np.uint64(0x9E3779B97F4A7C15) + other + np.uint64(0x632BE59BD9B4E019))
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found: Colours = mixed ^ (mixed >> np.uint64(31))
        return found


def _in_order(program: Program, columns: Ints, rows: Ints) -> Program:
    place_of_column, place_of_row = np.empty_like(columns), np.empty_like(rows)
    place_of_column[columns], place_of_row[rows] = np.arange(len(columns)), np.arange(len(rows))
    entry_row, entry_column = place_of_row[program.entry_row], place_of_column[program.entry_column]
    order = np.lexsort((entry_column, entry_row))
    return replace(
        program,
        lower=program.lower[columns],
        upper=program.upper[columns],
        integer=program.integer[columns],
        row_lower=program.row_lower[rows],
        row_upper=program.row_upper[rows],
        entry_row=entry_row[order],
        entry_column=entry_column[order],
        entry_value=program.entry_value[order],
        objectives=tuple(_moved(known, place_of_column) for known in program.objectives),
    )


def _moved(objective: Objective, place_of_column: Ints) -> Objective:
    columns = place_of_column[objective.columns]
    order = np.argsort(columns, kind="stable")
    return replace(objective, columns=columns[order], coefficients=objective.coefficients[order])
