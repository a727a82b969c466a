"""A round's questions to the program share one time limit; what is left of the round then is greedy, checked, and replays."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from hack.rounds.cases import with_limit
from hack.rounds.world import World
from reconciler.control.optimiser import KillableOptimiser
from reconciler.control.optimiser.budget import LEAST_S, RoundBudget
from reconciler.control.optimiser.limits import margin_s
from reconciler.control.recording import solver_with
from reconciler.control.replay import replay
from reconciler.model.clock import VirtualClock
from reconciler.protocols.rounds import RoundRecord
from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.milp.optimiser import Effort, Program, Solution
from solver.model.arrays import Floats
from solver.round.solve import solve
from tests.reconciler.control.optimiser.test_parent import PROGRAM, START

EFFORT = Effort(gap=0.0, time_limit_s=10.0, seed=0)
ASKS_TWICE = World(256, pending=60, full=0.95)


class Taking:
    """Takes so many seconds of a clock for each question, and finds nothing."""

    def __init__(self, clock: VirtualClock, *seconds: int) -> None:
        self._clock = clock
        self._seconds = list(seconds)
        self.limits: list[float] = []

    def __call__(self, program: Program, start: Floats, effort: Effort) -> Solution | None:
        self.limits.append(effort.time_limit_s)
        self._clock.advance(1_000 * self._seconds.pop(0))
        return None


def test_each_question_has_what_the_earlier_ones_left() -> None:
    clock = VirtualClock()
    slow = Taking(clock, 4, 4, 4)
    of_round = RoundBudget(slow, clock)
    for _ in range(5):
        assert of_round(PROGRAM, START, EFFORT) is None
        clock.advance(60_000)  # What the round does between two questions is not the program's.
    assert slow.limits == [9.5, 5.5, 1.5]


@pytest.mark.parametrize(("limit_s", "left_s"), [(10.0, 0.5), (1.0, 0.1), (0.5, 0.1), (0.2, 0.04)])
def test_a_margin_is_a_twentieth_or_as_late_as_one_is_woken_but_at_most_a_fifth(limit_s: float, left_s: float) -> None:
    assert margin_s(limit_s) == pytest.approx(left_s)


def test_what_would_only_get_the_child_killed_is_not_asked() -> None:
    clock = VirtualClock()
    slow = Taking(clock, 10)
    of_round = RoundBudget(slow, clock)
    for _ in range(2):
        of_round(PROGRAM, START, replace(EFFORT, time_limit_s=10 + margin_s(10) + LEAST_S / 2))
    assert len(slow.limits) == 1


def test_each_round_has_a_budget_of_its_own() -> None:
    clock = VirtualClock()
    slow = Taking(clock, 20, 20)
    solve_once = solver_with(slow, clock)
    for _ in range(2):
        solve_once(ASKS_TWICE.snapshot, with_limit(ASKS_TWICE.policy, 10))
    assert slow.limits == [9.5, 9.5]


def test_a_budget_that_is_handed_to_several_rounds_begins_anew_with_each() -> None:
    clock = VirtualClock()
    slow = Taking(clock, 20, 20)
    budget = RoundBudget(slow, clock)
    for _ in range(2):
        solve(ASKS_TWICE.snapshot, with_limit(ASKS_TWICE.policy, 10), budget)
    assert slow.limits == [9.5, 9.5]


def test_a_round_whose_child_hangs_is_greedy_checked_and_replays() -> None:
    snapshot, policy, heard = ASKS_TWICE.snapshot, with_limit(ASKS_TWICE.policy, 1.0), list[str]()
    hanging = (sys.executable, "-m", "tests.reconciler.control.optimiser.misbehaving", "hang", "0")
    with KillableOptimiser(hanging, report=heard.append) as optimiser:
        optimiser.warm_up()
        plan, answers = solver_with(optimiser)(snapshot, policy).conclude()
    (said,) = heard
    assert "no answer within 0.90 s" in said, "the second question, for which nothing was left, was asked as well"
    greedy = solve(snapshot, policy, None)
    assert (plan.steps, plan.certificate.stage) == (greedy.steps, "greedy")
    assert (plan.certificate.cut_by_clock, greedy.certificate.cut_by_clock) == (True, False)
    assert violations(snapshot, policy, plan) == ()
    replayed = replay(RoundRecord(1, snapshot.time, "revision", snapshot, policy, plan, {}, answers), optimise)
    assert (replayed.identical, replayed.from_recorded_answer) == (True, True)
