"""A process of agents: each has a connection and a certificate of its own, and beats."""

from __future__ import annotations

import asyncio
import os
import random
import ssl
import tempfile
import time
from contextlib import suppress
from multiprocessing.connection import Connection

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from hack.heartbeats.listening import Beat
from hack.heartbeats.stamps import Stamps
from hack.heartbeats.world import HOST, Case, authority, identity
from reconciler.agent.identity import believing
from reconciler.backends.baremetal.certificates import CONTROL_PLANE, new_key
from solver.world.document import encode

BEAT = encode(Beat()).decode()


def beat(case: Case, numbers: range, port: int, told: Connection, cores: set[int]) -> None:
    """Connect every agent, say so, and beat until told to stop."""
    os.sched_setaffinity(0, cores)
    with Stamps(case.stamps, case.agents) as stamps, suppress(KeyboardInterrupt):
        asyncio.run(Agents(case, port, stamps).work(numbers, told))


class Agents:
    """Those of one process."""

    def __init__(self, case: Case, port: int, stamps: Stamps) -> None:
        self._case = case
        self._port = port
        self._stamps = stamps
        self._key = new_key()
        self._few = asyncio.Semaphore(case.opening)
        self._chance = random.Random(port)
        trust, store = authority(case)
        self._authorities = trust.ca_certificate
        store.close()

    async def work(self, numbers: range, told: Connection) -> None:
        """All of it."""
        connections = await asyncio.gather(*(self._opened(number) for number in numbers))
        told.send(len(connections))
        beats = [
            asyncio.create_task(self._beat(number, each)) for number, each in zip(numbers, connections, strict=True)
        ]
        pings = [asyncio.create_task(self._ping(each)) for each in connections if self._case.ping_s]
        await asyncio.to_thread(told.recv)
        lost = sum(task.done() for task in (*beats, *pings))
        for task in (*beats, *pings):
            task.cancel()
        await asyncio.gather(*beats, *pings, return_exceptions=True)
        for each in connections:
            each.transport.abort()
        told.send(lost)

    async def _opened(self, number: int) -> ClientConnection:
        async with self._few:
            return await connect(
                f"wss://{HOST}:{self._port}/agent",
                ssl=self._context(number),
                server_hostname=CONTROL_PLANE,
                compression=None,
                ping_interval=None,
                open_timeout=120,
                proxy=None,
            )

    def _context(self, number: int) -> ssl.SSLContext:
        context = believing(self._authorities)
        with tempfile.NamedTemporaryFile("wb") as file:
            file.write(identity(self._case, number, self._key))
            file.flush()
            context.load_cert_chain(file.name)
        return context

    async def _beat(self, number: int, connection: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            await asyncio.sleep(self._chance.random() * self._case.every_s)
            while True:
                self._stamps.sent(number, time.monotonic_ns())
                await (connection.ping() if self._case.way == "ping" else connection.send(BEAT))
                await asyncio.sleep(self._case.every_s * (0.8 + 0.4 * self._chance.random()))

    async def _ping(self, connection: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            while True:
                await asyncio.sleep(self._case.ping_s * (0.8 + 0.4 * self._chance.random()))
                await connection.ping()
