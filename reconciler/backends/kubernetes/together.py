"""Several requests at once: all have ended when the first error is raised, and it is raised as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(deeds: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What each returned, in their order. Where one raises, the others are cut off, and the first error is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(deed) for deed in deeds]
    except BaseExceptionGroup as errors:
        raise _first(errors) from None
    return [task.result() for task in tasks]


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
