"""Serves HTTP from a thread, beside the loop: the API, and what has an address of its own."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable
from functools import partial
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self, cast

import structlog
import uvicorn
from fastapi import APIRouter
from starlette.applications import Starlette
from structlog.typing import FilteringBoundLogger

from reconciler.api.app import create_app
from reconciler.api.attach_payloads import MESSAGE_BYTES_MAX
from reconciler.api.guard import Guard, check_binding
from reconciler.api.limited_http import FULL, LimitedHttp
from reconciler.api.services import Services
from reconciler.connections.gate import ConnectionGate
from reconciler.connections.limits import USUAL_TIMEOUTS, ConnectionLimits, RequestTimeouts, api_limits
from reconciler.connections.listener import LimitedListener, SeldomLogged

_START_LIMIT_S = 30.0
_SWEEP_EVERY_S: Final = 1.0

_SELDOM: Final = SeldomLogged("Invalid HTTP request received.", "Unsupported upgrade request.")
"""What any client can make uvicorn write."""


class AddressError(Exception):
    """The server can't listen there."""


class HttpServer:
    """A running server. Close it, or use it as a context manager.

    Raises AddressError for an address that can't be had; `option` is the one to give another with. Port 0 takes a free one; `url`
    says which. What goes on and on ends when `closing` is set.
    """

    def __init__(
        self,
        app: Starlette,
        host: str,
        port: int,
        limits: ConnectionLimits,
        timeouts: RequestTimeouts = USUAL_TIMEOUTS,
        log: FilteringBoundLogger | None = None,
        closing: Event | None = None,
        option: str = "--listen",
    ) -> None:
        gate = ConnectionGate(limits, log or structlog.get_logger("quorate"))
        self._closing = closing or Event()
        self._socket = LimitedListener(_listen(host, port, option), gate, FULL)
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self._socket.getsockname()[1]}"
        started = Event()
        config = uvicorn.Config(
            app,
            # What accepts connections is asyncio's, whatever else is installed.
            loop="asyncio",
            http=cast("type[asyncio.Protocol]", partial(LimitedHttp, gate=gate, timeouts=timeouts)),
            timeout_keep_alive=cast("int", timeouts.idle_s),
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="websockets-sansio",
            ws_max_size=MESSAGE_BYTES_MAX,
        )
        for each in (_is_news, _SELDOM):
            logging.getLogger("uvicorn.error").addFilter(each)
        self._server = _Server(config, started, gate)
        self._thread = Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, name="api", daemon=True)
        self._thread.start()
        if not started.wait(_START_LIMIT_S):
            raise AddressError(f"{self.url}: the server did not start; see the log")

    @property
    def alive(self) -> bool:
        """Whether it still serves."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Finish the requests in progress, end streams, then stop listening."""
        self._closing.set()
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ApiServer(HttpServer):
    """The API, running. Raises InsecureBindingError for an address beyond loopback without authentication, and AddressError."""

    def __init__(
        self,
        services: Services,
        guard: Guard,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        limits: ConnectionLimits | None = None,
        timeouts: RequestTimeouts = USUAL_TIMEOUTS,
        log: FilteringBoundLogger | None = None,
        routers: Iterable[APIRouter] = (),
    ) -> None:
        check_binding(host, guard)
        closing = Event()
        app = create_app(services, guard, closing, routers)
        super().__init__(app, host, port, limits or api_limits(), timeouts, log, closing)


class _Server(uvicorn.Server):
    """Says when it listens, and sees to it that connections end in time, also while it stops."""

    def __init__(self, config: uvicorn.Config, started: Event, gate: ConnectionGate) -> None:
        super().__init__(config)
        self._listening = started
        self._gate = gate

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._sweep()
        self._listening.set()

    def _sweep(self) -> None:
        self._gate.sweep()
        asyncio.get_running_loop().call_later(_SWEEP_EVERY_S, self._sweep)


def _is_news(record: logging.LogRecord) -> bool:
    """uvicorn 0.54 takes every WebSocket that was refused with an answer for an error of ours."""
    return record.getMessage() != "ASGI callable returned without completing handshake."


def _listen(host: str, port: int, option: str) -> socket.socket:
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise AddressError(
            f"{host}:{port}: can't listen there: {error.strerror}. Choose another with {option}"
        ) from error
    # Connections inherit it. Without it every answer in two parts waits 40 ms for the caller's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
