"""Whose turn it is to be written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.kubernetes.status.turns import PendingWrite, WriteSchedule, without_numbers
from solver.model.quantities import Duration, Instant
from tests.drawn import worlds

NOW = Instant.parse("2026-11-20T08:00:00Z")
QUIET = Duration(30_000)


def after(seconds: float) -> Instant:
    return NOW.after(int(seconds * 1000))


def major(*keys: str) -> list[PendingWrite[str]]:
    return [PendingWrite(key, minor=False) for key in keys]


def minor(*keys: str) -> list[PendingWrite[str]]:
    return [PendingWrite(key, minor=True) for key in keys]


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("needs 8 H100, 4 free", "needs 8 H100, 3.5 free", True),
        ("earliest start 2026-11-20T14:05:00Z, if", "earliest start 2026-11-21T09:00:00.5Z, if", True),
        ("needs 8 H100, 4 free", "queue q is on hold", False),
    ],
)
def test_texts_that_differ_in_numbers_only_say_the_same(one: str, other: str, alike: bool) -> None:
    assert (without_numbers(one) == without_numbers(other)) == alike


def test_numbers_are_written_again_after_a_rest_and_what_means_something_at_once() -> None:
    turns = WriteSchedule[str](QUIET, 10)
    turns.wrote("a", NOW)
    assert turns.due(minor("a"), after(29.9)) == []
    assert turns.due(major("a"), after(29.9)) == ["a"]
    assert turns.due(minor("a"), after(30)) == ["a"]


def test_the_oldest_comes_first() -> None:
    turns = WriteSchedule[str](QUIET, 2)
    assert turns.due(major("b", "c"), NOW) == ["b", "c"]  # and none arrives
    assert turns.due(major("a", "b", "c"), after(1)) == ["b", "c"]
    turns.wrote("b", after(1))
    assert turns.due(major("a", "c"), after(2)) == ["c", "a"]


def test_what_is_as_it_should_be_again_loses_its_place() -> None:
    turns = WriteSchedule[str](QUIET, 1)
    turns.due(major("a"), NOW)
    turns.due(major("b"), after(1))
    assert turns.due(major("a", "b"), after(2)) == ["b"]


def test_numbers_get_a_quarter_however_much_happens() -> None:
    turns = WriteSchedule[str](QUIET, 8)
    news = major(*(f"new-{number}" for number in range(20)))
    due = turns.due([*news, *minor(*(f"old-{number}" for number in range(20)))], NOW)
    assert sorted(key.split("-")[0] for key in due) == ["new"] * 6 + ["old"] * 2
    assert len(turns.due([*news[:3], *minor("x", "y", "z", "u", "v", "w")], NOW)) == 8  # nothing is left unused


def test_all_are_written_in_the_end_with_what_means_something_before() -> None:
    turns = WriteSchedule[str](QUIET, 4)
    keys = [f"k{number}" for number in range(17)]
    left, passes = set(keys), 0
    while left:
        due = turns.due(major(*sorted(left)), after(passes))
        assert len(due) <= 4
        for key in due:
            turns.wrote(key, after(passes))
            left.discard(key)
        passes += 1
    assert passes == 5


def test_what_is_gone_is_forgotten() -> None:
    turns = WriteSchedule[str](QUIET, 4)
    turns.wrote("a", NOW)
    turns.keep(["b"])
    assert turns.due(minor("a"), NOW) == ["a"]  # one of the same name, never written


@worlds(100)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=12), min_size=1, max_size=12),
    st.integers(1, 6),
)
def test_never_more_than_the_budget_and_nobody_waits_for_ever(
    passes: list[list[tuple[int, bool]]], budget: int
) -> None:
    """Whatever comes and goes: what waits to the end is written within as many passes as there are keys."""
    turns = WriteSchedule[int](Duration(0), budget)
    for number, found in enumerate(passes):
        changes = [PendingWrite(key, is_minor) for key, is_minor in dict(found).items()]
        due = turns.due(changes, after(number))
        assert len(due) == len(set(due)) == min(budget, len(changes))
        assert set(due) <= {change.key for change in changes}
    left, number = {99, *(key for found in passes for key, _ in found)}, len(passes)
    for _ in range(len(left)):
        for key in turns.due([PendingWrite(key, minor=False) for key in sorted(left)], after(number)):
            turns.wrote(key, after(number))
            left.discard(key)
        number += 1
    assert not left
