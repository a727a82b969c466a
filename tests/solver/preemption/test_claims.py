"""By what right jobs have others leave: each promise beside those that stand before it in the plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.milp.optimiser import Optimiser
from solver.plan.plan import Evict, Nominate
from solver.round import tiers
from solver.round.solve import solve
from tests.scenarios.loader import read_scenario
from tests.solver.laws.worlds import World, world_of

SCENARIOS = Path(__file__).parents[2] / "scenarios"

MADE_ROOM_FOR_BY_THE_SECOND = world_of("""
nodes n1=2 n2=3
class high 1
queue q 4
queue b 0
run low q 2@n1 for 100m
run lent b 3@n2 for 100m
wait first q 3 for 30m high
wait second q 1 for 20m high
""")
"""Once `low` has left for `second`, `first` lies inside the guarantee of q and takes what `lent` borrowed: not before."""

FAIR_ONCE_A_JOB_HAS_LEFT = world_of("""
nodes n1=3 n2=4 n3=3 n4=1
queue a 0 weight=2
queue b 1
queue c 3
queue d 1
run a0 a 1@n1 for 10m
run a1 a 1@n1 for 300m
run a2 a 1@n1 for 300m
run c0 c 3@n3 for 400m
run c1 c 4@n2 for 200m
run d0 d 1@n4 for 300m
wait b0 b 1 for 30m
wait a3 a 1 for 20m
""")
"""For b0 leaves a0, so a is served less than c is without c1, of which a3 takes one GPU. b0 would find its place on the rest."""

IN_VAIN_IF_ANOTHER_STAYS = world_of("""
nodes n1=4 n2=2 n3=1 n4=2 n5=3
queue a 0 weight=2
queue b 1
queue c 3
queue d 2
run a0 a 1@n2 for 10m
run a1 a 1@n4 for 300m
run a2 a 1@n4 for 300m
run c0 c 3@n5 for 600m
run c1 c 4@n1 for 500m
run c2 c 1@n3 for 50m
run d0 d 1@n2 for 300m cpu=50
wait b0 b 1 for 60m cpu=90
wait d1 d 1 for 30m
wait a3 a 2 for 20m
""")
"""For b0 leaves c2, for d1 a0, and for a3 c1, which leaves two GPUs more: b0 may have one. If d1 had the other, a0 would leave for
nobody; and it may not stay, since a3 takes for its fair share what a holds less.
"""

NAMED_FOR_ANOTHER = world_of("""
nodes n1=3 n2=2 n3=2 n4=4 n5=3 n6=2
queue q 5
queue a 0 weight=8
queue b 0
queue c 3 weight=4
queue d 2
run w b 3@n1 for 5m/40m
run x b 1@n2 for 8m/30m
run y b 1@n3 for 7m/20m
run c0 c 3@n5 for 600m
run c1 c 4@n4 for 500m
run a0 a 2@n6 for 300m
run d0 d 1@n2 for 300m cpu=79
run d1 d 1@n3 for 310m cpu=79
wait p1 q 2 for 34m cpu=60
wait p2 q 1 for 33m cpu=30
wait p3 q 2x1 for 32m
wait a3 a 2 for 20m
""")
"""p3 has what x and y leave, and x is named for p2, which has what w leaves. Then c1 leaves two GPUs more than a3 takes."""

OVERDUE = """
nodes n1=1 n2=3 n3=1
rules minGain={gain}
class kept 0 minRuntime=20m
class high 1
queue q 2
queue b 0
run own q 1@n1 for 100m
run lent b 3@n2 for {age}m kept
run old b 1@n3 for 200m high
wait late q 2 for 90m high
"""
"""A guarantee that has waited for more than an hour takes what is protected, and as much as it needs; but is one only if `own`
leaves as well, and may lie inside the fair share else.
"""


def _who_leaves(world: World, optimiser: Optimiser | None) -> dict[str, str | None]:
    plan = solve(world.snapshot, world.policy, optimiser)
    assert violations(world.snapshot, world.policy, plan) == ()
    return {step.job: step.beneficiary for step in plan.steps if isinstance(step, Evict)}


def test_a_job_comes_after_the_one_whose_victims_make_room_for_it() -> None:
    world = MADE_ROOM_FOR_BY_THE_SECOND
    plan = solve(world.snapshot, world.policy, optimise)
    assert [step.job for step in plan.steps if isinstance(step, Nominate)] == ["second", "first"]
    assert _who_leaves(world, optimise) == {"low": "second", "lent": "first"}


@pytest.mark.parametrize("optimiser", [optimise, None], ids=["program", "search"])
@pytest.mark.parametrize("most", [tiers.SPARED_PROMISES_MAX, 0], ids=["together", "apart"])
def test_no_job_stays_without_whose_leaving_another_has_no_right_to_what_it_takes(
    most: int, optimiser: Optimiser | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "SPARED_PROMISES_MAX", most)
    assert _who_leaves(FAIR_ONCE_A_JOB_HAS_LEFT, optimiser) == {"a0": "b0", "c1": "a3"}


@pytest.mark.parametrize("optimiser", [optimise, None], ids=["program", "search"])
@pytest.mark.parametrize("most", [tiers.SPARED_PROMISES_MAX, 0], ids=["together", "apart"])
def test_a_job_that_stays_leaves_no_other_to_leave_in_vain(
    most: int, optimiser: Optimiser | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "SPARED_PROMISES_MAX", most)
    assert _who_leaves(IN_VAIN_IF_ANOTHER_STAYS, optimiser) == {"a0": "d1", "c1": "a3"}


@pytest.mark.parametrize("most", [tiers.SPARED_PROMISES_MAX, 0], ids=["together", "apart"])
def test_who_would_leave_for_another_that_has_none_of_it_stays_as_well(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "SPARED_PROMISES_MAX", most)
    assert _who_leaves(NAMED_FOR_ANOTHER, optimise) == {"w": "p1", "c1": "a3"}


@pytest.mark.parametrize("optimiser", [optimise, None], ids=["program", "search"])
@pytest.mark.parametrize(
    ("age", "gain", "victims"),
    [
        pytest.param(5, 0.5, {"lent", "own"}, id="protected"),
        pytest.param(30, 0.8, {"lent", "own"}, id="too little gain"),
        pytest.param(30, 0.5, {"lent"}, id="neither"),
    ],
)
def test_an_overdue_guarantee_becomes_no_claim_to_a_fair_share_where_it_needs_to_be_overdue(
    age: int, gain: float, victims: set[str], optimiser: Optimiser | None
) -> None:
    assert _who_leaves(world_of(OVERDUE.format(age=age, gain=gain)), optimiser).keys() == victims


@pytest.mark.parametrize("most", [tiers.SPARED_PROMISES_MAX, 0], ids=["together", "apart"])
def test_no_job_stays_where_more_would_be_lent_than_may_be(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "SPARED_PROMISES_MAX", most)
    lent = read_scenario(SCENARIOS / "lendable-kept-free-although-a-guarantee-waits.yaml")
    assert _who_leaves(World(lent.snapshot, lent.policy), None) == {"borrowed": "entitled"}
