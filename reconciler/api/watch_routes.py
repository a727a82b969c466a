"""What happens, as it happens: events as a stream of server-sent events that can be taken up again where it broke off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from threading import Event as Flag
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Send

from reconciler.access.caller import Caller
from reconciler.access.rights import Rights
from reconciler.api.answers import BARE, Responses
from reconciler.api.authorisation import Authorisation
from reconciler.api.payloads import WatchEnd, WatchStart
from reconciler.api.problems import RequestRefusedError
from reconciler.api.redaction import bare_event
from reconciler.api.services import Services
from reconciler.control.control import NoPolicyError
from reconciler.model.job_record import JobRecord
from reconciler.protocols.history import Event, KeptEvent
from reconciler.protocols.store_errors import StoreUnusableError
from solver.model.document import encode
from solver.model.workload import JobName

LOOK_EVERY_S: Final = 0.25
KEEP_ALIVE_S: Final = 15.0
"""A silent stream says so often that it lives, and learns whether a client still listens."""

SEND_LIMIT_S: Final = 30.0
"""A client that takes nothing for so long is disconnected; the store keeps what it missed."""

WATCHERS_MAX: Final = 100
_CHUNK: Final = 200

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

    def __init__(self, services: Services, authority: Authorisation, closing: Flag) -> None:
        self._services = services
        self._authority = authority
        self._closing = closing
        self._open = 0
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
        if self._open >= WATCHERS_MAX:
            fix = "Try again later, or ask for events page by page."
            raise RequestRefusedError(503, "too-many-watchers", f"{self._open} others watch already.", fix)
        since = last_event_id if last_event_id is not None else after
        if since is None:
            since = await asyncio.to_thread(self._services.history.newest_event)
        return _Stream(self._messages(request.state.caller, subject, since), headers=dict(BARE))

    async def _messages(self, caller: Caller, subject: str, since: int) -> AsyncIterator[bytes]:
        self._open += 1
        try:
            yield message("start", WatchStart(number=since), since)
            silent_s = 0.0
            while (end := self._over(caller)) is None:
                try:
                    kept, seen = await asyncio.to_thread(self._look, caller, subject, since)
                except (NoPolicyError, RequestRefusedError):
                    end = "not-allowed"
                    break
                except StoreUnusableError:
                    end = "store-unusable"
                    break
                for each in seen:
                    yield message("event", each.event, each.number)
                since = kept[-1].number if kept else since
                silent_s = 0.0 if seen else silent_s + LOOK_EVERY_S
                if silent_s >= KEEP_ALIVE_S:
                    silent_s = 0.0
                    yield b": nothing new\n\n"
                if not kept:
                    await asyncio.sleep(LOOK_EVERY_S)
            yield message("end", WatchEnd(reason=end, message=_MESSAGES[end]))
        finally:
            self._open -= 1

    def _over(self, caller: Caller) -> EndReason | None:
        if self._closing.is_set():
            return "stopping"
        return "expired" if caller.until is not None and self._services.clock.now() >= caller.until else None

    def _look(self, caller: Caller, subject: str, since: int) -> tuple[tuple[KeptEvent, ...], list[KeptEvent]]:
        """What is new, and what of it the caller may see. Raises NoPolicyError, RequestRefusedError, StoreUnusableError."""
        rights = self._authority.rights(caller)
        if not rights.may_look():
            raise RequestRefusedError(403, "not-allowed", "No role.")
        kept = self._services.history.events_since(since, subject, _CHUNK)
        # At once: a hundred may watch while thousands of jobs begin.
        records = self._services.jobs.named({JobName(each.event.subject) for each in kept})
        seen = [(each.number, _seen(each.event, records, rights)) for each in kept]
        return kept, [KeptEvent(number, event) for number, event in seen if event is not None]


def _seen(event: Event, records: Mapping[JobName, JobRecord], rights: Rights) -> Event | None:
    record = records.get(JobName(event.subject))
    if record is None:
        # Of a node or a revision.
        return event
    if not rights.may("see-job", record.spec.queue, record.user):
        return None
    return event if rights.may("read-job", record.spec.queue, record.user) else bare_event(event)


class _Stream(StreamingResponse):
    media_type = "text/event-stream"

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


def message(kind: str, document: object, number: int | None = None) -> bytes:
    """One server-sent event; JSON has no line breaks, so one `data:` line holds it."""
    identity = b"" if number is None else b"id: %d\n" % number
    return identity + b"event: " + kind.encode() + b"\ndata: " + encode(document) + b"\n\n"
