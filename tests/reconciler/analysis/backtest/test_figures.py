"""Percentiles are nearest ranks; what is unknown counts with its lower bound, and is said wherever it matters."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.analysis.backtest.figures import Figure, figure, percentile, spread

VALUES = st.lists(st.integers(0, 1_000).map(float), min_size=1, max_size=60)


@pytest.mark.parametrize(("percent", "value"), [(1, 10), (50, 20), (51, 30), (75, 30), (90, 40), (100, 40)])
def test_nearest_ranks_of_four(percent: int, value: float) -> None:
    assert percentile([10, 20, 30, 40], percent) == value


@given(VALUES, st.integers(1, 100))
def test_a_percentile_is_the_smallest_value_that_enough_do_not_exceed(values: list[float], percent: int) -> None:
    found, enough = percentile(sorted(values), percent), ceil(percent * len(values) / 100)
    assert sum(value <= found for value in values) >= enough
    assert sum(value < found for value in values) < enough


def test_by_hand_three_started_and_one_waits_for_25_at_least() -> None:
    found = spread([10, 20, 30], [25])
    assert (found.jobs, found.known) == (4, 3)
    # Whatever the fourth waited in the end: two did not wait for more than 20.
    assert found.p50 == Figure(20.0)
    assert found.p90 == found.max == Figure(30.0, at_least=True)
    assert found.mean == Figure(21.25, at_least=True)


@given(VALUES, VALUES, st.lists(st.integers(0, 500), min_size=60, max_size=60), st.integers(1, 100))
def test_a_figure_is_never_above_the_truth_and_is_the_truth_where_it_does_not_say_at_least(
    known: list[float], bounds: list[float], more: list[int], percent: int
) -> None:
    said = figure(known, bounds, percent)
    truth = percentile(sorted([*known, *(bound + extra for bound, extra in zip(bounds, more, strict=False))]), percent)
    assert said.value <= truth
    assert said.at_least or said.value == truth
