"""Serves the API from a thread, beside the loop."""

from __future__ import annotations

import logging
import socket
from threading import Event, Thread
from types import TracebackType
from typing import Self

import uvicorn

from reconciler.api.app import create_app
from reconciler.api.attach_payloads import MESSAGE_BYTES_MAX
from reconciler.api.guard import Guard, check_binding
from reconciler.api.services import Services

_START_LIMIT_S = 30.0


class AddressError(Exception):
    """The server can't listen there."""


class ApiServer:
    """A running server. Close it, or use it as a context manager.

    Raises InsecureBindingError for an address beyond loopback without authentication, AddressError for one that can't
    be had. Port 0 takes a free one; `url` says which.
    """

    def __init__(self, services: Services, guard: Guard, host: str = "127.0.0.1", port: int = 0) -> None:
        check_binding(host, guard)
        self._closing = Event()
        app = create_app(services, guard, self._closing)
        self._socket = _listen(host, port)
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self._socket.getsockname()[1]}"
        started = Event()
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="websockets-sansio",
            ws_max_size=MESSAGE_BYTES_MAX,
        )
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        self._server = _Server(config, started)
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


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config, started: Event) -> None:
        super().__init__(config)
        self._listening = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listening.set()


def _is_news(record: logging.LogRecord) -> bool:
    """uvicorn 0.54 takes every WebSocket that was refused with an answer for an error of ours."""
    return record.getMessage() != "ASGI callable returned without completing handshake."


def _listen(host: str, port: int) -> socket.socket:
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise AddressError(
            f"{host}:{port}: can't listen there: {error.strerror}. Choose another with --listen"
        ) from error
    # Connections inherit it. Without it every answer in two parts waits 40 ms for the caller's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
