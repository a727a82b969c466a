"""Programs that differ in the order of columns and rows alone are the same in their canonical order."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from solver.milp.builder import ProgramBuilder
from solver.milp.canonical_order import COLUMNS_MAX, CanonicalOrder
from solver.milp.highs import optimise
from solver.milp.optimiser import Effort, Program


def drawn(columns: int, rows: int, chance: random.Random) -> Program:
    """A few knapsacks, and two layers."""
    builder = ProgramBuilder()
    sizes = {builder.column(float(1 + number % 2)): float(chance.randint(1, 3)) for number in range(columns)}
    for row in range(rows):
        inside = {column: size for column, size in sizes.items() if column % rows == row}
        builder.at_most(inside, float(chance.randint(2, 6)))
    builder.maximise("served", sizes, exact=True)
    builder.maximise("first", {column: 1.0 / (1 + column) for column in sizes}, exact=True)
    return builder.build()


def shuffled(program: Program, chance: random.Random) -> Program:
    """The same, with its columns and rows in another order."""
    columns, rows = [*range(len(program.lower))], [*range(len(program.row_lower))]
    chance.shuffle(columns)
    chance.shuffle(rows)
    new_column, new_row = np.argsort(columns), np.argsort(rows).astype(np.int64)
    return replace(
        program,
        lower=program.lower[columns],
        upper=program.upper[columns],
        integer=program.integer[columns],
        row_lower=program.row_lower[rows],
        row_upper=program.row_upper[rows],
        entry_row=new_row[program.entry_row],
        entry_column=new_column[program.entry_column],
        objectives=tuple(replace(layer, columns=new_column[layer.columns]) for layer in program.objectives),
    )


def is_same(one: Program, other: Program) -> bool:
    arrays = ("lower", "upper", "integer", "row_lower", "row_upper", "entry_row", "entry_column", "entry_value")
    layers = zip(one.objectives, other.objectives, strict=True)
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays) and all(
        np.array_equal(a.columns, b.columns) and np.array_equal(a.coefficients, b.coefficients) for a, b in layers
    )


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 4))
def test_the_order_in_which_it_is_written_makes_no_difference(seed: int, columns: int, rows: int) -> None:
    chance = random.Random(seed)
    program = drawn(columns, rows, chance)
    assert is_same(CanonicalOrder.of(program).program, CanonicalOrder.of(shuffled(program, chance)).program)


def test_values_are_given_back_by_the_numbers_that_columns_had() -> None:
    program = drawn(7, 3, random.Random(5))
    order = CanonicalOrder.of(program)
    effort = Effort(0.0, 10.0, 0, exact=True)
    there, here = (optimise(one, np.zeros(7), effort) for one in (order.program, program))
    assert there is not None
    assert here is not None
    back = order.given_back(there.values)
    assert program.is_satisfied_by(back)
    assert [o.value(back) for o in program.objectives] == [o.value(here.values) for o in program.objectives]


def test_a_large_program_keeps_its_own_order() -> None:
    program = drawn(3, 1, random.Random(1))
    many = COLUMNS_MAX + 1
    large = replace(program, lower=np.zeros(many), upper=np.ones(many), integer=np.ones(many, dtype=bool))
    assert CanonicalOrder.of(large).program is large
