"""The server's process: takes in beats over WebSockets and TLS, on one core, and says what that took."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from hack.heartbeats.figures import Served
from hack.heartbeats.stamps import Stamps
from hack.heartbeats.world import HOST, Case, authority, number_of
from solver.world.cluster import NodeName
from solver.world.document import Document, decode


class Beat(Document, frozen=True, tag=True):
    """An agent is there."""


class Work:
    """A thread that never waits, as the loop's does in a round. Of the interpreter's lock it leaves what others ask for."""

    def __init__(self, wanted: bool) -> None:
        self.cpu_s = 0.0
        if wanted:
            threading.Thread(target=self._go_on, daemon=True).start()

    def _go_on(self) -> None:
        while True:
            sum(number % 7 for number in range(10_000))
            self.cpu_s = time.thread_time()


class Counting:
    """Every beat with its latency, until it is asked for them."""

    def __init__(self, stamps: Stamps, work: Work) -> None:
        self._stamps = stamps
        self._work = work
        self._latencies_ms: list[float] = []
        self._began = self._now()

    def heard(self, node: NodeName) -> None:
        """A beat has been taken in."""
        sent_ns = self._stamps.last_ns(number_of(node))
        self._latencies_ms.append((time.monotonic_ns() - sent_ns) / 1e6)

    def taken(self) -> Served:
        """Those since it was asked last."""
        began, self._began = self._began, self._now()
        latencies, self._latencies_ms = self._latencies_ms, []
        wall_s, cpu_s, work_s = (now - then for now, then in zip(self._began, began, strict=True))
        return Served(len(latencies), wall_s, cpu_s - work_s, work_s, latencies)

    def _now(self) -> tuple[float, float, float]:
        return time.monotonic(), time.process_time(), self._work.cpu_s


class BeatByPing(ServerConnection):
    """A connection on which pings are beats."""

    counting: Counting
    node: NodeName | None = None

    def process_event(self, event: Any) -> None:
        """Count a ping; the library answers it."""
        if isinstance(event, Frame) and event.opcode is Opcode.PING and self.node is not None:
            self.counting.heard(self.node)
        super().process_event(event)


def listen(case: Case, told: Connection, core: int | None) -> None:
    """Serve until it is told to stop; each time it is asked, say what was served since."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    if case.switch_ms:
        sys.setswitchinterval(case.switch_ms / 1e3)
    with Stamps(case.stamps, case.agents) as stamps, suppress(KeyboardInterrupt):
        run(_serve(case, told, Counting(stamps, Work(case.busy))), case.uvloop)


def run(work: Coroutine[Any, Any, None], uvloop: bool) -> None:
    """In an event loop of this library or that."""
    if not uvloop:
        asyncio.run(work)
        return
    import uvloop as other  # type: ignore[import-not-found]  # no dependency: tried out by hand

    other.run(work)


async def _serve(case: Case, told: Connection, counting: Counting) -> None:
    trust, store = authority(case)
    BeatByPing.counting = counting
    context = trust.server_context()

    async def hear(connection: ServerConnection) -> None:
        peer = connection.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        node = trust.node_of(peer)
        if isinstance(connection, BeatByPing) and case.way == "ping":
            connection.node = node
        with suppress(ConnectionClosed):
            async for message in connection:
                decode(message, Beat)
                counting.heard(node)

    async with serve(
        hear, HOST, 0, ssl=context, compression=None, ping_interval=None, backlog=1024, create_connection=BeatByPing
    ) as server:
        told.send(next(iter(server.sockets)).getsockname()[1])
        while await asyncio.to_thread(told.recv):
            told.send((counting.taken(), rss_kb()))
    store.close()


def rss_kb() -> int:
    """Memory of this process now (proc(5), /proc/self/status)."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
