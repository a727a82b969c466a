"""One connection of an agent to a control plane, from its hello until it breaks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from reconciler.backends.baremetal.wire import (
    PROTOCOL,
    Attach,
    Beat,
    Declare,
    Detach,
    FromAgent,
    Hello,
    Next,
    ReadLog,
    Report,
    ToAgent,
    Type,
    Welcome,
)
from reconciler.model.gpu_use import NodeMinute
from reconciler.node.agent.order_handler import OrderHandler
from reconciler.node.agent.pace import AgentPace
from reconciler.node.agent.terminals import AttachedLines
from reconciler.protocols.backend import BackendUnreachableError, Cursor
from solver.model.document import decode, encode

T = TypeVar("T")

MINUTES_PER_BEAT: Final = 3
"""What was kept for an hour and a half is told in two minutes and a half."""

_FORESEEN = (OSError, ConnectionClosed, BackendUnreachableError, msgspec.MsgspecError)
"""What ends a connection, and not the agent."""


class Session:
    """`serve` it. Orders are done one after the other, in the order in which they came; `worker` has one thread for that."""

    def __init__(
        self,
        connection: ClientConnection,
        orders: OrderHandler,
        address: str,
        pace: AgentPace,
        chance: random.Random,
        worker: ThreadPoolExecutor,
    ) -> None:
        self.welcome = False
        """Whether a control plane that leads has answered."""
        self._connection = connection
        self._orders = orders
        self._address = address
        self._pace = pace
        self._chance = chance
        self._worker = worker
        self._news = asyncio.Event()
        # What is told goes out in the order in which it came about: a report that was made before something was forgotten must
        # not arrive after the word that it is.
        self._in_order = asyncio.Lock()
        self._reading: set[asyncio.Task[None]] = set()
        self._terminals = AttachedLines(orders, self._say)
        self._untold: list[NodeMinute] = []
        self._told_minutes = 0

    async def serve(self) -> None:
        """Until the connection ends. Raises ConnectionClosed, StateFolderError, msgspec.MsgspecError."""
        epoch = await self._work(self._orders.epochs.seen)
        await self._say(Hello(PROTOCOL, self._orders.node, epoch, self._address))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._obey())
                group.create_task(self._report())
                group.create_task(self._beat())
        except BaseExceptionGroup as failures:
            # Not `except*`: before Python 3.11.4 what is raised there is put into a group again.
            _, unforeseen = failures.split(_FORESEEN)
            raise unforeseen or _first_of(failures) from None
        finally:
            self._terminals.close()

    async def _obey(self) -> None:
        while True:
            said: ToAgent = decode(await self._connection.recv(), ToAgent)  # type: ignore[arg-type]
            match said:
                case Welcome() | Declare():
                    await self._work(self._orders.note, said)
                    self.welcome = True
                    self._news.set()
                case ReadLog():
                    task = asyncio.create_task(self._read(said))
                    self._reading.add(task)
                    task.add_done_callback(self._reading.discard)
                case Attach() | Next() | Type() | Detach():
                    await self._terminals.hear(said)
                case _:
                    async with self._in_order:
                        await self._say(await self._work(self._orders.do, said))
                    self._news.set()

    async def _report(self) -> None:
        """What is new, as soon as an order was done, and every `look_s`."""
        cursor, whole = Cursor(0), True
        while True:
            await self._rest(self._pace.look_s)
            if not self.welcome:
                continue
            async with self._in_order:
                changes = await self._work(self._orders.changes, cursor)
                if whole or changes.cursor != cursor or changes.facts:
                    await self._say(Report(changes, whole))
            cursor, whole = changes.cursor, False

    async def _beat(self) -> None:
        await asyncio.sleep(self._pace.until_first_beat_s(self._chance.random()))
        while True:
            await self._say(Beat(self._use()))
            await asyncio.sleep(self._pace.until_beat_s(self._chance.random()))

    def _use(self) -> tuple[NodeMinute, ...]:
        """The newest minutes of those that were not told on this connection, oldest of them first.

        All that are kept are, a few with each beat: a control plane that begins to lead has thousands of agents come at once.
        """
        if self.welcome:
            minutes, self._told_minutes = self._orders.use_after(self._told_minutes)
            self._untold += minutes
        told = tuple(self._untold[-MINUTES_PER_BEAT:])
        del self._untold[-MINUTES_PER_BEAT:]
        return told

    async def _read(self, asked: ReadLog) -> None:
        with suppress(ConnectionClosed):  # The asking end has gone; `_obey` notices.
            await self._say(await asyncio.to_thread(self._orders.read_log, asked))

    async def _rest(self, longest_s: float) -> None:
        # Not wait_for, which may lose a cancellation that comes together with what it waits for (CPython issue 86296).
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await self._news.wait()
        self._news.clear()

    async def _say(self, message: FromAgent) -> None:
        await self._connection.send(encode(message).decode())

    async def _work(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work, *arguments)


def _first_of(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    first = failures.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first
