"""Runs a program with PuLP and HiGHS in this process: layer by layer, each locked in before the next.

PuLP states the model once; HiGHS keeps it between layers, so that each layer starts from the last one's basis. A layer is
settled as cheaply as it can be: by the start if it already reaches the LP bound, by the LP if that comes out whole, else by
branch and bound from the best point so far. One thread, a fixed seed and a stop by gap make the answer reproducible; the
time limit is a safety net, and a solution it cut short says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
import pulp

from solver.program.optimiser import TOLERANCE, Effort, Floats, Objective, Program, Reached, Solution

SOLVER = f"HiGHS {highspy.Highs().version()} through PuLP {pulp.__version__}"


def optimise(program: Program, start: Floats, effort: Effort) -> Solution | None:
    """The Optimiser that runs in process. None only where even the start does not satisfy the program."""
    if not program.is_satisfied_by(start):
        return None
    run = _Run(program, _load(stated(program), effort), start, effort)
    reached = tuple(run.settle(objective) for objective in program.objectives)
    return Solution(run.best, reached, SOLVER, run.cut)


UNREDUCED_COLUMNS_MAX = 2_000
"""Programs of so few columns are solved as they are: with presolve a layer may come out better than any answer can be, by two in a
million, and the next one with it. Larger ones need presolve to be fast."""


EXACT_TOLERANCE = 1e-9
"""Of rows and of integrality in exact rounds. At HiGHS's own 1e-6 each layer could give up as much as two values may differ by and
be the same, and the next gain it: its bound would be out of reach."""


def stated(program: Program) -> pulp.LpProblem:
    """The program as a PuLP problem without an objective. Zero-padded names, because PuLP sorts columns by name."""
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
    terms: list[list[tuple[Any, float]]] = [[] for _ in range(len(program.row_lower))]
    for row, column, factor in zip(
        program.entry_row.tolist(), program.entry_column.tolist(), program.entry_value.tolist(), strict=True
    ):
        terms[row].append((columns[column], factor))
    for row, (pairs, lower, upper) in enumerate(
        zip(terms, program.row_lower.tolist(), program.row_upper.tolist(), strict=True)
    ):
        sense = pulp.LpConstraintEQ if lower == upper else pulp.LpConstraintLE
        problem.addConstraint(pulp.LpConstraint(pulp.LpAffineExpression(pairs), sense, f"r{row:07}", upper))
    return problem


def _load(problem: pulp.LpProblem, effort: Effort) -> highspy.Highs:
    solver = pulp.HiGHS(msg=False, threads=1, gapRel=effort.gap, timeLimit=effort.time_limit_s, random_seed=effort.seed)
    solver.createAndConfigureSolver(problem)
    solver.buildSolverModel(problem)
    model: highspy.Highs = problem.solverModel
    if effort.exact or model.getNumCol() <= UNREDUCED_COLUMNS_MAX:
        model.setOptionValue("presolve", "off")
    if effort.exact:
        model.setOptionValue("primal_feasibility_tolerance", EXACT_TOLERANCE)
        model.setOptionValue("mip_feasibility_tolerance", EXACT_TOLERANCE)
    return model


@dataclass(slots=True)
class _Run:
    """The layers of one program, being settled one after the other on one HiGHS model."""

    program: Program
    model: highspy.Highs
    best: Floats
    effort: Effort
    cut: bool = False

    def settle(self, objective: Objective) -> Reached:
        """Make one layer as good as the earlier ones allow, and lock in what it reached."""
        if not len(objective.columns):
            return Reached(0.0, 0.0)
        self._aim(objective)
        bound = self._relaxed(objective)
        gap = 0.0 if objective.exact else self.effort.gap
        if bound - objective.value(self.best) > max(TOLERANCE, gap) * max(1.0, abs(bound)):
            bound = min(bound, self._branch_and_bound(objective, gap))
        value = objective.value(self.best)
        self._lock(objective, value)
        return Reached(value, max(bound, value))

    def _aim(self, objective: Objective) -> None:
        costs = np.zeros(len(self.program.lower))
        costs[objective.columns] = -objective.coefficients
        self.model.changeColsCost(len(costs), np.arange(len(costs), dtype=np.int32), costs)

    def _relaxed(self, objective: Objective) -> float:
        """The LP bound; where its vertex is whole, that is the answer and no branching is needed."""
        self.model.setOptionValue("solve_relaxation", True)
        self._solve()
        if self.model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            self.cut = True
            return float(objective.coefficients.clip(min=0) @ self.program.upper[objective.columns])
        self._keep_if_better(objective)
        return -float(self.model.getInfo().objective_function_value)

    def _branch_and_bound(self, objective: Objective, gap: float) -> float:
        self.model.setOptionValue("mip_rel_gap", gap)
        self.model.setOptionValue("solve_relaxation", False)
        start = highspy.HighsSolution()
        start.col_value = self.best.tolist()
        self.model.setSolution(start)
        self._solve()
        status = self.model.getModelStatus()
        self.cut |= status == highspy.HighsModelStatus.kTimeLimit
        self._keep_if_better(objective)
        return -float(self.model.getInfo().mip_dual_bound)

    def _solve(self) -> None:
        """HiGHS counts its time limit anew for every run, while its clock goes on: each run gets what the others left."""
        left_s = self.effort.time_limit_s - self.model.getRunTime()
        self.model.setOptionValue("time_limit", max(0.0, left_s))
        self.model.run()

    def _keep_if_better(self, objective: Objective) -> None:
        found = np.array(self.model.getSolution().col_value, dtype=np.float64)
        if found.shape != self.best.shape:
            return
        found[self.program.integer] = np.where(np.abs(found - np.round(found)) <= TOLERANCE, np.round(found), found)[
            self.program.integer
        ]
        # A gain as small as what earlier layers may give up is none: once locked in, it would shut out points that are as good.
        least = objective.value(self.best)
        better = objective.value(found) > least + TOLERANCE * max(1.0, abs(least))
        if better and self.program.is_satisfied_by(found):
            self.best = found

    def _lock(self, objective: Objective, value: float) -> None:
        columns = objective.columns.astype(np.int32)
        slack = 10 * EXACT_TOLERANCE if self.effort.exact else TOLERANCE * max(1.0, abs(value))
        self.model.addRow(value - slack, highspy.kHighsInf, len(columns), columns, objective.coefficients)
