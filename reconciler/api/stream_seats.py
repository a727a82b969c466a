"""Streams without an end, as many as a server bears: so many in all, and so many of each user."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from reconciler.api.problems import RequestRefusedError

SEND_LIMIT_S: Final = 30.0
"""A client that takes nothing for so long is disconnected; the store keeps what it missed."""


class StreamSeats:
    """For the streams of one event loop. `what`: what follows, for people. Limits are asked for each time: tests lower them."""

    def __init__(self, what: str, in_all: Callable[[], int], of_a_user: Callable[[], int]) -> None:
        self._what = what
        self._in_all = in_all
        self._of_a_user = of_a_user
        self._taken: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """How many are."""
        return self._taken.total()

    def take(self, user: str) -> StreamSeat:
        """One, before anything is waited for, so that no two requests take the last. Raises RequestRefusedError."""
        taken, own = self.taken, self._taken[user]
        if taken >= self._in_all():
            fix = "Try again later, or ask for events page by page."
            raise RequestRefusedError(503, "too-many-watchers", f"{taken} {self._what} follow already.", fix)
        if own >= self._of_a_user():
            told = f"{own} {self._what} of {user} follow already."
            raise RequestRefusedError(429, "too-many-watchers", told, "Close one of them.")
        self._taken[user] += 1
        return StreamSeat(self._taken, user)


class StreamSeat:
    """A place that is taken until it is given up."""

    def __init__(self, taken: Counter[str], user: str) -> None:
        self._taken = taken
        self._user = user

    def give_up(self) -> None:
        """Once."""
        self._taken[self._user] -= 1


class StreamAnswer(StreamingResponse):
    """Server-sent events. What makes them is closed with the stream, and its seat given up, whether it ever began or not."""

    media_type = "text/event-stream"

    def __init__(self, messages: AsyncIterator[bytes], seat: StreamSeat, headers: Mapping[str, str]) -> None:
        super().__init__(messages, headers=headers)
        self._seat = seat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and make room for another."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._seat.give_up()

    async def stream_response(self, send: Send) -> None:
        """Sends messages one by one; gives up on a client that takes none of them."""

        async def patient(message: dict[str, object]) -> None:
            async with asyncio.timeout(SEND_LIMIT_S):
                await send(message)

        try:
            async with aclosing(self.body_iterator):  # type: ignore[type-var]
                await super().stream_response(patient)  # type: ignore[arg-type]
        except TimeoutError as error:
            raise OSError("the watcher takes nothing") from error
