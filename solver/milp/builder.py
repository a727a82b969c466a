"""Collects columns, rows and entries into the arrays of a Program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf

import numpy as np

from solver.milp.optimiser import Objective, Program


@dataclass(slots=True)
class ProgramBuilder:
    """Grows a program column by column and row by row. All columns start at 0; all rows are `<= limit` or `== limit`."""

    _upper: list[float] = field(default_factory=list)
    _integer: list[bool] = field(default_factory=list)
    _row_lower: list[float] = field(default_factory=list)
    _row_upper: list[float] = field(default_factory=list)
    _entry_row: list[int] = field(default_factory=list)
    _entry_column: list[int] = field(default_factory=list)
    _entry_value: list[float] = field(default_factory=list)
    _objectives: list[Objective] = field(default_factory=list)

    def column(self, upper: float, *, integer: bool = True) -> int:
        """A new column between 0 and `upper`; returns its number."""
        self._upper.append(upper)
        self._integer.append(integer)
        return len(self._upper) - 1

    @property
    def columns(self) -> int:
        """How many there are."""
        return len(self._upper)

    def most(self, column: int) -> float:
        """The upper bound of a column."""
        return self._upper[column]

    def at_most(self, terms: Mapping[int, float], limit: float) -> None:
        """Σ terms ≤ limit; left out where the bounds of the columns keep it anyway."""
        if sum(factor * self._upper[column] for column, factor in terms.items() if factor > 0) > limit:
            self._row(terms, -inf, limit)

    def equal(self, terms: Mapping[int, float], value: float) -> None:
        """Σ terms = value."""
        self._row(terms, value, value)

    def maximise(self, name: str, terms: Mapping[int, float], *, exact: bool = False) -> None:
        """The next layer: make Σ terms as large as the layers before allow."""
        columns = np.array(sorted(terms), dtype=np.int64)
        factors = np.array([terms[column] for column in sorted(terms)], dtype=np.float64)
        self._objectives.append(Objective(name, exact, columns, factors))

    def build(self) -> Program:
        """The finished arrays."""
        return Program(
            lower=np.zeros(len(self._upper)),
            upper=np.array(self._upper, dtype=np.float64),
            integer=np.array(self._integer, dtype=bool),
            row_lower=np.array(self._row_lower, dtype=np.float64),
            row_upper=np.array(self._row_upper, dtype=np.float64),
            entry_row=np.array(self._entry_row, dtype=np.int64),
            entry_column=np.array(self._entry_column, dtype=np.int64),
            entry_value=np.array(self._entry_value, dtype=np.float64),
            objectives=tuple(self._objectives),
        )

    def _row(self, terms: Mapping[int, float], lower: float, upper: float) -> None:
        columns = [column for column, factor in terms.items() if factor]
        self._entry_row += [len(self._row_lower)] * len(columns)
        self._entry_column += columns
        self._entry_value += [factor for factor in terms.values() if factor]
        self._row_lower.append(lower)
        self._row_upper.append(upper)


def summed(terms: Iterable[tuple[int, float]]) -> dict[int, float]:
    """Add up repeated columns. PuLP would keep only the last of them, which once made a plan beat its own bound."""
    total: dict[int, float] = {}
    for column, factor in terms:
        total[column] = total.get(column, 0.0) + factor
    return total
