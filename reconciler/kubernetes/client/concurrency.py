"""Several requests at once: all have ended when an error is raised."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def gather(deeds: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What each returned, in their order. Where one raises, the others are cut off, and the first error is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(deed) for deed in deeds]
    except BaseExceptionGroup as errors:
        raise _first(errors) from None
    return [task.result() for task in tasks]


async def work_off(taken: Callable[[], T | None], deed: Callable[[T], Awaitable[None]], at_once_max: int) -> None:
    """Does what is `taken`, so many at once, until there is nothing more; asked again whenever one is done, which may bring more.

    A task goes from one to the next, so that what waits is not a task yet: thousands that wait are work for Python's garbage
    collector. What is raised is an ExceptionGroup.
    """
    at_work = 0

    async def work(one: T | None) -> None:
        nonlocal at_work
        while one is not None:
            await deed(one)
            one = taken()
            begin_more()
        at_work -= 1

    def begin_more() -> None:
        nonlocal at_work
        while at_work < at_once_max and (one := taken()) is not None:
            at_work += 1
            group.create_task(work(one))

    async with asyncio.TaskGroup() as group:
        begin_more()


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
