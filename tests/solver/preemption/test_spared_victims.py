"""Who was chosen to leave and is not needed stays: in rounds of few promises, and of so many that each is tried by itself."""

from __future__ import annotations

import pytest

from solver.checker.check import violations
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
