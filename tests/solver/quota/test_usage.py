"""Decayed past use follows its equation, whatever the steps in which it is worked out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.model.cluster import GpuType
from solver.model.inflight import Usage
from solver.model.quantities import Duration, Instant
from solver.model.workload import QueueName
from solver.quota.usage import HOUR_MS, Hold, accrued, gpus_on_average

H, Q = GpuType("H100"), QueueName("q")
DAY = Duration(24 * HOUR_MS)


def hours(usage: tuple[Usage, ...]) -> float:
    return sum(used.gpu_hours for used in usage)


def test_half_is_forgotten_in_a_half_life() -> None:
    assert hours(accrued((Usage(Q, H, 8.0),), Instant(0), (), Instant(DAY), DAY)) == pytest.approx(4.0)


def test_a_short_hold_counts_in_full_and_an_old_trifle_not_at_all() -> None:
    assert hours(accrued((), Instant(0), (Hold(Q, H, 4, Instant(0)),), Instant(HOUR_MS // 100), DAY)) == pytest.approx(
        0.04, rel=1e-3
    )
    assert accrued((Usage(Q, H, 8.0),), Instant(0), (), Instant(60 * DAY), DAY) == ()


def test_who_has_always_held_so_many_has_held_so_many_on_average() -> None:
    usage = accrued((), Instant(0), (Hold(Q, H, 6, Instant(0)),), Instant(100 * DAY), DAY)
    assert gpus_on_average(usage, DAY) == {(Q, H): pytest.approx(6_000)}


@given(st.integers(0, 10 * DAY), st.integers(0, 10 * DAY), st.integers(0, 20 * DAY), st.floats(0, 1e6))
def test_two_steps_are_one(first: int, second: int, since: int, before: float) -> None:
    past, holds = (Usage(Q, H, before),), (Hold(Q, H, 3, Instant(since)),)
    middle, end = Instant(first), Instant(first + second)
    begun = holds if since < first else ()
    in_two = accrued(accrued(past, Instant(0), begun, middle, DAY), middle, holds if since < end else (), end, DAY)
    at_once = accrued(past, Instant(0), holds if since < end else (), end, DAY)
    assert hours(in_two) == pytest.approx(hours(at_once), abs=1e-5)


def test_what_began_later_counts_from_then() -> None:
    late = accrued((), Instant(0), (Hold(Q, H, 4, Instant(DAY)),), Instant(2 * DAY), DAY)
    assert late == accrued((), Instant(DAY), (Hold(Q, H, 4, Instant(DAY)),), Instant(2 * DAY), DAY)
