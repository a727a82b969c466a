"""Terminals of tasks over WebSockets: binary messages are what is shown and typed, text messages are JSON documents."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query
from starlette.websockets import WebSocket, WebSocketDisconnect

from reconciler.access.caller import Caller
from reconciler.api.attach_payloads import Detached, DetachReason, WindowSize
from reconciler.api.authorisation import Authorisation
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.api.views import job_view
from reconciler.control.control import NoPolicyError
from reconciler.model.job_record import JobRecord
from reconciler.protocols.history import Event
from reconciler.protocols.terminals import NoTerminalError, TerminalEnd, TerminalLine, Window
from solver.model.document import decode, encode
from solver.model.workload import JobName

LOOK_EVERY_S: Final = 0.25
SEND_LIMIT_S: Final = 30.0
"""A client that takes nothing for so long is disconnected."""

ATTACHED_MAX: Final = 100

_MESSAGES: Final[dict[DetachReason, str]] = {
    "ended": "The task has ended.",
    "lost": "Nothing is heard of the task any more.",
    "expired": "The token has expired. Come again with a new one.",
    "not-allowed": "The policy in force lets you do this no more.",
    "bad-message": "That was neither bytes to type nor the size of a window.",
}


class AttachRoutes:
    """The endpoint; `router` has it. A server that stops closes all its WebSockets by itself."""

    def __init__(self, services: Services, authority: Authorisation) -> None:
        self._services = services
        self._authority = authority
        self._attached = 0
        self.router = APIRouter(tags=["jobs"])
        self.router.add_api_websocket_route("/v1/jobs/{name}/attach", self.attach)

    async def attach(
        self, socket: WebSocket, name: JobName, group: str = "", index: Annotated[int, Query(ge=0)] = 0
    ) -> None:
        """Attach to the terminal of a task: by default of the first group's first, in the newest attempt."""
        caller: Caller = socket.state.caller
        if self._attached >= ATTACHED_MAX:
            raise RequestRefusedError(
                503, "too-many-attached", f"{self._attached} others are attached.", "Try again later."
            )
        self._attached += 1
        try:
            record, line = await asyncio.to_thread(self._open, name, group, index, caller)
            try:
                await socket.accept()
                detached = await self._carry(socket, line, caller, record)
            finally:
                line.close()
            # A client that has gone need not be told.
            with suppress(WebSocketDisconnect):
                if detached is not None:
                    await socket.send_text(encode(detached).decode())
                    await socket.close()
        finally:
            self._attached -= 1

    def _open(self, name: JobName, group: str, index: int, caller: Caller) -> tuple[JobRecord, TerminalLine]:
        """Attach, once the user is on record. Raises RequestRefusedError."""
        record = self._authority.record(name)
        if not record.spec.terminal:
            fix = "Submit it with --pty, or with terminal: true."
            raise RequestRefusedError(409, "no-terminal", f"Job {name} has no terminal.", fix)
        view = job_view(self._services, record)
        group = group or record.spec.task_groups[0].name
        try:
            line = self._services.terminals.open_terminal(name, view.attempt, group, index)
        except NoTerminalError as error:
            fix = "Wait until it runs; `quorate why` says what it waits for, or how it ended."
            raise RequestRefusedError(
                409, "not-running", f"Job {name} is {view.state}: there is nothing to attach to.", fix
            ) from error
        try:
            event = Event(self._services.clock.now(), "attached", name, "a terminal", caller.user, view.state)
            self._services.history.record_event(event)
        except BaseException:
            line.close()
            raise
        return record, line

    async def _carry(self, socket: WebSocket, line: TerminalLine, caller: Caller, record: JobRecord) -> Detached | None:
        """Both ways, until one end lets go; None: it was the caller's."""
        carried: list[Coroutine[Any, Any, Detached | None]] = [
            _show(socket, line),
            self._until_over(caller, record),
            _type(socket, line),
        ]
        tasks = [asyncio.create_task(each) for each in carried]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return next(task.result() for task in tasks if not task.cancelled())

    async def _until_over(self, caller: Caller, record: JobRecord) -> Detached | None:
        while (reason := await asyncio.to_thread(self._over, caller, record)) is None:
            await asyncio.sleep(LOOK_EVERY_S)
        return _detached(reason)

    def _over(self, caller: Caller, record: JobRecord) -> DetachReason | None:
        if caller.until is not None and self._services.wall.now() >= caller.until:
            return "expired"
        try:
            may = self._authority.rights(caller).may("steer-job", record.spec.queue, record.user)
        except NoPolicyError:
            may = False
        return None if may else "not-allowed"


async def _show(socket: WebSocket, line: TerminalLine) -> Detached | None:
    """What the task shows; at last how it ended."""
    try:
        while isinstance(shown := await line.receive(), bytes):
            async with asyncio.timeout(SEND_LIMIT_S):
                await socket.send_bytes(shown)
    except (WebSocketDisconnect, TimeoutError):
        return None
    if not isinstance(shown, TerminalEnd):
        return _detached("lost")
    return Detached("ended", _MESSAGES["ended"], shown.code, shown.stopped)


async def _type(socket: WebSocket, line: TerminalLine) -> Detached | None:
    """What the caller types, and how large their window is."""
    try:
        while (message := await socket.receive())["type"] == "websocket.receive":
            text = message.get("text")
            if text is None:
                await line.send(message["bytes"])
            else:
                size = decode(text, WindowSize)
                await line.send(Window(size.rows, size.columns))
    except msgspec.MsgspecError:
        return _detached("bad-message")
    except NoTerminalError:
        # The client that shows it hears how it ended.
        await asyncio.Event().wait()
    return None


def _detached(reason: DetachReason) -> Detached:
    return Detached(reason, _MESSAGES[reason])
