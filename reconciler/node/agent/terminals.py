"""The agent's end of terminals: for each line that is attached, what is shown is read when it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from websockets.exceptions import ConnectionClosed

from reconciler.backends.baremetal.wire import Answer, Attach, Attached, Detach, Next, Shown, Type
from reconciler.node.agent.order_handler import OrderHandler
from reconciler.node.local.terminals import LocalLine
from reconciler.protocols.terminals import NoTerminalError, TerminalEnd, Window


class AttachedLines:
    """Those of one connection; `close` lets go of all."""

    def __init__(self, orders: OrderHandler, say: Callable[[Answer], Coroutine[Any, Any, None]]) -> None:
        self._orders = orders
        self._say = say
        self._lines: dict[int, LocalLine] = {}
        self._showing: dict[asyncio.Task[None], int] = {}

    async def hear(self, said: Attach | Next | Type | Detach) -> None:
        """Do as told; what is said to a line that is gone goes nowhere."""
        if isinstance(said, Attach):
            return await self._attach(said)
        line = self._lines.get(said.id)
        if line is None:
            return None
        match said:
            case Next():
                task = asyncio.create_task(self._show(said.id, line))
                self._showing[task] = said.id
                task.add_done_callback(self._showing.pop)
            case Type():
                typed = Window(said.rows, said.columns) if said.rows else said.content
                with suppress(NoTerminalError):  # Its end is shown to the reader.
                    await line.send(typed)
            case Detach():
                await self._let_go(said.id)
        return None

    def close(self) -> None:
        """Let go of every terminal. Tasks don't notice."""
        for task in self._showing:
            task.cancel()
        for line in self._lines.values():
            line.close()

    async def _let_go(self, number: int) -> None:
        """The reader stops first: else the event loop would take the next socket of that number for one that it watches already."""
        reading = [task for task, of in self._showing.items() if of == number]
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        self._lines.pop(number).close()

    async def _attach(self, asked: Attach) -> None:
        try:
            line = await asyncio.to_thread(
                self._orders.open_terminal, asked.job, asked.attempt, asked.group, asked.index
            )
        except NoTerminalError as error:
            await self._say(Attached(asked.id, str(error)))
            return
        self._lines[asked.id] = line
        await self._say(Attached(asked.id))

    async def _show(self, number: int, line: LocalLine) -> None:
        shown = await line.receive()
        with suppress(ConnectionClosed):  # The user who looked on has gone.
            if isinstance(shown, TerminalEnd):
                await self._say(Shown(number, None, shown.code, shown.stopped))
            else:
                await self._say(Shown(number, shown))
