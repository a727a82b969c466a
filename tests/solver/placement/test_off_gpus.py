"""Work without GPUs leaves the cores beside GPUs to those that can still use these, also where only a part of a GPU is left."""

from __future__ import annotations

from solver.plan.plan import Bind
from solver.round.solve import solve
from tests.solver.laws.worlds import world_of


def test_cores_beside_a_divided_gpu_are_not_those_of_gpus_in_use() -> None:
    """Best fit would choose n1, whose only GPU has half of it left; that of n2 is in use as a whole."""
    world = world_of(
        "nodes n1=1 n2=1; rules shared; queue b 2; run half b 0.5@n1/0 for 50m cpu=30;"
        "run whole b 1@n2 for 50m cpu=20; wait c b 0 for 9m cpu=10"
    )
    plan = solve(world.snapshot, world.policy, None)
    (start,) = (step for step in plan.steps if isinstance(step, Bind))
    assert {task.node for task in start.tasks} == {"n2"}
