"""For which plans what a program says of layers holds."""

from __future__ import annotations

import numpy as np
import pytest

from solver.milp.certificate import in_step, layer_results
from solver.milp.optimiser import Reached, Solution

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
