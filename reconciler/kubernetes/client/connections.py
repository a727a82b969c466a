"""The sockets of a session, so that none outlives it: a cut-off request takes leave of a server that may not answer any more."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

TURNS_MAX: Final = 20
"""Turns of the event loop: a connection that was shut is gone in three or four of them."""


class Sockets:
    """Makes the sockets of an `aiohttp.TCPConnector` (its `socket_factory`), and knows those that are open."""

    def __init__(self) -> None:
        self._made: WeakSet[socket.socket] = WeakSet()

    def __call__(self, address: tuple[Any, ...]) -> socket.socket:
        """A new one, for an address as `getaddrinfo` gives it."""
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        self._made.add(made)
        return made

    async def ended(self) -> None:
        """Return once none is open any more. aiohttp ends TLS politely, and does not wait where a request was cut off."""
        for _ in range(TURNS_MAX):
            left = [one for one in self._made if one.fileno() >= 0]
            if not left:
                return
            for one in left:
                with suppress(OSError):  # the other end was faster
                    one.shutdown(socket.SHUT_RDWR)
            await asyncio.sleep(0)
