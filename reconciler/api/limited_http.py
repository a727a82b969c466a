"""HTTP connections with an end: how long headers, bodies and silence may take, and what a newer connection may displace."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Literal, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from reconciler.connections.gate import ConnectionGate, OpenConnection
from reconciler.connections.limits import RequestTimeouts

BODY_BYTES_PER_S_MIN: Final = 1024
"""Every so many bytes of a body give it a second more: slow lines get through, and those that only hold the connection don't."""

SEND_S: Final = 60.0
"""A client that takes nothing of an answer for so long is disconnected."""

LATE: Final = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n"


class LimitedHttp(H11Protocol):
    """uvicorn's protocol, which itself ends idle connections alone.

    What a connection is about is read off h11: it waits for a header, for a body, or its request is being answered.
    """

    def __init__(self, *, gate: ConnectionGate, timeouts: RequestTimeouts, **given: Any) -> None:
        super().__init__(**given)
        self._gate = gate
        self._timeouts = timeouts
        self._phase: Literal["header", "body", "answer", "idle", "upgraded"] = "header"
        self._received = self._untaken = 0
        self._body_began_s = self._taken_by_s = 0.0
        self._opened: OpenConnection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Its time for the first header begins."""
        super().connection_made(cast("asyncio.Transport", transport))
        self._opened = self._gate.found(transport.get_extra_info("socket").fileno())
        self._opened.displace, self._opened.late = self.transport.abort, self._end_late
        self._gate.wait(self._opened, self._gate.clock_s() + self._timeouts.header_s)

    def data_received(self, data: bytes) -> None:
        """As usual; then see what that has completed."""
        self._received += len(data)
        super().data_received(data)
        self._follow(received=True)

    def on_response_complete(self) -> None:
        """As usual; whatever comes next is another request."""
        super().on_response_complete()
        self._follow(received=False)

    def pause_writing(self) -> None:
        """As usual; and the time begins in which some of it has to be taken."""
        super().pause_writing()
        self._wait_for_taking()

    def resume_writing(self) -> None:
        """As usual."""
        super().resume_writing()
        if self._phase == "answer":
            self._opened.deadline_s = None

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """It is a WebSocket from now on: its route says how long it may last."""
        self._phase = "upgraded"
        self._gate.answer(self._opened)
        super().handle_websocket_upgrade(event)

    def _follow(self, *, received: bool) -> None:
        if self._phase == "upgraded" or self.transport.is_closing():
            return
        theirs = self.conn.their_state
        if theirs is h11.IDLE and received:
            self._wait_for_header()
        elif theirs is h11.IDLE:
            self._phase = "idle"
            # uvicorn ends it first, but for one that has not taken all of its answer yet.
            self._gate.wait(self._opened, self._gate.clock_s() + self._timeouts.idle_s + SEND_S)
        elif theirs is h11.SEND_BODY:
            self._wait_for_body()
        else:
            self._phase = "answer"
            self._gate.answer(self._opened)
        if self.flow.write_paused:
            # Of the answer before: the next one waits for that.
            self._opened.deadline_s = self._taken_by_s

    def _wait_for_header(self) -> None:
        if self._phase != "header":
            self._phase = "header"
            self._gate.wait(self._opened, self._gate.clock_s() + self._timeouts.header_s)

    def _wait_for_body(self) -> None:
        if self._phase != "body":
            self._phase = "body"
            self._received, self._body_began_s = 0, self._gate.clock_s()
            self._gate.wait(self._opened)
        earned_s = self._received / BODY_BYTES_PER_S_MIN
        self._opened.deadline_s = self._body_began_s + self._timeouts.body_s + earned_s

    def _wait_for_taking(self) -> None:
        self._untaken = self.transport.get_write_buffer_size()
        self._taken_by_s = self._opened.deadline_s = self._gate.clock_s() + SEND_S

    def _end_late(self) -> None:
        if self.flow.write_paused and self.transport.get_write_buffer_size() < self._untaken:
            # Some of it was taken.
            self._opened.late = self._end_late
            self._wait_for_taking()
            return
        if self._phase == "body" and self.flow.read_paused:
            # It is the server that does not read on.
            self._body_began_s = self._gate.clock_s()
            self._opened.late = self._end_late
            self._wait_for_body()
            return
        if self.transport.get_write_buffer_size():
            self.transport.abort()
            return
        unanswered = self._phase == "header" or (self._phase == "body" and not self.cycle.response_started)
        if self._received and unanswered:
            self.transport.write(LATE)
        self.transport.close()
