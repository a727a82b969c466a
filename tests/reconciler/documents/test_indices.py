"""Indices of arrays are read as they were written, and bad ones are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.indices import ELEMENTS_MAX, INDEX_MAX, read_indices


@pytest.mark.parametrize(
    ("written", "indices"),
    [
        ("0", (0,)),
        ("0-3", (0, 1, 2, 3)),
        ("7-9,1,3", (1, 3, 7, 8, 9)),
        ("0-20:5", (0, 5, 10, 15, 20)),
        ("0-9:4", (0, 4, 8)),
        ("5-5", (5,)),
    ],
)
def test_indices_are_read(written: str, indices: tuple[int, ...]) -> None:
    assert read_indices(written) == indices


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("", "is no index"),
        ("a", "is no index"),
        ("1,,2", "is no index"),
        ("3-1", "ends before it begins"),
        ("0-9:0", "a step is at least 1"),
        ("1-3,2", "the index 2 is there twice"),
        (f"{INDEX_MAX + 1}", "at most 999999"),
        (f"0-{ELEMENTS_MAX}", "at most 10000 elements"),
    ],
)
def test_bad_indices_are_refused(written: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_indices(written)


@given(
    st.sets(st.integers(0, INDEX_MAX), min_size=1, max_size=50).flatmap(lambda found: st.permutations(sorted(found)))
)
def test_single_indices_may_come_in_any_order(indices: list[int]) -> None:
    assert read_indices(",".join(map(str, indices))) == tuple(sorted(indices))


@given(st.integers(0, 500), st.integers(0, 500), st.integers(1, 60))
def test_a_step_goes_as_far_as_the_range(first: int, length: int, step: int) -> None:
    last = first + length
    expected = tuple(index for index in range(first, last + 1) if (index - first) % step == 0)
    assert read_indices(f"{first}-{last}:{step}") == expected
