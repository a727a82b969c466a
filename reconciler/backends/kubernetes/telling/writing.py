"""What all that is told has in common: it is written by who leads, and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import NamedTuple

Leading = Callable[[], object]
"""Asked before each write; raises NotLeaderError where somebody else may lead by now."""


class Written(NamedTuple):
    """How many writes arrived, and how many are left for later: it was not their turn, or the object had changed."""

    arrived: int
    left: int


async def all_of(writes: Iterable[Coroutine[None, None, bool]]) -> int:
    """Sends them all at once; how many arrived. Raises what one of them raised, once all are over."""
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return sum(outcome is True for outcome in outcomes)
