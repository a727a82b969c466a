"""Does not take the solver's word for it: whether an answer is one to the program that was asked."""

from __future__ import annotations

import numpy as np

from solver.milp.optimiser import Program, Solution


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
    if not program.is_satisfied_by(values):
        return "answered values that break the program's bounds, rows or integrality"
    return None
