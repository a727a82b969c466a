"""Who was chosen to leave and is not needed stays: in rounds of few promises, and of so many that each is tried by itself."""

from __future__ import annotations

import pytest

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.plan.plan import Evict, Nominate
from solver.round import tiers
from solver.round.solve import solve
from tests.solver.laws.worlds import world_of

MORE_THAN_NEEDED = world_of("""
nodes n1=2 n2=3
class high 1
class mid 0
queue b -
queue x 3
queue x1 in x 3 weight=2
queue x2 in x 0 weight=3
run j4 b 2-3x1@n2,n1 for 174.4m high
run j5 x2 2@n2 for 513.5m mid
run j6 x2 1@n1 for 260.6m mid
wait j3 x1 2 for 293.3m mid
wait j1 x1 1 for 265.1m high
wait j2 x1 1-2x1 for 40.2m high
wait j0 x1 2 for 1m mid
""")
"""For j1 leaves j6, and then j5 for a job that takes one of its two GPUs."""


@pytest.mark.parametrize("most", [tiers.SPARED_PROMISES_MAX, 0], ids=["together", "apart"])
def test_a_job_stays_where_another_leaves_more_than_is_used(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "SPARED_PROMISES_MAX", most)
    plan = solve(MORE_THAN_NEEDED.snapshot, MORE_THAN_NEEDED.policy, None)
    assert {step.job for step in plan.steps if isinstance(step, Evict)} == {"j5"}
    assert "j1" in {step.job for step in plan.steps if isinstance(step, Nominate)}
    assert violations(MORE_THAN_NEEDED.snapshot, MORE_THAN_NEEDED.policy, plan) == ()


AT_A_MAX = world_of("""
nodes n2=5 n3=6 n4=3
class high 1
class mid 0
class top 2
queue b -
queue x - max=8
queue x1 in x -
queue x2 in x 0
queue x3 in x 0
run j4 x3 3@n4 for 464.4m top
run j7 x3 4@n3 for 296.7m top
run j5 x2 2x1@n3,n3 for 138.5m mid
wait j1 b 2x2 for 106.1m top
wait j2 x1 1 for 149.2m mid
""")
"""There are GPUs for both that wait, and queue x is above its max until j5 has left."""


def test_nobody_stays_without_whose_leaving_a_job_would_start_above_a_max() -> None:
    plan = solve(AT_A_MAX.snapshot, AT_A_MAX.policy, optimise)
    assert violations(AT_A_MAX.snapshot, AT_A_MAX.policy, plan) == ()
    assert {step.job for step in plan.steps if isinstance(step, Evict)} == {"j5"}
