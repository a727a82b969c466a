"""The two measures of fairness, by hand and by what must hold of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.analysis.backtest.fairness import JobDemand, alone, jain, within
from reconciler.analysis.backtest.observation import Stretch
from solver.model.quantities import Instant


def wanted(*jobs: tuple[int, int, int]) -> list[JobDemand]:
    """Jobs as (submitted, GPUs, how long)."""
    return [JobDemand(Instant(at), 1000 * gpus, long) for at, gpus, long in jobs]


def stretch(start: int, end: int, gpus: int) -> Stretch:
    return Stretch(Instant(start), Instant(end), 1000 * gpus)


def test_alone_jobs_start_in_order_and_none_passes_another() -> None:
    # The second needs both GPUs and waits for the first; the third would fit beside the first, but does not pass.
    assert alone(wanted((0, 1, 100), (10, 2, 50), (20, 1, 5)), 2000) == [100, 140, 135]


def test_alone_a_job_larger_than_the_cluster_takes_longer_in_proportion() -> None:
    assert alone(wanted((0, 8, 100), (1, 1, 10)), 2000) == [400, 409]


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 16), st.integers(1, 100)), min_size=1, max_size=30),
    st.integers(1, 16),
)
def test_alone_nobody_is_faster_than_it_runs_or_than_the_gpus_can(jobs: list[tuple[int, int, int]], gpus: int) -> None:
    ordered = wanted(*sorted(jobs))
    took = alone(ordered, 1000 * gpus)
    assert all(
        time >= job.duration * max(1, job.milli / (1000 * gpus)) for time, job in zip(took, ordered, strict=True)
    )
    last = max(job.submitted_at + time for job, time in zip(ordered, took, strict=True))
    work = sum(job.milli * job.duration for job in ordered)
    assert last - ordered[0].submitted_at >= work / (1000 * gpus)
    assert alone(ordered, 1_000_000) == [job.duration for job in ordered]


def test_within_counts_what_lies_below_the_line() -> None:
    # 4 GPUs for 10, then 8 for 10, then 4 for 10: below a line at 6.
    assert within([stretch(0, 20, 4), stretch(10, 30, 4)], 6000) == 1000 * (40 + 60 + 40)
    assert within([], 6000) == 0


@pytest.mark.parametrize(
    ("values", "index"), [([1.0, 1.0, 1.0], 1.0), ([1.0, 0.0], 0.5), ([1.0, 0.5], 0.9), ([0.0], None), ([], None)]
)
def test_jain_by_hand(values: list[float], index: float | None) -> None:
    assert jain(values) == (None if index is None else pytest.approx(index))


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=20))
def test_jain_lies_between_one_of_all_and_one(values: list[float]) -> None:
    index = jain(values)
    assert index is not None
    assert 1 / len(values) - 1e-9 <= index <= 1 + 1e-9
