"""Work that costs hardly more for many than for one: what comes while some is being done is done together afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from starlette.concurrency import run_in_threadpool

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Batches(Generic[Asked, Answer]):
    """Await it from one event loop. What waits for its turn holds no thread; one batch is worked on at a time, in a thread."""

    def __init__(self, work: Callable[[Sequence[Asked]], Sequence[Answer | Exception]], most: int) -> None:
        """`work`: of at most `most`, what came of each, in their order; what it raises is raised to each of them."""
        self._work = work
        self._most = most
        self._waiting: list[tuple[Asked, asyncio.Future[Answer]]] = []
        self._working: asyncio.Task[None] | None = None

    async def __call__(self, asked: Asked) -> Answer:
        """What came of it. Work goes on where the one that asked for it has gone."""
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((asked, mine))
        if self._working is None:
            self._working = loop.create_task(self._work_off())
        return await mine

    async def _work_off(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            answers: Sequence[Answer | Exception]
            try:
                answers = await run_in_threadpool(self._work, [asked for asked, _ in some])
            except Exception as error:  # noqa: BLE001  (raised again by each that asked)
                answers = [error] * len(some)
            for (_, future), answer in zip(some, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
        self._working = None
