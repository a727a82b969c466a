"""The time limit is for all layers together, though HiGHS counts it anew for each of its runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from solver.milp import highs
from solver.milp.layers import Layers, Models
from solver.milp.optimiser import Effort, Objective, Program

LIMIT_S = 2.0
RUN_S = 0.7


class Metered:
    """A HiGHS model whose every run is said to take RUN_S."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._runs = 0
        self.limits: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def run(self) -> None:
        self.limits.append(self._model.getOptionValue("time_limit")[1])
        self._runs += 1
        self._model.run()

    def getRunTime(self) -> float:  # noqa: N802  (HiGHS's name)
        return self._runs * RUN_S


def test_each_run_gets_what_the_others_left() -> None:
    # The LP bound of "3 of 5 halves" is not whole, so that every layer also branches.
    count = 5
    program = Program(
        lower=np.zeros(count),
        upper=np.ones(count),
        integer=np.ones(count, dtype=np.bool_),
        row_lower=np.array([-np.inf]),
        row_upper=np.array([5.0]),
        entry_row=np.zeros(count, dtype=np.int64),
        entry_column=np.arange(count),
        entry_value=np.full(count, 2.0),
        objectives=tuple(Objective(f"layer-{n}", True, np.arange(count), np.arange(1.0, count + 1)) for n in range(3)),
    )
    effort = Effort(gap=0.0, time_limit_s=LIMIT_S, seed=0)
    model = Metered(highs.loaded(program, effort))
    models = Models(program, model, effort)  # type: ignore[arg-type]
    run = Layers(models, models.stated, np.zeros(count), lambda _: 0.0)
    for objective in program.objectives:
        run.settle(objective)
    assert len(model.limits) >= 4
    assert model.limits == [max(0.0, LIMIT_S - RUN_S * before) for before in range(len(model.limits))]
