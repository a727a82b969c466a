"""A process of agents: each has a connection and a certificate of its own, and beats."""

from __future__ import annotations

import asyncio
import os
import random
import ssl
import tempfile
import time
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from hack.heartbeats.stamps import Stamps
from hack.heartbeats.world import HOST, Case, authority, identity, node
from reconciler.backends.baremetal.certificates import CONTROL_PLANE, new_key
from reconciler.backends.baremetal.read_buffers import keep_read_buffers_small
from reconciler.backends.baremetal.wire import PROTOCOL, Beat, Hello, Report
from reconciler.node.agent.identity import client_context
from reconciler.node.agent.pace import AgentPace
from reconciler.protocols.backend import BackendChanges, Cursor, Epoch
from solver.model.document import encode

BEAT = encode(Beat()).decode()


def beat(case: Case, numbers: range, port: int, told: Connection, cores: set[int]) -> None:
    """Connect every agent, say so, and beat until told to stop."""
    os.sched_setaffinity(0, cores)
    keep_read_buffers_small()
    with Stamps(case.stamps, case.agents) as stamps, suppress(KeyboardInterrupt):
        asyncio.run(Agents(case, port, stamps).work(numbers, told))


class Agents:
    """Those of one process."""

    def __init__(self, case: Case, port: int, stamps: Stamps) -> None:
        self._case = case
        self._port = port
        self._stamps = stamps
        self._key = new_key()
        self._pace = AgentPace(beat_s=case.every_s)
        self._failures = 0
        self._broken = 0
        self._connected = set[int]()
        self._few = asyncio.Semaphore(case.opening)
        self._chance = random.Random(port)
        trust, store = authority(case)
        self._authorities = trust.ca_certificate
        store.close()

    async def work(self, numbers: range, told: Connection) -> None:
        """All of it. A connection that breaks is opened again; told is how many do between the two words."""
        lives = [asyncio.create_task(self._live(number)) for number in numbers]
        while len(self._connected) < len(numbers):
            await asyncio.sleep(0.1)
        told.send((len(numbers), self._failures))
        await asyncio.to_thread(told.recv)
        broken_before = self._broken
        await asyncio.to_thread(told.recv)
        lost = self._broken - broken_before
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)
        told.send(lost)

    async def _live(self, number: int) -> None:
        """An agent beats as soon as it is connected: who said nothing until all are would be let go."""
        while True:
            connection = await self._opened(number)
            self._connected.add(number)
            try:
                await self._beat(number, connection)
            finally:
                connection.transport.abort()
            self._connected.discard(number)
            self._broken += 1

    async def _opened(self, number: int) -> ClientConnection:
        """Tried until it is, as agents do: a machine that has no time may keep either end waiting for too long."""
        for failures in count():
            async with self._few:
                with suppress(ConnectionClosed, TimeoutError, OSError):
                    return await self._welcomed(number)
            self._failures += 1
            await asyncio.sleep(self._pace.rest_s(failures, self._chance.random()))
        raise AssertionError("there is no end of numbers")

    async def _welcomed(self, number: int) -> ClientConnection:
        connection = await connect(
            f"wss://{HOST}:{self._port}/agent",
            ssl=self._context(number),
            server_hostname=CONTROL_PLANE,
            compression=None,
            ping_interval=self._case.ping_s or None,
            ping_timeout=None,
            open_timeout=120,
            proxy=None,
        )
        await connection.send(encode(Hello(PROTOCOL, node(number), Epoch(0), "")).decode())
        await connection.recv()
        await connection.send(encode(Report(BackendChanges(Cursor(1), (), ()), whole=True)).decode())
        return connection

    def _context(self, number: int) -> ssl.SSLContext:
        context = client_context(self._authorities)
        with tempfile.NamedTemporaryFile("wb") as file:
            file.write(identity(self._case, number, self._key))
            file.flush()
            context.load_cert_chain(file.name)
        return context

    async def _beat(self, number: int, connection: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            await asyncio.sleep(self._pace.until_first_beat_s(self._chance.random()))
            while True:
                self._stamps.sent(number, time.monotonic_ns())
                await connection.send(BEAT)
                await asyncio.sleep(self._pace.until_beat_s(self._chance.random()))
