"""A good point of a large program without branching over all of it.

One linear program after the other settles the layers, each on the optimal face of those before; what that leaves whole is fixed,
and branch and bound decides the few columns that it leaves between whole numbers, together with those of the layers that are as
good as they can be already. docs/solver.md says what it gains and takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import highspy
import numpy as np

from solver.program.layers import Layers, Models
from solver.program.optimiser import TOLERANCE, Objective
from solver.world.arrays import Floats, Mask

GAP = 0.005
"""Branch and bound stops in a layer this close, relatively, to the most that could be reached beside what is fixed."""

NONZERO = 1e-7
"""A reduced cost or a dual value above this holds its column or row where it is."""


@dataclass(slots=True)
class Dive:
    """Improves on a point of a program in its exact layers."""

    models: Models
    layers: tuple[Objective, ...] = field(init=False)
    takers: Mask = field(init=False)

    def __post_init__(self) -> None:
        program = self.models.program
        self.layers = tuple(known for known in program.objectives if known.exact and len(known.columns))
        self.takers = np.zeros(len(program.lower), dtype=bool)
        for objective in program.objectives:
            self.takers[objective.columns] = True
        self.takers &= program.integer

    def improve(self, best: Floats) -> Floats:
        """A point that is better in the first exact layer in which they differ, or the same."""
        proven = self._proven(best)
        found = self._beside(best, proven) if proven < len(self.layers) else None
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

    def _beside(self, best: Floats, proven: int) -> Floats | None:
        """A point near the optimum of the linear programs beside the proven layers; None where there is none."""
        relaxed = self._relaxed(best, proven)
        if relaxed is None:
            return None
        model = self._locked(best, proven, reduced=True)
        whole = np.abs(relaxed - np.round(relaxed)) <= TOLERANCE
        fixed = np.flatnonzero(self.takers & whole & ~self._takers_of(self.layers[:proven])).astype(np.int32)
        model.changeColsBounds(len(fixed), fixed, np.round(relaxed[fixed]), np.round(relaxed[fixed]))
        near = Layers(self.models, model, None, lambda _: GAP)
        for objective in self.layers[proven:]:
            near.settle(objective)
            if near.best is None:
                break
        return near.best

    def _relaxed(self, best: Floats, proven: int) -> Floats | None:
        """The linear program's answer to all layers, each on the optimal face of those before it."""
        model, found = self._locked(best, proven, reduced=False), None
        for objective in self.models.program.objectives:
            if len(objective.columns):
                self.models.aim(model, objective)
                if not self.models.run(model):
                    break
                found = np.array(model.getSolution().col_value)
                _hold_face(model, found)
        return found

    def _locked(self, best: Floats, proven: int, *, reduced: bool) -> highspy.Highs:
        model = self.models.copy(reduced=reduced)
        for objective in self.layers[:proven]:
            self.models.lock(model, objective, objective.value(best))
        return model

    def _takers_of(self, layers: Sequence[Objective]) -> Mask:
        """Whole columns that share a row with one that counts in these layers."""
        program = self.models.program
        counted, sharing = np.zeros(len(program.lower), dtype=bool), np.zeros(len(program.row_lower), dtype=bool)
        for objective in layers:
            counted[objective.columns] = True
        sharing[program.entry_row[counted[program.entry_column]]] = True
        found = np.zeros(len(program.lower), dtype=bool)
        found[program.entry_column[sharing[program.entry_row]]] = True
        return found & program.integer

    def _is_better(self, found: Floats, best: Floats, proven: int) -> bool:
        for objective in self.layers[proven:]:
            more = objective.value(found) - objective.value(best)
            if abs(more) > _slack(objective.value(best)):
                return more > 0
        return False


def _hold_face(model: highspy.Highs, point: Floats) -> None:
    """Keep to points that are as good: what has a price stays as it is."""
    solution = model.getSolution()
    priced = np.flatnonzero(np.abs(solution.col_dual) > NONZERO).astype(np.int32)
    model.changeColsBounds(len(priced), priced, point[priced], point[priced])
    activity = np.array(solution.row_value)
    for row in np.flatnonzero(np.abs(solution.row_dual) > NONZERO).tolist():
        model.changeRowBounds(row, activity[row], activity[row])


def _slack(value: float) -> float:
    return 2 * TOLERANCE * max(1.0, abs(value))
