"""What comes through the door: agents with a certificate that counts, and nodes that want one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from reconciler.backends.baremetal.authority import CertificateAuthority, UntrustedError
from reconciler.backends.baremetal.certificates import NodeIdentity
from reconciler.backends.baremetal.enrolment import Enrolment, roots_response, serve_joining
from reconciler.backends.baremetal.join_wire import JOIN_PATH, ROOTS_PATH
from reconciler.backends.baremetal.wire import AGENT_PATH, PROTOCOL, Hello
from solver.model.document import decode

HELLO_WITHIN_S: Final = 10.0


class Entry:
    """Nodes join and renew their certificates here, whether this control plane leads or not."""

    def __init__(self, authority: CertificateAuthority, joining: Enrolment) -> None:
        self.server_context = authority.server_context
        self._authority = authority
        self._joining = joining

    def route(self, connection: ServerConnection, request: Request) -> Response | None:
        """What is answered at once; None: a WebSocket follows."""
        if request.path == ROOTS_PATH:
            return roots_response(connection, self._joining)
        if request.path in (AGENT_PATH, JOIN_PATH):
            return None
        return connection.respond(HTTPStatus.NOT_FOUND, "Only agents connect here.\n")

    async def joins(self, connection: ServerConnection) -> bool:
        """Whether this was a node that wanted a certificate; it has been answered."""
        if connection.request is None or connection.request.path != JOIN_PATH:
            return False
        await serve_joining(connection, self._joining)
        return True

    async def hello(self, connection: ServerConnection) -> tuple[NodeIdentity, Hello]:
        """The identity of an agent, and what it says first. Raises UntrustedError, msgspec.MsgspecError, TimeoutError."""
        certificate = connection.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if certificate is None:
            raise UntrustedError("it shows no certificate")
        identity = await asyncio.to_thread(self._authority.identity_of, certificate)
        async with asyncio.timeout(HELLO_WITHIN_S):
            hello = decode(await connection.recv(), Hello)
        if hello.protocol != PROTOCOL:
            raise UntrustedError(f"it speaks protocol {hello.protocol}, and this control plane {PROTOCOL}")
        if hello.node != identity.node:
            raise UntrustedError(f"its certificate is that of {identity.node}, and it says that it is {hello.node}")
        return identity, hello

    async def no_longer(self, connected: Iterable[NodeIdentity]) -> dict[NodeIdentity, str]:
        """Those that are not trusted any more, each with the reason."""
        return await asyncio.to_thread(self._authority.no_longer, connected)
