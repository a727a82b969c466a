"""For which plans what a program says of layers holds."""

from __future__ import annotations

import numpy as np
import pytest

from solver.checker.check import violations
from solver.milp.certificate import in_step, layer_results
from solver.milp.cut_loop import ByProgram
from solver.milp.highs import optimise
from solver.milp.optimiser import Effort, Program, Reached, Solution
from solver.model.arrays import Floats
from solver.round.solve import solve
from tests.solver.laws.worlds import world_of

LOOSE = (0.0, 0.0)
SOLUTION = Solution(np.zeros(0), (Reached(-2.0, -1.0), Reached(-4.0, -3.0)), "somebody")
"""Two layers: what it reached in them, and the most that could be given what it reached before."""


@pytest.mark.parametrize(
    ("reached", "layers", "bound"),
    [
        pytest.param(-2.0, 3, -3.0, id="as much"),
        pytest.param(-2.0 - 1e-9, 3, -3.0, id="as much but for rounding"),
        pytest.param(-1.5, 3, -3.0, id="more: among fewer plans nothing is better"),
        pytest.param(-2.5, 1, 0.0, id="less: what it gave up may serve the next layer"),
    ],
)
def test_a_bound_holds_for_plans_that_have_no_less_in_any_layer_before(
    reached: float, layers: int, bound: float
) -> None:
    values = (reached, -4.0)
    assert in_step(values, SOLUTION) == layers
    first, second = layer_results(values, (), LOOSE, SOLUTION, gap=0.0)
    assert (first.bound, second.bound) == (-1.0, bound)


def short_of(program: Program, start: Floats, effort: Effort) -> Solution | None:
    """An optimiser that is right about the point, and wrong about the layers: it says that nothing can be in any."""
    found = optimise(program, start, effort)
    return found and Solution(
        found.values, tuple(Reached(min(0.0, known.value), 0.0) for known in found.reached), "liar"
    )


def test_bounds_of_an_optimiser_are_not_kept_where_the_round_refutes_them() -> None:
    world = world_of("nodes n1=4 n2=4; queue a 8; wait v a 1x4 for 30m; wait w a 1x3 for 20m; wait x a 1x4 for 10m")
    told = solve(world.snapshot, world.policy, short_of)
    assert violations(world.snapshot, world.policy, told) == ()
    first = told.certificate.layers[0]
    assert first.bound >= first.value > 0


def test_bounds_that_a_plan_exceeds_stay_where_its_program_does_not_admit_it() -> None:
    """There the program is wrong, not the optimiser, which the checker is to tell."""
    none, nobody = np.zeros(0), np.zeros(0, dtype=np.int64)
    program = Program(np.zeros(1), np.ones(1), np.ones(1, dtype=bool), none, none, nobody, nobody, none, ())
    by = ByProgram(program, SOLUTION, ())
    assert by.without_refuted_bounds((0.0, -4.0), lambda: np.full(1, 2.0)) == by
    refuted = by.without_refuted_bounds((0.0, -4.0), lambda: np.ones(1)).solution
    assert refuted is not None
    assert [known.bound for known in refuted.reached] == [np.inf, np.inf]
    later = by.without_refuted_bounds((-1.0, -2.0), lambda: np.ones(1)).solution
    assert later is not None
    assert [known.bound for known in later.reached] == [-1.0, np.inf]


def test_what_a_gang_is_promised_beyond_its_least_size_counts_as_growth() -> None:
    """It was counted as demand that came first, and so was above what could be had of that."""
    world = world_of(
        "nodes n1=4 n2=4 n3=4; class low -1; queue a 8 max=8; run e a 1-3x4@n1,n2 for 600m low; wait w a 1-2x1 for 30m"
    )
    plan = solve(world.snapshot, world.policy, None)
    assert violations(world.snapshot, world.policy, plan) == ()
    values = {layer.name: layer.value for layer in plan.certificate.layers}
    assert values["entitled.standard.0"] == values["entitled.standard.0.growth"] > 0
