"""One agent's connection, as the door has it."""

from __future__ import annotations

import asyncio
from typing import Final

from websockets.asyncio.server import ServerConnection

from reconciler.backends.baremetal.certificates import NodeIdentity
from reconciler.backends.baremetal.wire import FEATURES_HEADER, GPU_USE, Declare, ToAgent
from solver.model.cluster import Node, NodeName
from solver.model.document import encode
from solver.model.quantities import Duration

UNSENT_BYTES_MAX: Final = 2**26
"""An agent that takes so little that this piles up is disconnected, and told everything anew."""
CLOSED_WITHIN_S: Final = 1.0
REASON_MAX: Final = 100
"""Bytes of a close frame's reason (RFC 6455, 5.5.1: 123)."""


class AgentConnection:
    """Used in the door's thread alone."""

    def __init__(self, identity: NodeIdentity, connection: ServerConnection) -> None:
        self.identity = identity
        self._connection = connection
        features = connection.request.headers.get_all(FEATURES_HEADER) if connection.request else ()
        self._samples = GPU_USE in " ".join(features).split()
        self._declared: Declare | None = None
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        self._unsent = 0

    @property
    def node(self) -> NodeName:
        """For which it speaks."""
        return self.identity.node

    def send(self, message: ToAgent) -> None:
        """Put it behind what is under way."""
        content = encode(message)
        self._unsent += len(content)
        if self._unsent > UNSENT_BYTES_MAX:
            self.abort()
            return
        self._outgoing.put_nowait(content)

    def declare(self, node: Node | None, sample_every: Duration | None) -> None:
        """Say what Git says of the node, and how often its GPUs are sampled, unless that is what was said last."""
        declared = Declare(node, sample_every if self._samples else None)
        if self._declared != declared:
            self._declared = declared
            self.send(declared)

    async def carry(self) -> None:
        """Send what was put, in order. Raises ConnectionClosed."""
        while True:
            content = await self._outgoing.get()
            await self._connection.send(content.decode())
            self._unsent -= len(content)

    def abort(self) -> None:
        """Let go of an agent that does not take it, or says nothing: no goodbye is sent."""
        self._connection.transport.abort()

    async def close(self, code: int, reason: str) -> None:
        """Let go, if need be without a goodbye: the library waits for ever for an agent that takes nothing sent before it."""
        try:
            async with asyncio.timeout(CLOSED_WITHIN_S):
                await self._connection.close(code, reason[:REASON_MAX])
        except TimeoutError:
            self.abort()
