"""A network between machines: links are up or down, each way for itself, and slow; connections over them are as TCP's are.

What is sent over a connection arrives in order or not at all. While a link is down it waits; that the other end has gone is learned
by a message that comes through, or by pings that are not answered, as with WebSockets.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, Literal, NamedTuple

from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close, CloseCode

from hack.agents.virtual_time import VirtualLoop
from reconciler.backends.baremetal.agent_connection import CLOSED_WITHIN_S

AGAIN_S: Final = 0.5
"""How often what waits for a link is sent once more."""
QUICK_S: Final = (0.0005, 0.02)
SLOW_S: Final = (0.5, 6.0)

Place = str


class Way(NamedTuple):
    """From one machine to another."""

    of: Place
    to: Place


@dataclass
class Network:
    """How each way is at present."""

    loop: VirtualLoop
    seed: int
    down: set[Way] = field(default_factory=set)
    slow: set[Way] = field(default_factory=set)
    accepting: dict[Place, Callable[[End], Coroutine[Any, Any, None]]] = field(default_factory=dict)
    chances: dict[Way, random.Random] = field(default_factory=dict)
    """One for each way, so that it does not matter in which order messages for several machines are sent."""
    open_ends: defaultdict[Place, list[End]] = field(default_factory=lambda: defaultdict(list))

    def is_up(self, of: Place, to: Place) -> bool:
        """Whether messages come through, in this direction."""
        return (of, to) not in self.down

    def delay_s(self, of: Place, to: Place) -> float:
        """For how long the next message is on its way."""
        chance = self.chances.setdefault(Way(of, to), random.Random(f"way of {self.seed} from {of} to {to}"))
        return chance.uniform(*(SLOW_S if (of, to) in self.slow else QUICK_S))

    async def connect(self, of: Place, to: Place, within_s: float, ping_s: float) -> End:
        """Raises ConnectionRefusedError, TimeoutError."""
        trip_s = self.delay_s(of, to) + self.delay_s(to, of)
        if not (self.is_up(of, to) and self.is_up(to, of)) or trip_s > within_s:
            await asyncio.sleep(within_s)
            raise TimeoutError
        await asyncio.sleep(trip_s)
        if to not in self.accepting:
            raise ConnectionRefusedError(f"{to} does not listen")
        client, server = End(self, of, to), End(self, to, of)
        client.other, server.other = server, client
        self.open_ends[of].append(client)
        self.open_ends[to].append(server)
        server.task = self.loop.create_task(self._serve(self.accepting[to], server))
        client.task = self.loop.create_task(client.ping(ping_s))
        return client

    async def _serve(self, accept: Callable[[End], Coroutine[Any, Any, None]], end: End) -> None:
        """As websockets does: once the handler has returned, the connection is closed."""
        await accept(end)
        try:
            async with asyncio.timeout(CLOSED_WITHIN_S):
                await end.close()
        except TimeoutError:
            end.abort()

    def vanish(self, place: Place) -> None:
        """The process there has ended: its system closes its connections, as far as the other ends can be told."""
        for end in self.open_ends.pop(place, []):
            end.abort()
            if end.task is not None:
                end.task.cancel()


Frame = tuple[Literal["text", "ping", "pong", "close", "reset"], Any]


class End:
    """One end of a connection, as websockets gives it to an agent, or to the door."""

    other: End

    def __init__(self, network: Network, here: Place, there: Place) -> None:
        self._network, self._here, self._there = network, here, there
        self.task: asyncio.Task[None] | None = None
        self._ended: Close | None = None
        self._sent: deque[Frame] = deque()
        self._under_way = False
        self._received: asyncio.Queue[str | None] = asyncio.Queue()
        self._pong, self._gone = asyncio.Event(), asyncio.Event()
        self._closing = False
        self.transport = SimpleNamespace(abort=self.abort)
        self.protocol = SimpleNamespace(max_message_size=0)
        self.request = None
        self.remote_address = (there, 0)

    async def send(self, text: str) -> None:
        """Put it on its way. Raises ConnectionClosed."""
        self._require_open()
        if self._closing:
            raise ConnectionClosedError(None, None)
        self._put(("text", text))

    async def recv(self) -> str:
        """The next message. Raises ConnectionClosed."""
        if self._received.empty():
            self._require_open()
        said = await self._received.get()
        if said is None:
            self._require_open()
            raise AssertionError("it is open, and has ended")
        return said

    def __aiter__(self) -> End:
        return self

    async def __anext__(self) -> str:
        return await self.recv()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Say goodbye, and wait for an answer; what was sent to this end before still arrives."""
        if self._ended is None and not self._closing:
            self._closing = True
            self._put(("close", Close(code, reason)))
        await self._gone.wait()

    def abort(self) -> None:
        """Let go: the other end is told if that can be."""
        if self._ended is None:
            self._end(Close(CloseCode.ABNORMAL_CLOSURE, "let go"))
            self._reset()

    async def ping(self, every_s: float) -> None:
        """See whether the other end is there, until this one has ended."""
        while self._ended is None:
            await asyncio.sleep(every_s)
            self._pong.clear()
            self._put(("ping", None))
            try:
                async with asyncio.timeout(every_s):
                    await self._pong.wait()
            except TimeoutError:
                self.abort()

    def _require_open(self) -> None:
        if self._ended is not None:
            raise ConnectionClosedError(self._ended, None)

    def _end(self, why: Close) -> None:
        self._ended = why
        self._gone.set()
        self._received.put_nowait(None)

    def _reset(self) -> None:
        if self._network.is_up(self._here, self._there) and self.other._ended is None:
            self.other._end(Close(CloseCode.ABNORMAL_CLOSURE, "the other end has gone"))

    def _put(self, frame: Frame) -> None:
        self._sent.append(frame)
        if not self._under_way:
            self._under_way = True
            self._network.loop.call_later(self._network.delay_s(self._here, self._there), self._carry)

    def _carry(self) -> None:
        if not self._network.is_up(self._here, self._there):
            self._network.loop.call_later(AGAIN_S, self._carry)
            return
        self.other._arrived(self._sent.popleft())
        self._under_way = bool(self._sent)
        if self._sent:
            self._network.loop.call_later(self._network.delay_s(self._here, self._there), self._carry)

    def _arrived(self, frame: Frame) -> None:
        if self._ended is not None:
            self._reset()
            return
        kind, content = frame
        if kind == "text":
            self._received.put_nowait(content)
        elif kind == "ping":
            self._put(("pong", None))
        elif kind == "pong":
            self._pong.set()
        else:
            if not self._closing:
                self._put(("close", content))
            self._end(content)
