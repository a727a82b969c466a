"""Programs too large to be branched over whole: nothing is lost of where stages begin, and bounds hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given

from hack.rounds.world import World
from solver.milp import highs
from solver.milp.highs import loaded, optimise
from solver.milp.layers import Models
from solver.milp.optimiser import Effort, Objective, Program, Solution
from solver.milp.stages import GAP, Stages
from solver.model.arrays import Floats
from solver.model.snapshot import Snapshot
from solver.plan.plan import Evict, Shrink
from solver.policy.policy import Policy
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.milp.test_cut_loop import exactly
from tests.solver.milp.test_program import EFFORT, formulated
from tests.solver.worlds import policies, snapshots


@pytest.fixture
def all_in_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highs, "ALL_BRANCHED_COLUMNS_MAX", -1)
    monkeypatch.setattr(highs, "BOUNDS_BRANCHED_COLUMNS_MAX", -1)
    monkeypatch.setattr(highs, "ALL_BOUNDED_COLUMNS_MAX", -1)


@worlds(160, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(snapshots(elastic=True, close=True), policies() | policies(keeping=True))
@pytest.mark.usefixtures("all_in_stages")
def test_stages_are_never_worse_than_where_they_begin_and_bounds_hold(snapshot: Snapshot, policy: Policy) -> None:
    program, start = formulated(snapshot, policy)
    staged = optimise(program, start, EFFORT)
    proven = optimise(program, start, Effort(0.0, 60.0, 0, exact=True))
    assert staged is not None
    assert proven is not None
    assert program.is_satisfied_by(staged.values)
    assert not staged.cut_by_clock
    assert not is_better(start, staged.values, program)
    bounded = optimise(program, staged.values, replace(EFFORT, bounding=True))
    assert bounded is not None
    for mine, best in zip(bounded.reached, proven.reached, strict=True):
        # A bound is given what the layers before reached: it holds for the best answer as long as both have the same there.
        assert best.value <= mine.bound + 1e-5
        if abs(best.value - mine.value) > 1e-5:
            break


@worlds(160, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(snapshots(elastic=True, close=True), policies() | policies(keeping=True))
@pytest.mark.usefixtures("all_in_stages")
def test_so_do_those_of_rounds_that_evict_nobody(snapshot: Snapshot, policy: Policy) -> None:
    plan, best = solve(snapshot, policy, optimise), solve(snapshot, exactly(policy), optimise)
    assume(not any(isinstance(step, Evict | Shrink) for step in (*plan.steps, *best.steps)))
    for mine, proven in zip(plan.certificate.layers, best.certificate.layers, strict=True):
        assert proven.value <= mine.bound + 1e-5
        if abs(proven.value - mine.value) > 1e-5:
            break


def test_the_first_layer_is_as_good_as_by_branching_over_all(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1024, 300, seed=4)
    program, start = formulated(world.snapshot, world.policy)
    monkeypatch.setattr(highs, "ALL_BRANCHED_COLUMNS_MAX", len(program.lower))
    branched = solved(program, start)
    monkeypatch.setattr(highs, "ALL_BRANCHED_COLUMNS_MAX", 0)
    staged = solved(program, start)
    assert is_better(staged.values, start, program)
    assert (1 - 2 * GAP) * branched.reached[0].value <= staged.reached[0].value <= branched.reached[0].value + 1e-6
    assert sum(each.value for each in staged.reached[:3]) > 0.95 * sum(each.value for each in branched.reached[:3])
    assert (solved(program, start).values == staged.values).all()


def test_a_layer_gives_up_next_to_nothing_for_the_one_below() -> None:
    """Two takers of what one can have: a GPU of the first layer is worth more than a thousand of the second."""
    program = Program(
        lower=np.zeros(2),
        upper=np.array([1.0, 1_000.0]),
        integer=np.ones(2, dtype=bool),
        row_lower=np.array([-np.inf]),
        row_upper=np.array([1_000.0]),
        entry_row=np.array([0, 0]),
        entry_column=np.array([0, 1]),
        entry_value=np.array([1_000.0, 1.0]),
        objectives=tuple(
            Objective(name, True, np.array([n]), np.ones(1)) for n, name in enumerate(("first", "second"))
        ),
    )
    models = Models(program, loaded(program, EFFORT), EFFORT)
    assert Stages(models).improve(np.array([0.0, 1_000.0])).tolist() == [1.0, 0.0]


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
