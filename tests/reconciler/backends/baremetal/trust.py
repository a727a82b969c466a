"""An authority on a fresh store, and its door: a real TLS port with the paths on which nodes join."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response

from reconciler.backends.baremetal.authority import CertificateAuthority, UntrustedError
from reconciler.backends.baremetal.authority_file import AuthorityFile
from reconciler.backends.baremetal.certificates import Key, node_certificate, request_for
from reconciler.backends.baremetal.desk import AgentDesk
from reconciler.backends.baremetal.enrolment import Enrolment, roots_response, serve_joining
from reconciler.backends.baremetal.join_token import JoinToken, read_token
from reconciler.backends.baremetal.join_wire import JOIN_PATH, ROOTS_PATH
from reconciler.backends.baremetal.roots import signing_roots
from reconciler.model.clock import SystemClock
from reconciler.store.store import SqlStore
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from tests.fresh_store import fresh_store

NODE, OTHER = NodeName("gpu-1"), NodeName("gpu-2")
HOUR = Duration(3_600_000)


class LaterClock(SystemClock):
    """The machine's clock, moved as a test likes."""

    moved: int = 0

    def now(self) -> Instant:
        return super().now().after(self.moved)


@dataclass
class Trust:
    """One control plane's side of who is who."""

    store: SqlStore
    file: AuthorityFile
    clock: LaterClock
    authority: CertificateAuthority

    @property
    def joining(self) -> Enrolment:
        return Enrolment(self.authority, self.store.agents, self.store.history, self.clock)

    def token(self, node: NodeName = NODE) -> JoinToken:
        now = self.clock.now()
        return read_token(AgentDesk(self.store.agents, self.authority).invite(node, "ada", now, now.after(HOUR)))

    def certificate(self, key: Key, node: NodeName = NODE, generation: int = 1) -> x509.Certificate:
        """Signed as for this node, whether it has joined or not."""
        root = signing_roots(self.file.roots(), self.clock.now()).signing
        return node_certificate(root.certificate, root.key, request_for(node, key), generation, self.clock.now())

    def joined(self, node: NodeName = NODE) -> None:
        """The node is on record, in its first generation."""
        now = self.clock.now()
        self.store.agents.join(self.token(node).hash, node, "key", now, now.after(24 * HOUR))


@contextmanager
def trust_in(folder: Path) -> Iterator[Trust]:
    """A fresh one, whose authority signs since long ago."""
    store, clock = fresh_store(folder / "quorate.db"), LaterClock()
    file = AuthorityFile(folder / "agents" / "authority.pem")
    file.make(clock.now().after(-1000 * HOUR))
    yield Trust(store, file, clock, CertificateAuthority(file, store.agents, clock))
    store.close()


def der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


@contextmanager
def door(trust: Trust, joining: Enrolment | None = None) -> Iterator[int]:
    """Its port on loopback. Beside joining it has `/who`, which answers with the node of the client's certificate."""
    loop, joining = asyncio.new_event_loop(), joining or trust.joining

    def plain(connection: ServerConnection, request: Request) -> Response | None:
        return roots_response(connection, joining) if request.path == ROOTS_PATH else None

    async def handle(connection: ServerConnection) -> None:
        if connection.request is not None and connection.request.path == JOIN_PATH:
            await serve_joining(connection, joining)
            return
        peer = connection.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        try:
            said = trust.authority.node_of(peer) if peer else "nobody"
        except UntrustedError as error:
            said = str(error)
        await connection.send(said)

    async def run() -> None:
        context = trust.authority.server_context()
        async with serve(handle, "127.0.0.1", 0, ssl=context, process_request=plain, compression=None) as server:
            opened.append(server.sockets[0].getsockname()[1])
            ready.set()
            await closing.wait()

    opened: list[int] = []
    ready, closing = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    assert ready.wait(60)
    try:
        yield opened[0]
    finally:
        loop.call_soon_threadsafe(closing.set)
        thread.join(60)
        loop.close()
