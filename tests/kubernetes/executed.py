"""A kubelet's door for pods/exec, without containers: what is to be run is written down, and ends as the test says."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects.resource import NODES

PROTOCOL = "v5.channel.k8s.io"
FEATURE = "ExtendWebSocketsToKubelet"
"""What a node declares whose kubelet speaks websockets itself: else the API server speaks SPDY to it."""


class Door:
    """`run`: pod, container and command of each that was run. `ends`: what each says at its end; None: it goes on for ever."""

    def __init__(self) -> None:
        self.run: list[tuple[str, str, list[str]]] = []
        self.ends: list[dict[str, Any] | None] = []

    async def opened(self, request: web.Request) -> web.WebSocketResponse:
        """The channels of one command."""
        channels = web.WebSocketResponse(protocols=(PROTOCOL,))
        await channels.prepare(request)
        return channels

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        channels = await self.opened(request)
        here = request.match_info
        self.run.append((here["pod"], here["container"], request.query.getall("command")))
        await channels.send_bytes(b"\x01saving ...\n")
        ends = self.ends.pop(0) if self.ends else {"status": "Success"}
        if ends is None:
            await channels.receive()
        else:
            await channels.send_bytes(b"\x03" + json.dumps(ends).encode())
        await channels.close()
        return channels


@asynccontextmanager
async def executing(cluster: Cluster, api: Api, node: str, door: Door | None = None) -> AsyncIterator[Door]:
    """Commands for pods of this node come to the door, within the block."""
    door, app = door or Door(), web.Application()
    app.router.add_get("/exec/{namespace}/{pod}/{container}", door.serve)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    certificate, key = cluster.authority.server()
    path = cluster.folder / "kubelet.pem"
    path.write_bytes(certificate + key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    await asyncio.to_thread(tls.load_cert_chain, path)
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        port = runner.addresses[0][1]
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "declaredFeatures": [FEATURE],
        }
        await api.patch(NODES.path("", node, "status"), {"status": status})
        yield door
    finally:
        await runner.cleanup()
