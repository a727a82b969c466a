"""Several writes at once that are cut off: none is left behind."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from reconciler.kubernetes.status.writes import AT_ONCE_MAX, all_of


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_writes_that_are_cut_off_are_closed_however_far_they_came(steps: int) -> None:
    """Not looked at yet, waiting for their turn, or on their way."""

    async def write() -> bool:
        await asyncio.sleep(60)
        return True

    writes = [write() for _ in range(AT_ONCE_MAX + 2)]

    async def story() -> None:
        sending = asyncio.create_task(all_of(writes))
        for _ in range(steps):
            await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending

    asyncio.run(story())
    assert {inspect.getcoroutinestate(one) for one in writes} == {"CORO_CLOSED"}
