"""A listening socket for asyncio that asks a gate what to let in, and rests where there is no descriptor left."""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from reconciler.connections.gate import ConnectionGate

_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_REST_S: Final = 1.0
"""asyncio asks again after this (asyncio.constants.ACCEPT_RETRY_DELAY)."""

LOG_EVERY_S: Final = 60.0


class LimitedListener(socket.socket):
    """Hand it to asyncio's `create_server`. `refusal`: what those are told that can't be let in."""

    def __init__(self, listening: socket.socket, gate: ConnectionGate, refusal: bytes = b"") -> None:
        family, kind, protocol = listening.family, listening.type, listening.proto
        super().__init__(family, kind, protocol, fileno=listening.detach())
        logging.getLogger("asyncio").addFilter(_SELDOM)
        self._gate = gate
        self._refusal = refusal
        self._rest_until_s = float("-inf")

    def accept(self) -> tuple[socket.socket, Any]:
        """The next one that may stay. Raises BlockingIOError where there is none now, and another OSError at most once a second.

        asyncio calls this up to a backlog's length in a row. Told that there is no descriptor left, it asks again in a second,
        but goes on in its row first: each call would make another such pause, and write a line with a traceback.
        """
        if self._gate.is_overfull or time.monotonic() < self._rest_until_s:
            raise BlockingIOError
        try:
            bare, address = super().accept()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                self._rest_until_s = time.monotonic() + _REST_S
            raise
        accepted = _AcceptedSocket(bare, self._gate.gone)
        if self._gate.admit(accepted.fileno(), str(address[0]), accepted.let_go):
            return accepted, address
        with accepted, suppress(OSError):
            accepted.setblocking(False)
            accepted.send(self._refusal)
        raise BlockingIOError


class _AcceptedSocket(socket.socket):
    """Tells before its descriptor is free for another."""

    def __init__(self, bare: socket.socket, gone: Callable[[int], None]) -> None:
        family, kind, protocol = bare.family, bare.type, bare.proto
        super().__init__(family, kind, protocol, fileno=bare.detach())
        self._gone = gone

    def let_go(self) -> None:
        """Whatever reads it finds its end. The way to displace one that has no protocol yet, as during a TLS handshake."""
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """As usual."""
        if (descriptor := self.fileno()) >= 0:
            self._gone(descriptor)
        super().close()


class SeldomLogged(logging.Filter):
    """Lets messages that begin so through at most once a minute each: a client that causes them could fill a disk."""

    def __init__(self, *beginnings: str) -> None:
        super().__init__()
        self._next_s = dict.fromkeys(beginnings, float("-inf"))

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is to be logged."""
        message = record.getMessage()
        beginning = next((each for each in self._next_s if message.startswith(each)), None)
        if beginning is None:
            return True
        now_s = time.monotonic()
        if now_s < self._next_s[beginning]:
            return False
        self._next_s[beginning] = now_s + LOG_EVERY_S
        return True


_SELDOM: Final = SeldomLogged("socket.accept() out of system resource")
