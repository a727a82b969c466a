"""How many requests leave in a second: never more than configured, for all callers together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from reconciler.model.clock import Clock

Sleep = Callable[[float], Awaitable[None]]

_REST_MIN_S = 1e-6
"""What rounding leaves lacking is a rest so short that adding it to a clock's time changes nothing: that would never end."""


class RateLimiter:
    """A token bucket: in any time of `t` seconds at most `burst + qps * t` turns are given, in the order they were asked for.

    A turn is taken when its request leaves, not when it was asked for: what a busy event loop held up does not leave in a heap.
    """

    def __init__(self, qps: float, burst: int, clock: Clock, sleep: Sleep = asyncio.sleep) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"qps {qps} and burst {burst}: the first has to be above 0, the second 1 or more")
        self._qps = qps
        self._burst = burst
        self._clock = clock
        self._sleep = sleep
        self._left = float(burst)
        self._counted_s = clock.monotonic_s()
        self._line = asyncio.Lock()

    async def turn(self) -> None:
        """Returns once one more request may leave."""
        async with self._line:
            while (lacking := 1 - self._refilled()) > 0:
                await self._sleep(max(lacking / self._qps, _REST_MIN_S))
            self._left -= 1

    def _refilled(self) -> float:
        now_s = self._clock.monotonic_s()
        self._left = min(float(self._burst), self._left + (now_s - self._counted_s) * self._qps)
        self._counted_s = now_s
        return self._left
