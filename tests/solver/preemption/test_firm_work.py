"""Work that is not preemptible is promised what is left in the end, inside its guarantee beside other such work alone."""

from __future__ import annotations

from solver.checker.check import violations
from solver.plan.plan import Evict, Nominate
from solver.round.solve import solve
from tests.solver.laws.worlds import world_of


def test_what_a_later_eviction_leaves_is_promised_to_work_that_is_not_preemptible() -> None:
    """For w leaves a job of four GPUs. f comes before w, and its queue holds its guarantee with work that f does not evict."""
    world = world_of(
        "nodes n1=4 n2=2; class top 1; class firm 0 fixed; class mid 0; queue a 1; queue b 0; queue c 2;"
        "run big b 4@n1 for 90m mid; run p c 2@n2 for 80m mid;"
        "wait w0 a 6x1 for 9m top; wait w a 1 for 8m mid; wait f c 1 for 7m firm"
    )
    plan = solve(world.snapshot, world.policy, None)
    assert violations(world.snapshot, world.policy, plan) == ()
    assert {step.job for step in plan.steps if isinstance(step, Evict)} == {"big"}
    assert {step.job for step in plan.steps if isinstance(step, Nominate)} == {"w", "f"}
