"""A terminal of a task on another machine: its agent is asked for each piece that is shown, when a client is there to see it."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerError
from contextlib import suppress
from queue import Empty, SimpleQueue

from reconciler.backends.baremetal.agent_server import AgentServer
from reconciler.backends.baremetal.agent_state import TaskKey
from reconciler.backends.baremetal.wire import Answer, Attach, Attached, Detach, Next, Shown, Type
from reconciler.protocols.terminals import NoTerminalError, TerminalEnd, Window
from solver.model.cluster import NodeName


class AgentLine:
    """Implements TerminalLine. Opened by any thread; used from one event loop."""

    def __init__(self, door: AgentServer, node: NodeName) -> None:
        self._door = door
        self._node = node
        self._heard: SimpleQueue[Answer | None] = SimpleQueue()
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._opened: Future[Answer | None] = Future()
        self._broken = False
        self._number = door.listen(node, self._hear)

    @classmethod
    def attached(cls, door: AgentServer, node: NodeName, task: TaskKey, within_s: float) -> AgentLine:
        """Attach to a task's terminal. Raises NoTerminalError."""
        line = cls(door, node)
        line._send(Attach(line._number, *task))
        try:
            answer = line._opened.result(within_s)
        except NoAnswerError:
            answer = None
        if isinstance(answer, Attached) and not answer.refused:
            return line
        line.close()
        raise NoTerminalError(
            answer.refused if isinstance(answer, Attached) else f"the agent of {node} does not answer"
        )

    async def receive(self) -> bytes | TerminalEnd | None:
        """What is shown next."""
        if self._waiting is None:
            self._waiting = asyncio.get_running_loop(), asyncio.Event()
        if not self._broken:
            self._send(Next(self._number))
        answer = await self._next(self._waiting[1])
        if not isinstance(answer, Shown):
            self._broken = True
            return None
        if answer.content is not None:
            return answer.content
        return None if answer.code is None else TerminalEnd(answer.code, answer.stopped)

    async def send(self, typed: bytes | Window) -> None:
        """Type, or say how large the window is."""
        if self._broken:
            raise NoTerminalError("the connection to the agent is gone")
        if isinstance(typed, Window):
            self._send(Type(self._number, rows=typed.rows, columns=typed.columns))
        else:
            self._send(Type(self._number, typed))

    def close(self) -> None:
        """Let go."""
        self._send(Detach(self._number))
        self._door.no_more(self._node, self._number)

    def _send(self, message: Attach | Next | Type | Detach) -> None:
        self._door.send([self._node], lambda _: message)

    async def _next(self, woken: asyncio.Event) -> Answer | None:
        while True:
            with suppress(Empty):
                return self._heard.get_nowait()
            woken.clear()
            if self._heard.empty():
                await woken.wait()

    def _hear(self, answer: Answer | None) -> None:
        """In the door's thread."""
        if not self._opened.done():
            self._opened.set_result(answer)
            return
        self._broken = self._broken or answer is None
        self._heard.put(answer)
        if self._waiting is not None:
            loop, woken = self._waiting
            with suppress(RuntimeError):  # The reader has ended.
                loop.call_soon_threadsafe(woken.set)
