"""A gang lends tasks to several jobs in one round: it shrinks once, for the first of them, by whose right all of them leave."""

from __future__ import annotations

from solver.checker.check import violations
from solver.plan.plan import Nominate, Shrink
from solver.round.solve import solve
from tests.solver.laws.worlds import World, world_of


def shrunk_and_promised(world: World) -> tuple[list[tuple[str, int, str | None]], set[str]]:
    plan = solve(world.snapshot, world.policy, None)
    assert violations(world.snapshot, world.policy, plan) == ()
    shrinks = [
        (str(step.job), len(step.tasks), step.beneficiary and str(step.beneficiary))
        for step in plan.steps
        if isinstance(step, Shrink)
    ]
    return shrinks, {step.job for step in plan.steps if isinstance(step, Nominate)}


def test_a_gang_shrinks_for_jobs_of_different_queues() -> None:
    world = world_of(
        "nodes n1=6; queue a 1; queue c 2; queue b 0; run e b 2-6x1@n1,n1,n1,n1,n1,n1 for 50m;"
        "wait w1 a 1 for 9m; wait w2 c 1 for 8m; wait w3 c 1 for 7m"
    )
    assert shrunk_and_promised(world) == ([("e", 3, "w1")], {"w1", "w2", "w3"})


def test_no_more_leaves_than_the_first_could_have_taken() -> None:
    """Of the gang two tasks lie beyond the guarantee of x: only these may leave for a job from elsewhere, whoever uses them."""
    world = world_of(
        "nodes n1=4; queue x 2; queue x1 in x 0; queue x2 in x 2; queue y 2; run e x1 1-4x1@n1,n1,n1,n1 for 50m;"
        "wait w1 y 1 for 90m; wait w2 x2 1 for 80m; wait w3 x2 1 for 70m"
    )
    shrinks, promised = shrunk_and_promised(world)
    assert shrinks == [("e", 2, "w1")]
    assert promised == {"w1", "w2"}


def test_what_a_gang_can_not_do_without_is_not_lent() -> None:
    world = world_of(
        "nodes n1=4; queue a 4; queue b 0; run e b 3-4x1@n1,n1,n1,n1 for 50m; wait w1 a 1 for 9m; wait w2 a 1 for 8m"
    )
    shrinks, promised = shrunk_and_promised(world)
    assert len(shrinks) <= 1
    assert "w1" in promised
