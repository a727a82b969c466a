"""A good point of a large program without branching over all of it: relax and fix.

One exact layer after the other is branched over while the served columns of those below are parts of a whole, and those above stay
as they were chosen (Pochet and Wolsey, Production Planning by Mixed Integer Programming, 2006, section 3.6).
docs/solver-large.md says what it gains and takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import highspy
import numpy as np

from solver.milp.layers import Models
from solver.milp.optimiser import TOLERANCE, Objective
from solver.model.arrays import Floats, Mask

GAP = 1e-4
"""Branch and bound stops in a stage this close, relatively, to the most that it could reach."""

AHEAD = 0.01
"""GPUs that all of the next layer together counts in a stage: of points as good in their own layer the one that leaves it most."""

NODES_MAX = 20
"""Nodes of one stage. Nearly all end at the first one."""

BRANCHING = {
    "mip_max_nodes": NODES_MAX,
    "mip_rel_gap": GAP,
    "mip_heuristic_run_root_reduced_cost": False,
    "mip_allow_restart": False,
}
"""What is switched off takes more time at the first node than what it finds is worth (docs/solver-large.md)."""


@dataclass(slots=True)
class Stages:
    """Improves on a point of a program in its exact layers.

    `served`: whole columns that count in a layer; `flows`: those that say where these go.
    """

    models: Models
    layers: tuple[Objective, ...] = field(init=False)
    served: Mask = field(init=False)
    flows: Mask = field(init=False)

    def __post_init__(self) -> None:
        program = self.models.program
        self.layers = tuple(known for known in program.objectives if known.exact and len(known.columns))
        counted = np.zeros(len(program.lower), dtype=bool)
        for objective in program.objectives:
            counted[objective.columns] = True
        self.served = counted & program.integer
        self.flows = self._tied(self.served) & ~self.served

    def improve(self, best: Floats) -> Floats:
        """A point that is better in the first exact layer in which they differ, or the same."""
        proven = self._proven(best)
        found = self._staged(best, proven) if proven < len(self.layers) else None
        return best if found is None or not self._is_better(found, best, proven) else found

    def _proven(self, best: Floats) -> int:
        """How many layers, from the first on, are as good as the linear program allows."""
        model = self.models.copy(reduced=False)
        for number, objective in enumerate(self.layers):
            self.models.aim(model, objective)
            value = objective.value(best)
            if not self.models.run(model) or -model.getInfo().objective_function_value - value > _slack(value):
                return number
            self.models.lock(model, objective, value)
        return len(self.layers)

    def _staged(self, best: Floats, proven: int) -> Floats | None:
        """The layers from here on, in stages; None where one of them finds nothing."""
        program, model = self.models.program, self.models.copy(reduced=True)
        for name, value in BRANCHING.items():
            model.setOptionValue(name, value)
        whole, fixed = program.integer & ~self.served & ~self.flows, np.zeros(len(program.lower), dtype=bool)
        make_whole(model, ~whole, whole=False)
        for objective in self.layers[:proven]:
            self.models.lock(model, objective, objective.value(best))
            whole |= self._made_whole(model, whole, self._served_of(objective))
        point = None
        for objective, following in zip(self.layers[proven:], (*self.layers[proven + 1 :], None), strict=True):
            mine = self._served_of(objective)
            whole |= self._made_whole(model, whole, mine if following else self.served | self.flows)
            self.models.aim(model, objective, following, AHEAD / self._most(following) if following else 0.0)
            point = self.models.branched(model)
            if point is None:
                return None
            self.models.lock(model, objective, objective.value(point))
            _fix(model, mine & ~fixed, point)
            fixed |= mine
        return None if point is None else self._rounded(point)

    def _most(self, objective: Objective) -> float:
        """What nothing can exceed in a layer; at least one GPU."""
        return max(1.0, float(objective.coefficients.clip(min=0) @ self.models.program.upper[objective.columns]))

    def _made_whole(self, model: highspy.Highs, whole: Mask, served: Mask) -> Mask:
        """These served columns and where they go are whole from now on."""
        more = (served | (self._tied(served) & self.flows)) & ~whole
        make_whole(model, more, whole=True)
        return more

    def _served_of(self, objective: Objective) -> Mask:
        """Those that share a row with a column that counts in this layer."""
        program = self.models.program
        counted = np.zeros(len(program.lower), dtype=bool)
        counted[objective.columns] = True
        return self._beside(counted, np.ones(len(program.row_lower), dtype=bool)) & self.served

    def _tied(self, columns: Mask) -> Mask:
        """Whole columns that follow from these: they share an equation."""
        program = self.models.program
        return self._beside(columns, program.row_lower == program.row_upper) & program.integer

    def _beside(self, columns: Mask, rows: Mask) -> Mask:
        """All columns of those rows that have one of these."""
        program, sharing = self.models.program, np.zeros(len(rows), dtype=bool)
        sharing[program.entry_row[columns[program.entry_column]]] = True
        found = np.zeros(len(columns), dtype=bool)
        found[program.entry_column[(sharing & rows)[program.entry_row]]] = True
        return found

    def _rounded(self, point: Floats) -> Floats | None:
        program = self.models.program
        found = np.where(program.integer, np.round(point), point)
        return found if program.is_satisfied_by(found) else None

    def _is_better(self, found: Floats, best: Floats, proven: int) -> bool:
        for objective in self.layers[proven:]:
            more = objective.value(found) - objective.value(best)
            if abs(more) > _slack(objective.value(best)):
                return more > 0
        return False


def make_whole(model: highspy.Highs, columns: Mask, *, whole: bool) -> None:
    """These columns may take whole values alone, or any."""
    kind = highspy.HighsVarType.kInteger if whole else highspy.HighsVarType.kContinuous
    numbers = np.flatnonzero(columns).astype(np.int32)
    model.changeColsIntegrality(len(numbers), numbers, np.full(len(numbers), kind))


def _fix(model: highspy.Highs, columns: Mask, point: Floats) -> None:
    numbers = np.flatnonzero(columns).astype(np.int32)
    values = np.round(point[numbers])
    model.changeColsBounds(len(numbers), numbers, values, values)


def _slack(value: float) -> float:
    return 2 * TOLERANCE * max(1.0, abs(value))
