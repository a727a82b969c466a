"""The seam between stating a program and running it: what goes to an optimiser, and what comes back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from solver.model.arrays import Floats, Ints

TOLERANCE = 1e-6
"""Relative slack for rows, bounds and integrality: HiGHS's own feasibility tolerance."""


@dataclass(frozen=True, slots=True)
class Objective:
    """One layer: a linear function of the columns, to be made as large as the layers before it allow.

    `exact` layers are solved to proven optimality; the effort's gap is for the others.
    """

    name: str
    exact: bool
    columns: Ints
    coefficients: Floats

    def value(self, values: Floats) -> float:
        """What a point is worth in this layer."""
        return float(self.coefficients @ values[self.columns])


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

    def is_satisfied_by(self, values: Floats) -> bool:
        """Whether a point keeps every row, every bound and integrality. No solver's word is taken for it."""
        if values.shape != self.lower.shape or not np.isfinite(values).all():
            return False
        rows = np.bincount(self.entry_row, self.entry_value * values[self.entry_column], minlength=len(self.row_lower))
        slack = TOLERANCE * np.maximum(1.0, np.abs(rows))
        inside_rows = (rows >= self.row_lower - slack) & (rows <= self.row_upper + slack)
        inside_bounds = (values >= self.lower - TOLERANCE) & (values <= self.upper + TOLERANCE)
        whole = ~self.integer | (np.abs(values - np.round(values)) <= TOLERANCE)
        return bool(inside_rows.all() and inside_bounds.all() and whole.all())


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to try: the relative gap of layers that need not be exact, a limit in seconds for all of it, and the seed.

    The time limit is a safety net, not a tuning knob: what it cut short is not reproducible. `exact`: the program is
    solved as it is stated, and to tight tolerances, so that what layers may lose to rounding does not add up. `bounding`: the
    start is the answer, and all that is asked is how good another could be in each layer that is as good in those before.
    `nodes_max`: every layer is branched over, to so many nodes at most, which unlike a clock stop at the same answer every time.
    """

    gap: float
    time_limit_s: float
    seed: int
    exact: bool = False
    bounding: bool = False
    nodes_max: int = 0


@dataclass(frozen=True, slots=True)
class Reached:
    """What one layer reached, and the most that any point could reach in it, given what the layers before it reached.

    The bound of a layer that was not looked into is infinite.
    """

    value: float
    bound: float


@dataclass(frozen=True, slots=True)
class Solution:
    """Values of all columns, one result per objective, what computed them, and whether a clock cut the work short."""

    values: Floats
    reached: tuple[Reached, ...]
    solver: str
    cut_by_clock: bool = False


Awaited = Callable[[], Solution | None]
"""Waits for an answer."""


class Optimiser(Protocol):
    """Runs a program. The start satisfies every row."""

    def __call__(self, program: Program, start: Floats, effort: Effort) -> Solution | None:
        """The best solution found, or None where it found none, crashed or ran out of time."""


class ConcurrentOptimiser(ABC):
    """An Optimiser that can work while the round goes on."""

    def __call__(self, program: Program, start: Floats, effort: Effort) -> Solution | None:
        """Ask, and wait for the answer."""
        return self.begin(program, start, effort)()

    @abstractmethod
    def begin(self, program: Program, start: Floats, effort: Effort) -> Awaited:
        """Ask, and go on at once."""

    def for_a_round(self) -> ConcurrentOptimiser:
        """What answers the questions of one round: itself, unless it counts what a round asks."""
        return self


def begun(optimiser: Optimiser, program: Program, start: Floats, effort: Effort) -> Awaited:
    """Ask beside the round where the optimiser can do that, else when the answer is waited for. The answers are the same."""
    return (optimiser.begin if isinstance(optimiser, ConcurrentOptimiser) else partial(partial, optimiser))(
        program, start, effort
    )


def for_a_round(optimiser: Optimiser) -> Optimiser:
    """What answers the questions of one round."""
    return optimiser.for_a_round() if isinstance(optimiser, ConcurrentOptimiser) else optimiser


@dataclass(slots=True)
class MonitoredOptimiser(ConcurrentOptimiser):
    """An Optimiser that asks another. `cut`: some answer was cut short, or did not come."""

    optimiser: Optimiser
    cut: bool = False

    def begin(self, program: Program, start: Floats, effort: Effort) -> Awaited:
        """The other's answer, waited for later."""
        waiting = begun(self.optimiser, program, start, effort)

        def answer() -> Solution | None:
            solution = waiting()
            self.cut |= solution is None or solution.cut_by_clock
            return solution

        return answer
