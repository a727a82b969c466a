"""Who reads a long answer slowly gets all of it; who reads nothing does not. The clock is a number, the transport a stand-in."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
import uvicorn
from uvicorn.server import ServerState

from reconciler.api.limited_http import SEND_S, LimitedHttp
from reconciler.connections.gate import ConnectionGate
from reconciler.connections.limits import USUAL_TIMEOUTS, ConnectionLimits


class Line(asyncio.Transport):
    """`untaken`: what the other end has not read yet."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__({"socket": end})
        self.untaken = 0
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.untaken

    def abort(self) -> None:
        self.aborted = True


@dataclass
class Reading:
    """A connection whose answer was written at once, all 10,000,000 bytes of it."""

    line: Line
    http: LimitedHttp
    gate: ConnectionGate
    now_s: float = 0.0

    def minute(self, taken: int) -> None:
        """The other end reads so much, and time is up."""
        self.line.untaken -= taken
        self.now_s += SEND_S
        self.gate.sweep()


@pytest.fixture
def reading() -> Iterator[Reading]:
    here, there = socket.socketpair()
    with here, there:
        gate = ConnectionGate(ConnectionLimits(1, 1), structlog.get_logger("quorate.test"), lambda: made.now_s)
        loop: Any = None
        config = uvicorn.Config(lambda: None, log_config=None)
        config.load()
        http = LimitedHttp(
            gate=gate,
            timeouts=USUAL_TIMEOUTS,
            config=config,
            server_state=ServerState(),
            app_state={},
            _loop=loop or object(),
        )
        made = Reading(Line(here), http, gate)
        gate.admit(here.fileno(), "192.0.2.1", lambda: None)
        http.connection_made(made.line)
        made.line.untaken = 10_000_000
        http.pause_writing()
        yield made


def test_who_takes_some_each_minute_gets_all(reading: Reading) -> None:
    for _ in range(9):
        reading.minute(taken=1_000_000)
    assert not reading.line.aborted


def test_who_takes_nothing_for_a_minute_is_let_go_of(reading: Reading) -> None:
    reading.minute(taken=1)
    assert not reading.line.aborted
    reading.minute(taken=0)
    assert reading.line.aborted
