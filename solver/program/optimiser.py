"""The seam between stating a program and running it: what goes to an optimiser, and what comes back."""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from dataclasses import dataclass

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Objective:
    """One layer: a linear function of the columns, to be made as large (or as small) as the layers before it allow."""

    name: str
    sense: Literal["max", "min"]
    columns: Ints
    coefficients: Floats


@dataclass(frozen=True, slots=True)
class Program:
    """A mixed-integer program with ordered objectives, as arrays: `row_lower <= A x <= row_upper`, `lower <= x <= upper`.

    A is in triplets (`entry_row`, `entry_column`, `entry_value`), each (row, column) pair at most once.
    """

    lower: Floats
    upper: Floats
    integer: npt.NDArray[np.bool_]
    row_lower: Floats
    row_upper: Floats
    entry_row: Ints
    entry_column: Ints
    entry_value: Floats
    objectives: tuple[Objective, ...]


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to try: relative gap per layer, seconds for all of it (a safety net, not a tuning knob), and the seed."""

    gap: float
    time_limit_s: float
    seed: int


@dataclass(frozen=True, slots=True)
class Reached:
    """What one layer reached and its dual bound, given the layers before it."""

    value: float
    bound: float
    proven: bool


@dataclass(frozen=True, slots=True)
class Solution:
    """Values of all columns, one result per objective, and who computed them."""

    values: Floats
    reached: tuple[Reached, ...]
    solver: str


class Optimiser(Protocol):
    """Runs a program. The start, where given, satisfies every row."""

    def __call__(self, program: Program, start: Floats, effort: Effort) -> Solution | None:
        """The best solution found, or None where it found none, crashed or ran out of time."""
