"""A program stated in PuLP, and as the model of HiGHS that PuLP makes of it.

The other way to what `highs_model` hands over at once. It shares no code with that and comes out the same, number by number, so
each proves the other; and what PuLP states any of its solvers can solve (CBC does in tests).
"""

from __future__ import annotations

from itertools import islice

import highspy
import numpy as np
import pulp

from solver.milp.highs import optimise
from solver.milp.layers import QuietHighs
from solver.milp.optimiser import Effort, Program, Solution
from solver.model.arrays import Floats


def optimise_by_pulp(program: Program, start: Floats, effort: Effort) -> Solution | None:
    """The Optimiser in process, by way of PuLP."""
    return optimise(program, start, effort, model_of)


def model_of(program: Program) -> highspy.HighsLp:
    """All of a program but its objectives. Raises ValueError for a row with two different bounds."""
    problem = stated(program)
    problem.solverModel = model = QuietHighs()  # type: ignore[no-untyped-call]
    # PuLP would tell HiGHS of one whole column at a time, for which HiGHS looks at all of them.
    pulp.HiGHS(mip=False, msg=False).buildSolverModel(problem)
    whole = np.array(
        [n for n, column in enumerate(problem.variables()) if column.cat == pulp.LpInteger], dtype=np.int32
    )
    model.changeColsIntegrality(len(whole), whole, np.full(len(whole), highspy.HighsVarType.kInteger))
    return model.getLp()


def stated(program: Program) -> pulp.LpProblem:
    """The program as a PuLP problem without an objective. Zero-padded names, because PuLP sorts columns by name.

    Raises ValueError for a row with two different bounds.
    """
    problem = pulp.LpProblem("round", pulp.LpMinimize)
    categories = np.where(program.integer, pulp.LpInteger, pulp.LpContinuous)
    columns = [
        problem.add_variable(f"x{number:07}", lower, upper, category)
        for number, (lower, upper, category) in enumerate(
            zip(program.lower.tolist(), program.upper.tolist(), categories.tolist(), strict=True)
        )
    ]
    # PuLP forgets columns that are nowhere named, and those after them would then answer to the wrong numbers.
    problem.setObjective(pulp.LpAffineExpression([(column, 0.0) for column in columns]))
    order = np.argsort(program.entry_row, kind="stable")
    entries = zip(program.entry_column[order].tolist(), program.entry_value[order].tolist(), strict=True)
    in_row = np.bincount(program.entry_row, minlength=len(program.row_lower))
    for row, (count, lower, upper) in enumerate(
        zip(in_row.tolist(), program.row_lower.tolist(), program.row_upper.tolist(), strict=True)
    ):
        terms = pulp.LpAffineExpression([(columns[column], factor) for column, factor in islice(entries, count)])
        problem.addConstraint(pulp.LpConstraint(terms, *_sense_of(lower, upper, row)))
    return problem


def _sense_of(lower: float, upper: float, row: int) -> tuple[int, str, float]:
    """What PuLP is told of a row: its sense, its name, its bound."""
    name = f"r{row:07}"
    if lower == upper:
        return pulp.LpConstraintEQ, name, upper
    if lower == -np.inf:
        return pulp.LpConstraintLE, name, upper
    raise ValueError(f"row {row} lies between {lower} and {upper}, for which PuLP has no word")
