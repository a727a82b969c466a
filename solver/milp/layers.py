"""Layers of a program on HiGHS, one after the other, each locked in before the next.

A layer is settled as cheaply as it can be: by the best point so far if that already reaches the LP bound, by the LP if it comes
out whole, else by branch and bound from the best point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import highspy
import numpy as np

from solver.milp.optimiser import TOLERANCE, Effort, Objective, Program, Reached
from solver.model.arrays import Floats

EXACT_TOLERANCE = 1e-9
"""Of rows and of integrality in exact rounds. At HiGHS's own 1e-6 each layer could give up as much as two values may differ by and
be the same, and the next gain it: its bound would be out of reach."""


@dataclass(slots=True)
class Models:
    """HiGHS models of one program: the stated one and copies of it. They share its time limit, which `cut` says was met."""

    program: Program
    stated: highspy.Highs
    effort: Effort
    cut: bool = False
    _all: list[highspy.Highs] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._all.append(self.stated)

    def copy(self, *, reduced: bool) -> highspy.Highs:
        """Another one, as it was stated. `reduced`: presolved, to be branched over; else a linear one for many runs on end."""
        made = QuietHighs()
        made.passOptions(self.stated.getOptions())
        made.setOptionValue("presolve", "choose" if reduced else "off")
        made.setOptionValue("solve_relaxation", not reduced)
        made.passModel(self.stated.getLp())
        self._all.append(made)
        return made

    def run(self, model: highspy.Highs) -> bool:
        """Whether it came to its end. HiGHS counts a time limit anew for every run: each gets what the others left."""
        left_s = self.effort.time_limit_s - sum(each.getRunTime() for each in self._all)
        model.setOptionValue("time_limit", max(0.0, left_s))
        model.run()
        self.cut |= model.getModelStatus() == highspy.HighsModelStatus.kTimeLimit
        return bool(model.getModelStatus() == highspy.HighsModelStatus.kOptimal)

    def aim(
        self, model: highspy.Highs, objective: Objective, beside: Objective | None = None, weight: float = 0.0
    ) -> None:
        """Have a model make this layer as large as it can, and of another one what is worth so much."""
        costs = np.zeros(len(self.program.lower))
        costs[objective.columns] = -objective.coefficients
        if beside is not None:
            costs[beside.columns] -= weight * beside.coefficients
        model.changeColsCost(len(costs), np.arange(len(costs), dtype=np.int32), costs)

    def lock(self, model: highspy.Highs, objective: Objective, value: float) -> None:
        """The layer stays as good as this."""
        slack = 10 * EXACT_TOLERANCE if self.effort.exact else TOLERANCE * max(1.0, abs(value))
        columns = objective.columns.astype(np.int32)
        model.addRow(value - slack, highspy.kHighsInf, len(columns), columns, objective.coefficients)

    def branched(self, model: highspy.Highs) -> Floats | None:
        """The best point that branch and bound finds within a model's limits; None: there is none, or the time is over."""
        self.run(model)
        is_feasible = model.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        return self.point(model) if is_feasible and not self.cut else None

    def branched_anew(self, model: highspy.Highs) -> Floats | None:
        """The same; once more without presolve where the point is not as good as HiGHS says, which lost it on the way back.

        Seen with HiGHS 1.16.0 in a program of 38 columns (`tests/solver/milp/test_alike.py`).
        """
        found = self.branched(model)
        if found is None:
            return None
        said = float(model.getInfo().objective_function_value)
        if float(np.array(model.getLp().col_cost_) @ found) <= said + TOLERANCE * max(1.0, abs(said)):
            return found
        model.setOptionValue("presolve", "off")
        found = self.branched(model)
        model.setOptionValue("presolve", "choose")
        return found

    def point(self, model: highspy.Highs) -> Floats | None:
        """Where a model stands, what is all but whole made whole; None: nowhere."""
        found = np.array(model.getSolution().col_value, dtype=np.float64)
        if found.shape != self.program.lower.shape:
            return None
        whole = self.program.integer & (np.abs(found - np.round(found)) <= TOLERANCE)
        return np.where(whole, np.round(found), found)


GapOf = Callable[[Objective], float | None]
"""The relative gap at which branch and bound may stop in a layer; None: there is none in it."""


@dataclass(slots=True)
class Layers:
    """The layers being settled, one after the other. `best`: the best point so far.

    `improving`: what is found to be better takes its place; else it is only told how good that could be.
    """

    models: Models
    model: highspy.Highs
    best: Floats
    gap_of: GapOf
    improving: bool = True

    def settle(self, objective: Objective) -> Reached:
        """Make one layer as good as the earlier ones allow, and lock in what it reached."""
        if not len(objective.columns):
            return Reached(0.0, 0.0)
        if self.models.cut:
            return self.leave(objective)
        self.models.aim(self.model, objective)
        bound = self._relaxed(objective)
        gap = self.gap_of(objective)
        if gap is not None:
            self._keep_if_better(self.model, objective)
            if bound - self._value(objective) > max(TOLERANCE, gap) * max(1.0, abs(bound)):
                bound = min(bound, self._branch_and_bound(objective, gap))
        value = self._value(objective)
        self.models.lock(self.model, objective, value)
        return Reached(value, max(bound, value))

    def leave(self, objective: Objective) -> Reached:
        """What the best point reaches in a layer that is not looked into."""
        return Reached(self._value(objective), np.inf)

    def _value(self, objective: Objective) -> float:
        return objective.value(self.best)

    def _relaxed(self, objective: Objective) -> float:
        """The LP bound."""
        self.model.setOptionValue("solve_relaxation", True)
        if not self.models.run(self.model):
            return float(objective.coefficients.clip(min=0) @ self.models.program.upper[objective.columns])
        return -float(self.model.getInfo().objective_function_value)

    def _branch_and_bound(self, objective: Objective, gap: float) -> float:
        bound = self._branched(self.model, objective, gap)
        said = -float(self.model.getInfo().objective_function_value)
        if self.improving and not self.models.cut and _gains(said, self._value(objective)):
            # Its point breaks a row once all that is nearly whole is whole.
            anew = self.models.copy(reduced=True)
            self.models.aim(anew, objective)
            bound = min(bound, self._branched(anew, objective, gap))
        return bound

    def _branched(self, model: highspy.Highs, objective: Objective, gap: float) -> float:
        """Branch and bound from the best point; returns what it says can't be exceeded."""
        model.setOptionValue("mip_rel_gap", gap)
        model.setOptionValue("solve_relaxation", False)
        start = highspy.HighsSolution()
        start.col_value = self.best.tolist()
        model.setSolution(start)
        self.models.run(model)
        self._keep_if_better(model, objective)
        return -float(model.getInfo().mip_dual_bound)

    def _keep_if_better(self, model: highspy.Highs, objective: Objective) -> None:
        if not self.improving:
            return
        found = self.models.point(model)
        if found is None or not self.models.program.is_satisfied_by(found):
            return
        if _gains(objective.value(found), self._value(objective)):
            self.best = found


def _gains(value: float, least: float) -> bool:
    """Whether it is more. A gain as small as what earlier layers may give up is none: once locked in, it would shut out points
    that are as good.
    """
    return value > least + 2 * TOLERANCE * max(1.0, abs(least))


class QuietHighs(highspy.Highs):
    """From 1.16 on HiGHS prints a banner once its callbacks are set, which `highspy.Highs()` does before it can be told not to."""

    def enableCallbacks(self) -> None:  # noqa: N802  # by that name HiGHS calls it
        """As before, once it has been told."""
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()
