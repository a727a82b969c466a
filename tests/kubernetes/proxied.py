"""A connection to the server that can be cut: bytes are passed on, until all that are open break off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from hack.kubernetes.cluster import Cluster
from tests.kubernetes.sessions import ADMINS


class Cuttable:
    """`kubeconfig` leads through it."""

    def __init__(self, cluster: Cluster) -> None:
        self._to = urlsplit(cluster.server)
        self._cluster = cluster
        self._open: set[asyncio.StreamWriter] = set()
        self.kubeconfig = Path()

    def cut(self) -> None:
        """Every open connection breaks off, both ways, with what was under way in it; new ones may be made."""
        for writer in self._open:
            writer.transport.abort()

    def refuse(self) -> None:
        """As `cut`, and no new ones may be made."""
        self._server.close()
        self.cut()

    async def serve(self) -> asyncio.Server:
        self._server = server = await asyncio.start_server(self._passed_on, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        content = json.loads(self._cluster.kubeconfig("admin", ADMINS).read_text())
        content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
        self.kubeconfig = self._cluster.folder / f"through-{port}.kubeconfig"
        self.kubeconfig.write_text(json.dumps(content))
        return server

    async def _passed_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._to.hostname, self._to.port)
        ends = {writer, far_writer}
        self._open |= ends
        async with asyncio.TaskGroup() as both:
            both.create_task(_pumped(reader, far_writer))
            both.create_task(_pumped(far_reader, writer))
        self._open -= ends


async def _pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # it was cut
        while block := await reader.read(65536):
            writer.write(block)
            await writer.drain()
    writer.transport.abort()


@asynccontextmanager
async def cuttable(cluster: Cluster) -> AsyncIterator[Cuttable]:
    """A way to the server that can be cut."""
    way = Cuttable(cluster)
    server = await way.serve()
    try:
        yield way
    finally:
        server.close()
        way.cut()
        await server.wait_closed()
