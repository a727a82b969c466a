"""What PuLP states and what the arrays hand over is the same model, number by number, so HiGHS gives the same answer to both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from hack.rounds.world import World
from solver.milp import highs_model, pulp_model
from solver.milp.builder import ProgramBuilder
from solver.milp.highs import ModelOf, loaded, optimise
from solver.milp.optimiser import Effort, Optimiser, Program, Solution
from solver.milp.pulp_model import optimise_by_pulp
from solver.model.arrays import Floats
from solver.model.snapshot import Snapshot
from solver.policy.policy import Policy
from solver.round.solve import solve
from tests.drawn import worlds
from tests.solver.worlds import policies, snapshots

EFFORT = Effort(0.0, 60.0, 0)

Question = tuple[Program, Floats, Effort]


def asked(snapshot: Snapshot, policy: Policy, optimiser: Optimiser = optimise) -> list[Question]:
    """All that a round asks: for prices, which jobs start, which leave for which, what bounds that."""
    questions = list[Question]()

    def ask(program: Program, start: Floats, effort: Effort) -> Solution | None:
        questions.append((program, start, effort))
        return optimiser(program, start, effort)

    solve(snapshot, policy, ask)
    return questions


def known_of(program: Program, stated: ModelOf) -> dict[str, object]:
    """All that HiGHS knows of a program once it has it."""
    known = loaded(program, EFFORT, stated).getLp()
    matrix = known.a_matrix_
    return {
        "size": (known.num_col_, known.num_row_),
        "sense": (known.sense_, known.offset_),
        "whole": list(known.integrality_),
        "matrix": (matrix.format_, list(matrix.start_), list(matrix.index_), list(matrix.value_)),
        **{name: list(getattr(known, name)) for name in ("col_cost_", "col_lower_", "col_upper_")},
        **{name: list(getattr(known, name)) for name in ("row_lower_", "row_upper_")},
    }


def assert_alike(program: Program) -> None:
    by_arrays, by_pulp = known_of(program, highs_model.model_of), known_of(program, pulp_model.model_of)
    for name, value in by_arrays.items():
        assert value == by_pulp[name], name


@worlds(40)
@given(snapshots(elastic=True, close=True, inner=True), policies() | policies(keeping=True))
def test_all_that_rounds_ask_is_the_same_model(snapshot: Snapshot, policy: Policy) -> None:
    for program, start, effort in asked(snapshot, policy):
        assert_alike(program)
        assert_same_answer(program, start, effort)


def test_all_that_a_round_of_a_hundred_nodes_asks_is_the_same_model() -> None:
    world = World(1024, pending=250, seed=2)
    questions = asked(world.snapshot, world.policy)
    assert any(len(program.lower) > 500 for program, _, _ in questions)
    for program, start, effort in questions:
        assert_alike(program)
        assert_same_answer(program, start, effort)


def assert_same_answer(program: Program, start: Floats, effort: Effort) -> None:
    by_arrays, by_pulp = optimise(program, start, effort), optimise_by_pulp(program, start, effort)
    assert (by_arrays is None) == (by_pulp is None)
    if by_arrays is not None and by_pulp is not None:
        assert np.array_equal(by_arrays.values, by_pulp.values)
        assert replace(by_arrays, values=by_pulp.values) == by_pulp


def test_rows_and_columns_of_every_kind() -> None:
    """Entries that came out of order, a row without any, a column that nothing names, equations, parts of a whole."""
    builder = ProgramBuilder()
    one, part, unnamed, last = (
        builder.column(3),
        builder.column(2.5, integer=False),
        builder.column(1),
        builder.column(7),
    )
    builder.at_most({last: 2.0, one: 1.5}, 4.0)
    builder.equal({part: 1.0, one: -0.5}, 0.0)
    builder.maximise("layer", {last: 1.0, part: 1.0}, exact=True)
    program = builder.build()
    mixed = replace(
        program,
        row_lower=np.append(program.row_lower, -np.inf),
        row_upper=np.append(program.row_upper, 1.0),
        entry_row=program.entry_row[::-1],
        entry_column=program.entry_column[::-1],
        entry_value=program.entry_value[::-1],
    )
    for known in (program, mixed):
        assert_alike(known)
        assert_same_answer(known, np.zeros(4), EFFORT)
    model = known_of(mixed, highs_model.model_of)
    assert model["size"] == (4, 3)
    assert unnamed == 2


def test_a_program_without_whole_columns_is_linear_both_ways() -> None:
    builder = ProgramBuilder()
    column = builder.column(1.0, integer=False)
    builder.maximise("layer", {column: 1.0})
    assert_alike(builder.build())


def test_pulp_refuses_a_row_that_it_can_not_state() -> None:
    builder = ProgramBuilder()
    builder.at_most({builder.column(3): 1.0}, 2.0)
    program = builder.build()
    between = replace(program, row_lower=np.array([1.0]))
    with pytest.raises(ValueError, match=r"between 1\.0 and 2\.0"):
        pulp_model.model_of(between)
    assert known_of(between, highs_model.model_of)["row_lower_"] == [1.0]


def test_a_row_with_a_column_twice_is_refused() -> None:
    builder = ProgramBuilder()
    builder.at_most({builder.column(3): 2.0}, 2.0)
    program = builder.build()
    twice = replace(
        program, entry_row=np.zeros(2, dtype=int), entry_column=np.zeros(2, dtype=int), entry_value=np.ones(2)
    )
    with pytest.raises(ValueError, match="HiGHS refuses the program"):
        optimise(twice, np.zeros(1), EFFORT)
