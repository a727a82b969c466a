"""The pace: never more requests in any span of time than configured, nor much fewer."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.kubernetes.client.pace import RateLimiter
from solver.model.quantities import Instant
from tests.drawn import worlds


class ManualClock:
    """Time passes only while somebody sleeps."""

    def __init__(self, late_s: float = 0.0) -> None:
        self.now_s = 0.0
        self._late_s = late_s

    def now(self) -> Instant:
        return Instant(int(self.now_s * 1000))

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds + self._late_s


@worlds(200)
@given(
    st.floats(0.5, 2_000),
    st.integers(1, 50),
    st.lists(st.floats(0, 3), max_size=60),
    st.floats(0, 0.5),
)
def test_in_any_time_no_more_leave_than_configured(qps: float, burst: int, pauses: list[float], late_s: float) -> None:
    async def story() -> list[float]:
        clock = ManualClock(late_s)
        pace = RateLimiter(qps, burst, clock, clock.sleep)
        left: list[float] = []

        async def one() -> None:
            await pace.turn()
            left.append(clock.now_s)

        for pause_s in pauses:
            clock.now_s += pause_s
            await asyncio.gather(*(one() for _ in range(3)))
        return left

    left = asyncio.run(story())
    for first, since_s in enumerate(left):
        for last in range(first, len(left)):
            assert last - first + 1 <= burst + qps * (left[last] - since_s) + 1e-6


def test_whoever_asked_first_goes_first_and_no_time_is_lost() -> None:
    async def story() -> tuple[list[int], float]:
        clock = ManualClock()
        pace = RateLimiter(4, 2, clock, clock.sleep)
        order: list[int] = []

        async def one(number: int) -> None:
            await pace.turn()
            order.append(number)

        await asyncio.gather(*(one(number) for number in range(10)))
        return order, clock.now_s

    order, took_s = asyncio.run(story())
    assert order == list(range(10))
    assert took_s == pytest.approx(2.0)


def test_a_pace_that_lets_nothing_leave_is_refused() -> None:
    with pytest.raises(ValueError, match="qps 0"):
        RateLimiter(0, 1, ManualClock())
