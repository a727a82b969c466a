"""Programs that are run while the round goes on: when they are asked and waited for, and that nothing else depends on it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

import pytest

from hack.rounds.cases import with_limit
from hack.rounds.world import World
from reconciler.control.optimiser import KillableOptimiser, parent
from reconciler.control.optimiser.budget import LEAST_S, RoundBudget
from reconciler.control.optimiser.limits import margin_s
from reconciler.control.recording import Recording, optimiser_of
from reconciler.model.clock import VirtualClock
from solver.milp.highs import optimise
from solver.milp.optimiser import Awaited, ConcurrentOptimiser, Effort, MonitoredOptimiser, Program, Solution, begun
from solver.model.arrays import Floats
from solver.model.document import encode
from solver.model.inflight import Reservation
from solver.plan.plan import Evict, Verdict
from solver.policy.policy import Policy
from solver.preemption.eviction_rules import EvictionRules
from solver.round import decision
from solver.round.explanation import RoundExplanation
from solver.round.solve import solve
from tests.drawn import first
from tests.reconciler.control.optimiser.test_parent import PATIENCE, PROGRAM, START

EVICTING = World(1024, pending=300, full=0.9, seed=2)
EMPTY = World(1024, pending=150, full=0.0, seed=1)
LIMIT_S = 10.0


def unhurried(world: World) -> Policy:
    """Its policy, without a limit that a busy machine could come to."""
    return with_limit(world.policy, 600)


@dataclass
class Noting(ConcurrentOptimiser):
    """Runs a program once its answer is waited for; with what happened, in order."""

    happened: list[str] = field(default_factory=list)
    wait: Callable[[], None] = lambda: None

    def begin(self, program: Program, start: Floats, effort: Effort) -> Awaited:
        question = "bounds" if effort.bounding else "starts" if program.integer.any() else "prices"
        self.happened.append(f"{question} asked")

        def answer() -> Solution | None:
            self.wait()
            self.happened.append(f"{question} there")
            return optimise(program, start, effort)

        return answer


def test_who_may_leave_is_worked_out_and_the_round_explained_while_the_program_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Noting()

    def law(*given: Any, of: Callable[..., EvictionRules] = EvictionRules.of) -> EvictionRules:
        asked.happened.append("law known")
        return of(*given)

    def explained(
        this: RoundExplanation,
        reservations: Sequence[Reservation],
        say: Callable[[RoundExplanation, Sequence[Reservation]], Iterator[Verdict]] = RoundExplanation.verdicts,
    ) -> Iterator[Verdict]:
        asked.happened.append("explained")
        return say(this, reservations)

    monkeypatch.setattr(EvictionRules, "of", law)
    monkeypatch.setattr(RoundExplanation, "verdicts", explained)
    plan = solve(EVICTING.snapshot, unhurried(EVICTING), asked)
    assert any(isinstance(step, Evict) for step in plan.steps)
    told = [what for what in asked.happened if not what.startswith("prices")]
    assert told[:3] == ["starts asked", "law known", "starts there"]
    assert told[-1] == "explained"


@pytest.mark.parametrize("world", first(1, [EVICTING, EMPTY]))
def test_the_plan_is_the_same_byte_for_byte(world: World) -> None:
    by_function = solve(world.snapshot, unhurried(world), optimise)
    assert encode(solve(world.snapshot, unhurried(world), Noting())) == encode(by_function)
    with KillableOptimiser() as child:
        assert isinstance(child, ConcurrentOptimiser)
        assert encode(solve(world.snapshot, unhurried(world), child)) == encode(by_function)


def test_a_round_that_evicts_nobody_is_proven_by_its_own_program() -> None:
    asked = Noting()
    plan = solve(EMPTY.snapshot, unhurried(EMPTY), asked)
    assert not any(isinstance(step, Evict) for step in plan.steps)
    assert asked.happened[-4:] == ["starts asked", "starts there", "bounds asked", "bounds there"]
    first, second, *others = (layer for layer in plan.certificate.layers if layer.value)
    assert (first.status, second.status) == ("proven", "proven")
    assert all(isfinite(layer.bound) for layer in others)


@pytest.mark.parametrize("world", [EVICTING, EMPTY])
def test_of_very_many_who_wait_bounds_stay_loose(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    monkeypatch.setattr(decision, "BOUNDED_WAITING_MAX", 100)
    asked = Noting()
    plan = solve(world.snapshot, unhurried(world), asked)
    assert "starts there" in asked.happened
    assert "bounds asked" not in asked.happened
    assert not plan.certificate.cut_by_clock


def test_what_is_done_while_nobody_waits_takes_nothing_from_later_questions() -> None:
    clock, limits = VirtualClock(), list[float]()

    class Limits(Noting):
        def begin(self, program: Program, start: Floats, effort: Effort) -> Awaited:
            limits.append(effort.time_limit_s)
            return super().begin(program, start, effort)

    of_round = RoundBudget(Limits(wait=lambda: clock.advance(4_000)), clock)
    effort = replace(PATIENCE, time_limit_s=LIMIT_S)
    for _ in range(2):
        waiting = of_round.begin(PROGRAM, START, effort)
        clock.advance(60_000)
        assert waiting() is not None
    first_s = LIMIT_S - margin_s(LIMIT_S)
    assert limits == [first_s, first_s - 4]


def test_a_question_for_which_nothing_is_left_is_not_asked_beside_the_round_either() -> None:
    clock, asked = VirtualClock(), Noting()
    of_round = RoundBudget(asked, clock)
    assert of_round.begin(PROGRAM, START, replace(PATIENCE, time_limit_s=LEAST_S / 2))() is None
    assert asked.happened == []


def test_answers_are_recorded_in_the_order_of_their_questions() -> None:
    recording = Recording(lambda _program, _start, effort: cut(effort.seed))
    first, second = (recording.begin(PROGRAM, START, replace(PATIENCE, seed=seed)) for seed in (1, 2))
    second()
    first()
    replayed = optimiser_of(recording.text, optimise)
    assert replayed is not None
    found = [replayed(PROGRAM, START, PATIENCE) for _ in range(2)]
    assert [known.solver for known in found if known] == ["1", "2"]


def cut(number: int) -> Solution:
    return Solution(START, (), str(number), cut_by_clock=True)


def test_an_answer_that_was_cut_is_noticed_once_it_is_waited_for() -> None:
    watched = MonitoredOptimiser(lambda *_: cut(1))
    waiting = begun(watched, PROGRAM, START, PATIENCE)
    assert not watched.cut
    waiting()
    assert watched.cut


def test_the_time_of_a_question_begins_when_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    answering, heard, now_s = (
        (sys.executable, "-m", "tests.reconciler.control.optimiser.misbehaving", "hang", "9"),
        list[str](),
        [0.0],
    )
    monkeypatch.setattr(parent, "monotonic", lambda: now_s[0])
    with KillableOptimiser(answering, report=heard.append) as child:
        first = child(PROGRAM, START, PATIENCE)
        assert first is not None
        pid = int(first.solver.removeprefix("fake "))
        os.kill(pid, signal.SIGSTOP)
        late = child.begin(PROGRAM, START, PATIENCE)
        now_s[0] = PATIENCE.time_limit_s
        # Whoever gave it time once more would have its answer.
        resumed = threading.Timer(1.0, os.kill, (pid, signal.SIGCONT))
        resumed.start()
        assert late() is None
        resumed.cancel()
    # On a busy machine the question may not even have been sent by then.
    assert len(heard) == 1


def test_a_child_answers_what_was_begun_together() -> None:
    with KillableOptimiser() as child:
        waiting = [child.begin(PROGRAM, START, PATIENCE) for _ in range(2)]
        found = [each() for each in reversed(waiting)]
    assert [known.reached[0].value for known in found if known] == [15.0, 15.0]
