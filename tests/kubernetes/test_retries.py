"""What is asked again when a connection breaks, and what is not, since nobody knows whether it was done."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hack.kubernetes.certificates import Authority
from reconciler.backends.kubernetes.api import TRIES_MAX, Api
from reconciler.backends.kubernetes.credentials import Credentials, FixedToken, trusting
from reconciler.backends.kubernetes.pace import Pace
from reconciler.backends.kubernetes.refusals import UnreachableError
from reconciler.clock import SystemClock

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
AUTHORITY = Authority()

Deed = Callable[[Api], Awaitable[Any]]


class Fickle:
    """A server that answers the first `answers` requests, and breaks off at each later one after it has read it."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self.read: list[str] = []
        self.rests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.read.append(head.split(b" ")[0].decode())
                if len(self.read) > self._answers:
                    break
                if b"Content-Length: 2" in head:
                    await reader.readexactly(2)
                writer.write(ANSWER)
        except asyncio.IncompleteReadError:
            pass  # the client has left
        writer.transport.abort()

    async def rest(self, _: float) -> None:
        self.rests += 1

    @asynccontextmanager
    async def session(self, folder: Path) -> AsyncIterator[Api]:
        certificate, key = AUTHORITY.server()
        (folder / "server.pem").write_bytes(certificate + key)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(folder / "server.pem")
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        credentials = Credentials(f"https://127.0.0.1:{port}", trusting(AUTHORITY.pem.decode()), FixedToken(""))
        async with server, Api(credentials, Pace(1_000, 1_000, SystemClock()), Random(1), self.rest) as api:
            yield api


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
@pytest.mark.parametrize("answers", [0, 1], ids=["first", "kept connection"])
@pytest.mark.parametrize(
    ("method", "deed", "tries"),
    [
        ("GET", lambda api: api.get("/a", dict[str, Any]), TRIES_MAX),
        ("POST", lambda api: api.create("/a", {}), 1),
        ("PUT", lambda api: api.replace("/a", {}), 1),
        ("PATCH", lambda api: api.patch("/a", {}), 1),
        ("DELETE", lambda api: api.delete("/a", {}), 1),
    ],
)
def test_only_reads_are_asked_again_when_no_answer_comes(
    tmp_path: Path, answers: int, method: str, deed: Deed, tries: int
) -> None:
    async def story() -> Fickle:
        server = Fickle(answers)
        async with server.session(tmp_path) as api:
            for _ in range(answers):
                await deed(api)
            with pytest.raises(UnreachableError) as silent:
                await deed(api)
            assert silent.value.sent
        return server

    server = asyncio.run(story())
    assert server.read == [method] * (answers + tries)
    assert server.rests == tries - 1
