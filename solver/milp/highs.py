"""Runs a program with HiGHS in this process: layer by layer, each locked in before the next.

HiGHS gets the model once and keeps it between layers, so that each layer starts from the last one's basis. Small programs are
branched over in every layer, larger ones in stages (see there).
One thread, a fixed seed and a stop by gap make the answer reproducible; the time limit is a safety net, and a solution it cut short
says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import highspy
import numpy as np

from solver.milp.highs_model import model_of
from solver.milp.layers import EXACT_TOLERANCE, Layers, Models, QuietHighs
from solver.milp.optimiser import Effort, Objective, Program, Reached, Solution
from solver.milp.stages import BRANCHING, Stages
from solver.model.arrays import Floats

SOLVER = f"HiGHS {QuietHighs().version()}"

ModelOf = Callable[[Program], highspy.HighsLp]
"""How a program becomes a model of HiGHS: `highs_model` and `pulp_model` have one each, which come out the same."""

ALL_BRANCHED_COLUMNS_MAX = 250
"""Programs of so few columns are branched over in every layer."""

BOUNDS_BRANCHED_COLUMNS_MAX = 1_000
"""Of programs of so few columns exact layers are branched over where bounds are asked; of larger ones bounds are linear."""

ALL_BOUNDED_COLUMNS_MAX = 5_000
"""Of programs of so few columns bounds are looked for in every layer, of larger ones in the exact layers."""

NODES_MAX = 100
"""Nodes of one layer's branching where bounds are all that is asked. Unlike a clock, it stops at the same answer every time."""

PRIMAL_SIMPLEX = 4
"""Where a layer ends its point satisfies what is locked, too: the next begins there, and only has to look for better ones."""


def optimise(program: Program, start: Floats, effort: Effort, stated: ModelOf = model_of) -> Solution | None:
    """The Optimiser that runs in process. None only where even the start does not satisfy the program."""
    if not program.is_satisfied_by(start):
        return None
    models = Models(program, loaded(program, effort, stated), effort)
    if effort.nodes_max:
        return _layer_by_layer(program, start, models)
    whole = bool(program.integer.any())
    size = len(program.lower) if (whole or effort.bounding) and not effort.exact else 0
    best = Stages(models).improve(start) if size > ALL_BRANCHED_COLUMNS_MAX and not effort.bounding else start
    run = Layers(models, models.stated, best, partial(_gap, effort, size, whole), improving=not effort.bounding)
    reached = tuple(
        run.settle(objective) if _is_looked_into(effort, size, objective) else run.leave(objective)
        for objective in program.objectives
    )
    return Solution(run.best, reached, SOLVER, models.cut)


def _layer_by_layer(program: Program, start: Floats, models: Models) -> Solution | None:
    """Each layer branched over, presolved, to so many nodes; None where one finds nothing, or its point breaks a row."""
    model, point, bounds = models.copy(reduced=True), start, list[float]()
    for name, value in {
        **BRANCHING,
        "mip_max_nodes": models.effort.nodes_max,
        "mip_rel_gap": models.effort.gap,
    }.items():
        model.setOptionValue(name, value)
    for objective in program.objectives:
        models.aim(model, objective)
        _begin_at(model, point)
        found = models.branched_anew(model)
        if found is None:
            return None
        point = found
        bounds.append(-float(model.getInfo().mip_dual_bound))
        models.lock(model, objective, objective.value(point))
    point = np.where(program.integer, np.round(point), point)
    if not program.is_satisfied_by(point):
        return None
    values = [objective.value(point) for objective in program.objectives]
    reached = tuple(Reached(value, max(value, bound)) for value, bound in zip(values, bounds, strict=True))
    return Solution(point, reached, SOLVER, models.cut)


def _begin_at(model: highspy.Highs, point: Floats) -> None:
    start = highspy.HighsSolution()
    start.col_value = point.tolist()
    model.setSolution(start)


def _is_looked_into(effort: Effort, size: int, objective: Objective) -> bool:
    """No answer depends on layers that are not branched over: only a caller that asks for bounds has them looked into."""
    if effort.bounding:
        return objective.exact or size <= ALL_BOUNDED_COLUMNS_MAX
    return size <= ALL_BRANCHED_COLUMNS_MAX


def _gap(effort: Effort, size: int, whole: bool, objective: Objective) -> float | None:
    if effort.bounding:
        return 0.0 if whole and objective.exact and size <= BOUNDS_BRANCHED_COLUMNS_MAX else None
    if size > ALL_BRANCHED_COLUMNS_MAX:
        return None
    return 0.0 if objective.exact else effort.gap


def loaded(program: Program, effort: Effort, stated: ModelOf = model_of) -> highspy.Highs:
    """The program in HiGHS, without an objective. Raises ValueError for one that HiGHS refuses: a row with a column twice, say."""
    model = QuietHighs()
    model.setOptionValue("threads", 1)
    model.setOptionValue("random_seed", effort.seed)
    model.setOptionValue("mip_rel_gap", effort.gap)
    model.setOptionValue("time_limit", effort.time_limit_s)
    if model.passModel(stated(program)) == highspy.HighsStatus.kError:
        raise ValueError("HiGHS refuses the program")
    # With presolve a layer may come out better than any answer can be, by two in a million, and the next one with it; linear
    # programs, each from the basis of the last, would begin anew.
    model.setOptionValue("presolve", "off")
    if effort.bounding:
        model.setOptionValue("simplex_strategy", PRIMAL_SIMPLEX)
        model.setOptionValue("mip_max_nodes", NODES_MAX)
    if effort.exact:
        model.setOptionValue("primal_feasibility_tolerance", EXACT_TOLERANCE)
        model.setOptionValue("mip_feasibility_tolerance", EXACT_TOLERANCE)
    return model
