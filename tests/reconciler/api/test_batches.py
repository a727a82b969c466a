"""What comes while work is being done is done together afterwards, and each that asked hears what came of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from threading import Event

import pytest

from reconciler.api.batches import Batches


def test_what_comes_meanwhile_is_done_together_in_batches_that_are_bounded() -> None:
    done: list[list[int]] = []
    begun, go_on = Event(), Event()

    def work(asked: Sequence[int]) -> list[str | Exception]:
        done.append(list(asked))
        begun.set()
        assert go_on.wait(60)
        return [ValueError(str(each)) if each == 3 else str(each) for each in asked]

    async def ask() -> list[str | BaseException]:
        batches = Batches[int, str](work, most=4)
        first = asyncio.ensure_future(batches(0))
        await asyncio.to_thread(begun.wait, 60)
        others = [asyncio.ensure_future(batches(number)) for number in range(1, 8)]
        await asyncio.sleep(0)
        others[4].cancel()
        go_on.set()
        return await asyncio.gather(first, *others, return_exceptions=True)

    answers = asyncio.run(ask())
    assert done == [[0], [1, 2, 3, 4], [5, 6, 7]]
    assert [str(each) for each in answers] == ["0", "1", "2", "3", "4", "", "6", "7"]
    assert [type(each) for each in answers if not isinstance(each, str)] == [ValueError, asyncio.CancelledError]


def test_what_fails_as_a_whole_fails_for_each_and_the_next_are_served() -> None:
    broken = [True]

    def work(asked: Sequence[int]) -> list[int | Exception]:
        if broken.pop() if broken else False:
            raise OSError("the disk is full")
        return list(asked)

    async def ask() -> int:
        batches = Batches[int, int](work, most=9)
        with pytest.raises(OSError, match="full"):
            await batches(1)
        return await batches(2)

    assert asyncio.run(ask()) == 2
