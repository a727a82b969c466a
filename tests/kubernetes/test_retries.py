"""What is asked again when a connection breaks, and what is not, since nobody knows whether it was done."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest

from hack.kubernetes.certificates import Authority
from reconciler.kubernetes.client import api as api_module
from reconciler.kubernetes.client.api import TRIES_MAX, Api, Check
from reconciler.kubernetes.client.credentials import fixed_credentials
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.kubernetes.client.refusals import UnreachableError
from reconciler.model.clock import SystemClock

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
        credentials = fixed_credentials(f"https://127.0.0.1:{port}", AUTHORITY.pem.decode(), SystemClock())
        async with server, Api(credentials, RateLimiter(1_000, 1_000, SystemClock()), Random(1), self.rest) as api:
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


WRITES: list[Callable[[Api, Check], Awaitable[Any]]] = [
    lambda api, check: api.create("/a", {}, check),
    lambda api, check: api.replace("/a", {}, check),
    lambda api, check: api.patch("/a", {}, check),
    lambda api, check: api.delete("/a", {}, check),
]


class OverError(Exception):
    """What a check raises."""


@pytest.mark.parametrize("write", WRITES)
def test_what_has_to_be_so_is_looked_at_before_each_try_and_a_connection_made_soon(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[Api, Check], Awaitable[Any]]
) -> None:
    """The server accepts connections, and never says a word."""
    monkeypatch.setattr(api_module, "_CHECKED_LIMITS", aiohttp.ClientTimeout(sock_connect=0.02))
    looked = 0

    async def story() -> int:
        left = []

        async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                await reader.read()
            writer.transport.abort()
            left.append(writer)

        server = await asyncio.start_server(hear, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        deaf = fixed_credentials(f"https://127.0.0.1:{port}", AUTHORITY.pem.decode(), SystemClock())
        rested = 0

        async def rest(_: float) -> None:
            nonlocal rested
            rested += 1

        def check() -> None:
            nonlocal looked
            looked += 1
            if looked == TRIES_MAX - 1:
                raise OverError

        async with Api(deaf, RateLimiter(1_000, 1_000, SystemClock()), Random(1), rest) as api:
            with pytest.raises(OverError):
                await write(api, check)
        async with server, asyncio.timeout(60):
            while len(left) < rested:
                await asyncio.sleep(0.01)
        return rested

    assert asyncio.run(story()) == TRIES_MAX - 2
    assert looked == TRIES_MAX - 1


@pytest.mark.parametrize(
    "deed", [lambda api: api.get("/x", dict[str, Any]), lambda api: api.patch("/x", {})], ids=["read", "write"]
)
def test_a_session_that_is_over_sends_nothing_and_says_so_at_once(tmp_path: Path, deed: Deed) -> None:
    server = Fickle(1)

    async def story() -> None:
        async with server.session(tmp_path) as api:
            pass
        with pytest.raises(UnreachableError, match="the session is over") as error:
            await deed(api)
        assert not error.value.sent

    asyncio.run(story())
    assert (server.read, server.rests) == ([], 0)
