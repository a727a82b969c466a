"""Does not take the solver's word for it: whether an answer is one to the program that was asked."""

from __future__ import annotations

import numpy as np

from solver.program.optimiser import Floats, Program, Solution

TOLERANCE = 1e-4
"""Relative to the limit, and at least absolute.

A hundred times what HiGHS allows itself (1e-6), for what its presolve may add; far below the 1 by which a
wrong count is wrong.
"""


def complaint(program: Program, solution: Solution) -> str | None:
    """What is wrong with an answer; None where it satisfies every bound, row and integrality."""
    values = solution.values
    if values.shape != program.lower.shape:
        return f"answered {values.size} values for {program.lower.size} columns"
    if not np.isfinite(values).all():
        return "answered values that are not finite"
    if len(solution.reached) != len(program.objectives):
        return f"answered for {len(solution.reached)} objectives of {len(program.objectives)}"
    if any(np.isnan([reached.value, reached.bound]).any() for reached in solution.reached):
        return "answered an objective that is not a number"
    if not _within(values, program.lower, program.upper):
        return "answered values outside their bounds"
    if (np.abs(values - np.round(values))[program.integer] > TOLERANCE).any():
        return "answered fractions where integers were asked for"
    if not _within(_activity(program, values), program.row_lower, program.row_upper):
        return "answered values that break a row of the program"
    return None


def _activity(program: Program, values: Floats) -> Floats:
    terms = program.entry_value * values[program.entry_column]
    return np.bincount(program.entry_row, weights=terms, minlength=program.row_lower.size).astype(np.float64)


def _within(values: Floats, lower: Floats, upper: Floats) -> bool:
    """An infinite limit binds nobody; its slack must not become infinity minus infinity."""
    below = np.where(np.isfinite(lower), lower - TOLERANCE * np.maximum(1.0, np.abs(lower)), lower)
    above = np.where(np.isfinite(upper), upper + TOLERANCE * np.maximum(1.0, np.abs(upper)), upper)
    return bool((values >= below).all() and (values <= above).all())
