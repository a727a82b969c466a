"""What is taken over from round to round is what is worked out from nothing, and only what is new is worked out."""

from __future__ import annotations

import gc
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from solver.model.kept_columns import KeptColumns, KeptValues
from tests.drawn import worlds


class Thing:
    """Equal to itself alone, as far as columns are concerned."""

    def __init__(self, number: int) -> None:
        self.number = number


HISTORIES = st.lists(st.lists(st.integers(0, 9), unique=True), min_size=1, max_size=8)
"""Of each round, which of ten things are there, in which order."""


def rows_of(thing: Thing, factor: int = 1) -> Iterator[tuple[int, int]]:
    """None, one or two of them."""
    return ((thing.number, factor * row) for row in range(thing.number % 3))


@worlds(400)
@given(HISTORIES, st.sets(st.integers(0, 7)))
def test_rows_are_those_of_the_things_in_their_order(history: list[list[int]], others: set[int]) -> None:
    things, columns = [Thing(number) for number in range(10)], KeptColumns[Thing](2)
    for round_, numbers in enumerate(history):
        factor, there = 1 + (round_ in others), [things[number] for number in numbers]
        kept = columns.of(there, lambda thing, factor=factor: rows_of(thing, factor), factor)  # type: ignore[misc]
        anew = [row for thing in there for row in rows_of(thing, factor)]
        assert list(zip(*(column.tolist() for column in kept.columns), strict=True)) == anew
        assert kept.lengths.tolist() == [number % 3 for number in numbers]


@worlds(200)
@given(HISTORIES)
def test_only_what_is_new_or_stale_is_worked_out(history: list[list[int]]) -> None:
    things, columns, values = [Thing(number) for number in range(10)], KeptColumns[Thing](2), KeptValues[Thing, int]()
    asked, valued, before = list[int](), list[int](), set[int]()

    def rows(thing: Thing) -> Iterator[tuple[int, int]]:
        asked.append(thing.number)
        return rows_of(thing)

    def value(thing: Thing) -> int:
        valued.append(thing.number)
        return thing.number

    for numbers in history:
        asked.clear()
        valued.clear()
        there = [things[number] for number in numbers]
        columns.of(there, rows, is_stale=lambda thing: thing.number == 0)
        assert values.of(there, value) == numbers
        new = set(numbers) - before
        assert sorted(valued) == sorted(new)
        assert sorted(asked) == sorted(new | ({0} & set(numbers)))
        before = set(numbers)


def test_a_new_thing_where_one_was_that_is_gone_is_not_taken_for_it() -> None:
    columns, values = KeptColumns[Thing](2), KeptValues[Thing, int]()
    for number in range(200):
        (first, *_), _ = columns.of([Thing(number * 3 + 1)], rows_of)
        assert first.tolist() == [number * 3 + 1]
        assert values.of([Thing(number)], lambda thing: thing.number) == [number]
        gc.collect(0)


def test_another_basis_is_another_value() -> None:
    values, thing = KeptValues[Thing, int](), Thing(2)
    assert values.of([thing], lambda one: one.number, "a") == [2]
    assert values.of([thing], lambda one: -one.number, "b") == [-2]
