"""A round tells first what it does, and then why it does no more. Both parts say the same."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.checker.check import conclusion_violations, deed_violations, violations
from solver.milp.highs import optimise
from solver.milp.optimiser import Optimiser
from solver.model.document import encode
from solver.model.snapshot import Snapshot
from solver.plan.plan import Inadmissible, Reserve, Unreserve, Waits
from solver.plan.reasons import QuotaChanges
from solver.policy.policy import Policy
from solver.round.explanation import RoundExplanation
from solver.round.solve import decide, solve
from tests.drawn import worlds
from tests.scenarios.loader import read_scenario
from tests.scenarios.test_scenarios import SCENARIOS
from tests.solver.worlds import policies, snapshots


def hold_both_parts_together(snapshot: Snapshot, policy: Policy, optimiser: Optimiser | None) -> None:
    answer = decide(snapshot, policy, optimiser)
    deed, plan = answer.deed(), answer.plan()
    assert deed.steps == tuple(step for step in plan.steps if not isinstance(step, Reserve | Unreserve))
    assert [type(verdict) for verdict in deed.verdicts] == [type(verdict) for verdict in plan.verdicts]
    waiting = [said for said in deed.verdicts if isinstance(said, Waits)]
    # Who is refused until another quota holds is told so at once, as who is refused for ever.
    reasons = [reason for said in waiting for reason in said.reasons]
    assert all(isinstance(reason, QuotaChanges) and reason.refused for reason in reasons)
    assert all(said.estimate is None for said in waiting)
    others = [said for said in deed.verdicts if not isinstance(said, Waits)]
    assert others == [said for said in plan.verdicts if not isinstance(said, Waits)]
    assert deed_violations(snapshot, policy, deed) == ()
    assert conclusion_violations(snapshot, policy, plan) == ()


@worlds(100)
@given(snapshots(), policies(), st.booleans())
def test_of_any_world_both_parts_say_the_same(snapshot: Snapshot, policy: Policy, by_program: bool) -> None:
    optimiser = optimise if by_program else None
    hold_both_parts_together(snapshot, policy, optimiser)
    plan = solve(snapshot, policy, optimiser)
    assert violations(snapshot, policy, plan) == ()
    assert encode(plan) == encode(decide(snapshot, policy, optimiser).plan())


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_of_every_scenario_too(path: Path) -> None:
    scenario = read_scenario(path)
    hold_both_parts_together(scenario.snapshot, scenario.policy, None)


def test_what_a_round_does_is_known_before_anything_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def explained(*_: object) -> None:
        raise AssertionError("nobody asked why")

    for part in ("verdicts", "reservations"):
        monkeypatch.setattr(RoundExplanation, part, explained)
    scenario = next(map(read_scenario, SCENARIOS))
    assert decide(scenario.snapshot, scenario.policy, None).deed().snapshot == scenario.snapshot.digest


def test_a_job_that_can_never_run_is_refused_in_the_first_part_already() -> None:
    said = (
        decide(scenario.snapshot, scenario.policy, None).deed().verdicts for scenario in map(read_scenario, SCENARIOS)
    )
    assert any(isinstance(verdict, Inadmissible) and verdict.reasons for verdicts in said for verdict in verdicts)


def test_what_a_plan_keeps_free_is_judged_in_the_second_part() -> None:
    """A document of the policy that is kept by nothing."""
    path = next(path for path in SCENARIOS if path.stem == "declared-reservation-evicts-nobody")
    scenario = read_scenario(path)
    plan = solve(scenario.snapshot, scenario.policy, None)
    steps = tuple(step for step in plan.steps if not isinstance(step, Reserve))
    assert steps != plan.steps
    bare = msgspec.structs.replace(plan, steps=steps)
    assert deed_violations(scenario.snapshot, scenario.policy, bare) == ()
    assert [known.rule for known in conclusion_violations(scenario.snapshot, scenario.policy, bare)] == ["S10"]
