"""What all that is told has in common: a few writes at once, and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

AT_ONCE_MAX: Final = 8
"""Writes at once. All that is sent stands in one line for its turn: a binding never has more than these before it."""


class WriteCount(NamedTuple):
    """How many writes arrived, and how many are left for later: it was not their turn, or the object had changed."""

    arrived: int
    left: int


async def all_of(writes: Iterable[Coroutine[None, None, bool]]) -> int:
    """Sends them; how many arrived. Raises what one of them raised, once all are over."""
    at_once, sent = asyncio.Semaphore(AT_ONCE_MAX), list(writes)

    async def in_turn(write: Coroutine[None, None, bool]) -> bool:
        async with at_once:
            return await write

    try:
        return sum(await all_over(map(in_turn, sent)))
    finally:
        for write in sent:
            write.close()  # those that were cut off before their turn, or before they could ask for one


async def all_over(work: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """What each of them returns. Raises the first that one raised, once all are over: nothing goes on behind it."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
