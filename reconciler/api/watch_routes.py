"""What happens, as it happens: events as a stream of server-sent events that can be taken up again where it broke off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from threading import Event as Flag
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Header, Query, Request, Response

from reconciler.access.caller import Caller
from reconciler.access.rights import Rights
from reconciler.api.answers import BARE, Responses
from reconciler.api.authorisation import Authorisation
from reconciler.api.event_stream import LOOK_EVERY_S, EventFeed, message
from reconciler.api.payloads import WatchEnd, WatchStart
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.api.stream_seats import StreamAnswer, StreamSeats
from reconciler.control.control import NoPolicyError
from reconciler.protocols.store_errors import StoreUnusableError

KEEP_ALIVE_S: Final = 15.0
"""A silent stream says so often that it lives, and learns whether a client still listens."""

WATCHERS_MAX: Final = 100
PER_USER_MAX: Final = 25
"""No user's programs keep all others from watching."""

EndReason = Literal["stopping", "expired", "not-allowed", "store-unusable"]
_MESSAGES: Final[dict[EndReason, str]] = {
    "stopping": "The server stops. Take it up again with Last-Event-ID.",
    "expired": "The token has expired. Come again with a new one.",
    "not-allowed": "The policy in force lets you watch no more.",
    "store-unusable": "The server's store can't be read. See its log.",
}
_DESCRIBED: Responses = {
    200: {
        "description": "A stream that has no end of its own. Messages `start`, `event` and `end`; `id` is the event's number.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


class WatchRoutes:
    """The endpoint; `router` has it. Streams end when `closing` is set."""

    def __init__(self, services: Services, authority: Authorisation, closing: Flag, feed: EventFeed) -> None:
        self._services = services
        self._authority = authority
        self._closing = closing
        self._seats = StreamSeats("watchers", lambda: WATCHERS_MAX, lambda: PER_USER_MAX)
        self._feed = feed
        self.router = APIRouter(tags=["watch"])
        self.router.add_api_route("/v1/watch", self.watch, responses=_DESCRIBED, response_class=Response)

    async def watch(
        self,
        request: Request,
        subject: Annotated[str, Query(max_length=253, description="Only events of this job, node or revision.")] = "",
        after: Annotated[int | None, Query(ge=0, lt=2**63, description="Begin behind this event.")] = None,
        last_event_id: Annotated[int | None, Header(ge=0, lt=2**63)] = None,
    ) -> Response:
        """Events from now on, or from behind the number that `Last-Event-ID` or `after` names; none twice, none left out."""
        since = last_event_id if last_event_id is not None else after
        caller: Caller = request.state.caller
        seat = self._seats.take(caller.user)
        try:
            if since is None:
                since = await asyncio.to_thread(self._services.history.newest_event)
        except BaseException:
            seat.give_up()
            raise
        return StreamAnswer(self._messages(caller, subject, since), seat, BARE)

    async def _messages(self, caller: Caller, subject: str, since: int) -> AsyncIterator[bytes]:
        yield message("start", WatchStart(number=since), since)
        silent_s, rights = 0.0, CurrentRights(self._authority, self._services, caller)
        while (end := self._over(caller)) is None:
            try:
                of_caller = rights.now()
                told, reached = await self._feed.after(since, subject)
            except (NoPolicyError, RequestRefusedError):
                end = "not-allowed"
                break
            except StoreUnusableError:
                end = "store-unusable"
                break
            seen = [sent for each in told if (sent := each.message(of_caller)) is not None]
            for sent in seen:
                yield sent
            silent_s = 0.0 if seen else silent_s + LOOK_EVERY_S
            if silent_s >= KEEP_ALIVE_S:
                silent_s = 0.0
                yield b": nothing new\n\n"
            if not told:
                try:
                    await self._feed.look()
                except StoreUnusableError:
                    end = "store-unusable"
                    break
            since = reached
        yield message("end", WatchEnd(reason=end, message=_MESSAGES[end]))

    def _over(self, caller: Caller) -> EndReason | None:
        if self._closing.is_set():
            return "stopping"
        return "expired" if caller.until is not None and self._services.wall.now() >= caller.until else None


class CurrentRights:
    """The rights of a caller, worked out anew where the policy is another."""

    def __init__(self, authority: Authorisation, services: Services, caller: Caller) -> None:
        self._authority = authority
        self._services = services
        self._caller = caller
        self._known: tuple[object, object, Rights] | None = None

    def now(self) -> Rights:
        """Under the policy in force. Raises NoPolicyError, and RequestRefusedError for a caller that may not look."""
        policy, access = self._services.policy()[1], self._services.access()
        known = self._known
        if known is None or known[0] is not policy or known[1] is not access:
            self._known = known = policy, access, self._authority.rights(self._caller)
        if not known[2].may_look():
            raise RequestRefusedError(403, "not-allowed", "No role.")
        return known[2]
