"""Small buffers carry large messages whole."""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from reconciler.backends.baremetal.certificates import CONTROL_PLANE
from reconciler.backends.baremetal.read_buffers import TLS_RECORD_BYTES, keep_read_buffers_small
from reconciler.node.agent.identity import client_context
from tests.reconciler.backends.baremetal.trust import Trust


def test_a_message_larger_than_the_buffer_arrives_whole(trust: Trust, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SSLProtocol, "max_size", SSLProtocol.max_size)  # put back in the end
    keep_read_buffers_small()
    assert SSLProtocol.max_size == TLS_RECORD_BYTES
    message = bytes(range(256)) * 1_000
    context = client_context(trust.authority.ca_certificate)
    assert asyncio.run(_echoed(message, trust.authority.server_context(), context)) == message


async def _echoed(message: bytes, server: ssl.SSLContext, client: ssl.SSLContext) -> bytes:
    async def echo(connection: ServerConnection) -> None:
        await connection.send(await connection.recv())

    async with serve(echo, "127.0.0.1", 0, ssl=server, compression=None) as serving:
        port = next(iter(serving.sockets)).getsockname()[1]
        url = f"wss://127.0.0.1:{port}/"
        async with connect(url, ssl=client, server_hostname=CONTROL_PLANE, compression=None, proxy=None) as connection:
            await connection.send(message)
            return bytes(await connection.recv(decode=False))
