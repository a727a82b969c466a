"""Requests of one user take turns, so that however many there are, the threads that answer are there for the others too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import HTTPConnection

from reconciler.access.caller import Caller
from reconciler.api.problems import RequestRefusedError

AT_ONCE: Final = 8
"""Requests of one user that are answered at once, of the 40 for which there are threads."""
WAITING_MAX: Final = 200
"""Requests of one user that wait for their turn beside these."""


@dataclass
class _Queue:
    """Of one user, while a request of theirs is there."""

    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    asked: int = 0


class RequestTurns:
    """A FastAPI dependency, to stand behind the guard: it holds a turn until the route has its answer.

    A stream holds it until it begins, a WebSocket not at all: these have limits of their own.
    """

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}

    async def __call__(self, request: HTTPConnection) -> AsyncIterator[None]:
        """Wait for a turn. Raises RequestRefusedError where too many wait."""
        caller: Caller | None = getattr(request.state, "caller", None)
        if caller is None or request.scope["type"] == "websocket":
            yield
            return
        queue = self._queues.setdefault(caller.user, _Queue())
        if queue.asked >= AT_ONCE + WAITING_MAX:
            told = f"{queue.asked} requests of {caller.user} are there already."
            raise RequestRefusedError(429, "too-many-requests", told, "Wait for answers before you ask for more.")
        queue.asked += 1
        try:
            async with queue.turns:
                yield
        finally:
            queue.asked -= 1
            if not queue.asked:
                del self._queues[caller.user]
