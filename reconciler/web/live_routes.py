"""The stream that keeps pages of the console up to date: server-sent events, one stream for a browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from threading import Event as Flag
from typing import Final, Literal

from fastapi import APIRouter, Query, Request, Response

from reconciler.access.caller import Caller
from reconciler.api.authorisation import Authorisation
from reconciler.api.event_stream import EventFeed, message
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.api.stream_seats import StreamAnswer, StreamSeats
from reconciler.api.watch_routes import CurrentRights
from reconciler.control.control import NoPolicyError
from reconciler.protocols.store_errors import StoreUnusableError
from reconciler.web.latest_map import LatestMap
from reconciler.web.live_stream import Listener, LiveFeed
from reconciler.web.pages import HEADERS
from solver.model.document import Document

KEEP_ALIVE_S: Final = 15.0
"""A silent stream says so often that it lives."""

STREAMS_MAX: Final = 200
PER_USER_MAX: Final = 50
"""A browser needs one, however many tabs it has; walls of screens may share a user."""

EndReason = Literal["stopping", "session-over", "not-allowed", "no-policy", "store-unusable"]
_SAID: Final[Mapping[EndReason, str]] = {
    "stopping": "The server stops.",
    "not-allowed": "The policy in force lets you look no more.",
    "no-policy": "No policy is in force.",
    "store-unusable": "The server's store can't be read.",
}


class LiveEnd(Document, frozen=True):
    """The last message, and why it is the last."""

    reason: EndReason
    message: str


class LiveRoutes:
    """The endpoint; `router` has it. `over`: which sessions count no more, and why."""

    def __init__(
        self, services: Services, latest: LatestMap, over: Callable[[Collection[str]], Mapping[str, str]]
    ) -> None:
        self._services = services
        self._authority = Authorisation(services)
        self.feed = LiveFeed(services, latest, over)
        self._seats = StreamSeats("browsers", lambda: STREAMS_MAX, lambda: PER_USER_MAX)
        self.router = APIRouter(include_in_schema=False)
        self.router.add_api_route("/live", self.live, response_class=Response)

    async def live(self, request: Request, map: bool = Query(default=False)) -> Response:  # noqa: A002  (in the address)
        """What changes, as long as the user may look. With `map`: of the map, too."""
        caller: Caller = request.state.caller
        seat = self._seats.take(caller.user)
        listener = Listener(caller, getattr(request.state, "session", ""), map)
        messages = self._messages(listener, request.app.state.events, request.app.state.closing)
        # A proxy before the server is to hold nothing back.
        return StreamAnswer(messages, seat, {**HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    async def _messages(self, listener: Listener, events: EventFeed, closing: Flag) -> AsyncIterator[bytes]:
        feed, rights = self.feed, CurrentRights(self._authority, self._services, listener.caller)
        with feed.listening(listener, events, closing):
            try:
                await feed.ready()
                number = -1
                while not feed.is_over() and not listener.over:
                    may, changes = rights.now(), None if number < 0 else feed.after(number)
                    number = feed.number
                    if changes is None:
                        yield feed.start()
                    for change in changes or ():
                        told = change.message(may) + (change.map if listener.wants_map else b"")
                        if told:
                            yield told
                    # Something may have happened while the client took its time.
                    if number == feed.number and not feed.is_over() and not await self._is_turn():
                        yield b": nothing new\n\n"
                reason: EndReason = "session-over" if listener.over else "stopping"
            except StoreUnusableError:
                reason = "store-unusable"
            except NoPolicyError:
                reason = "no-policy"
            except RequestRefusedError:
                reason = "not-allowed"
            yield message("end", LiveEnd(reason, _SAID.get(reason, listener.over)))

    async def _is_turn(self) -> bool:
        """Wait for something new; False: there was nothing for a while."""
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await self.feed.turn()
        except TimeoutError:
            return False
        return True
