"""Where agents come in: the address that is listened on, and how many may stand there before they are known."""

from __future__ import annotations

import asyncio
import socket
from typing import Final, cast

from structlog.typing import FilteringBoundLogger
from websockets.asyncio.server import ServerConnection

from reconciler.connections.gate import TELL_EVERY_S, ConnectionGate
from reconciler.connections.limits import agents_limits
from reconciler.connections.listener import LimitedListener

REFUSALS_MAX: Final = 1_000
"""So many different ones are remembered."""


class AgentListenerError(Exception):
    """The agents' address can't be listened on: a person must act."""


class AgentListener:
    """`listener` and `connection` are for websockets' `serve`. Used in the door's thread alone. Raises AgentListenerError."""

    def __init__(self, address: tuple[str, int], log: FilteringBoundLogger) -> None:
        self._told_again_s: dict[str, float] = {}
        self._gate = gate = ConnectionGate(agents_limits(), log)
        self.listener = LimitedListener(_listening(*address), gate)

        class Displaceable(ServerConnection):
            """Until it is kept. During the TLS handshake there is no such object yet, and its socket is shut down."""

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                """Let go of it at once, whatever it has not read."""
                super().connection_made(transport)
                gate.found(_descriptor(transport)).displace = cast("asyncio.Transport", transport).abort

        self.connection = Displaceable

    def is_news(self, refusal: str) -> bool:
        """Once a minute for each that is said: clients may be refused as often as they like."""
        now_s = self._gate.clock_s()
        if now_s < self._told_again_s.get(refusal, now_s):
            return False
        if len(self._told_again_s) >= REFUSALS_MAX:
            self._told_again_s.clear()
        self._told_again_s[refusal] = now_s + TELL_EVERY_S
        return True

    def keep(self, connection: ServerConnection) -> None:
        """It is an agent, and stays."""
        if not connection.transport.is_closing():
            self._gate.keep(self._gate.found(_descriptor(connection.transport)))


def _descriptor(transport: asyncio.BaseTransport) -> int:
    number: int = transport.get_extra_info("socket").fileno()
    return number


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise AgentListenerError(f"{host}:{port}: {error.strerror}. Choose another --agents-listen") from error
