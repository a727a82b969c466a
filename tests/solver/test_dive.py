"""Programs too large to be branched over: nothing is lost of where a dive begins, and its bounds hold."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from hack.rounds.world import World
from solver.program import highs
from solver.program.highs import optimise
from solver.program.optimiser import Effort, Program, Solution
from solver.rules.policy import Policy
from solver.world.arrays import Floats
from solver.world.snapshot import Snapshot
from tests.solver.test_program import EFFORT, formulated
from tests.solver.worlds import policies, snapshots


@pytest.fixture
def dives_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highs, "ALL_BRANCHED_COLUMNS_MAX", -1)
    monkeypatch.setattr(highs, "EXACT_BRANCHED_COLUMNS_MAX", -1)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(snapshots(elastic=True, close=True), policies() | policies(keeping=True))
@pytest.mark.usefixtures("dives_only")
def test_a_dive_is_never_worse_than_where_it_begins_and_its_bounds_hold(snapshot: Snapshot, policy: Policy) -> None:
    program, start = formulated(snapshot, policy)
    dived = optimise(program, start, EFFORT)
    proven = optimise(program, start, Effort(0.0, 60.0, 0, exact=True))
    assert dived is not None
    assert proven is not None
    assert program.is_satisfied_by(dived.values)
    assert not dived.cut_by_clock
    assert not is_better(start, dived.values, program)
    for mine, best in zip(dived.reached, proven.reached, strict=True):
        # A bound is given what the layers before reached: it holds for the best answer as long as both have the same there.
        assert best.value <= mine.bound + 1e-5
        if abs(best.value - mine.value) > 1e-5:
            break


def test_a_dive_comes_near_to_what_branching_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1024, 300, seed=4)
    program, start = formulated(world.snapshot, world.policy)
    branched = solved(program, start)
    monkeypatch.setattr(highs, "ALL_BRANCHED_COLUMNS_MAX", 0)
    monkeypatch.setattr(highs, "EXACT_BRANCHED_COLUMNS_MAX", 0)
    dived = solved(program, start)
    assert is_better(dived.values, start, program)
    assert 0.9 * branched.reached[0].value < dived.reached[0].value <= branched.reached[0].value + 1e-6
    assert (solved(program, start).values == dived.values).all()


def solved(program: Program, start: Floats) -> Solution:
    solution = optimise(program, start, EFFORT)
    assert solution is not None
    return solution


def is_better(one: Floats, other: Floats, program: Program) -> bool:
    """In the first exact layer in which they differ."""
    for objective in program.objectives:
        more = objective.value(one) - objective.value(other)
        if objective.exact and abs(more) > 1e-5 * max(1.0, abs(objective.value(other))):
            return more > 0
    return False
