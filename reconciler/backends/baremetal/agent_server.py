"""The door: where agents connect. A thread with an event loop of its own carries messages between them and the rest."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from typing import Final, NamedTuple

import msgspec
from structlog.typing import FilteringBoundLogger
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from reconciler.backends.baremetal import full_collections, join_wire
from reconciler.backends.baremetal.agent_connection import CLOSED_WITHIN_S, REASON_MAX, AgentConnection
from reconciler.backends.baremetal.agent_listener import AgentListener
from reconciler.backends.baremetal.authority import UntrustedError
from reconciler.backends.baremetal.entry import Entry
from reconciler.backends.baremetal.fleet import TICK_S, Fleet
from reconciler.backends.baremetal.key_files import KeyFileError
from reconciler.backends.baremetal.merge import LEASE
from reconciler.backends.baremetal.pending_requests import Hear, PendingRequests
from reconciler.backends.baremetal.wire import (
    BAD_HELLO,
    MESSAGE_BYTES_MAX,
    NOT_LEADING,
    REPLACED,
    Answer,
    Beat,
    FromAgent,
    Hello,
    Refused,
    Report,
    ToAgent,
    Welcome,
)
from reconciler.model.gpu_use import NodeMinute
from reconciler.protocols.store_errors import StoreUnusableError
from solver.model.cluster import Node, NodeName
from solver.model.document import decode
from solver.model.quantities import Duration

REVOCATIONS_EVERY_S: Final = 5.0
"""How often the store is asked whether connected agents are still trusted."""


class NotThereError(Exception):
    """The agent of a node is not connected."""


class HeardUse(NamedTuple):
    """`every`: between two samples. `hear`: what an agent tells of its node; called in the door's thread."""

    every: Callable[[], Duration]
    hear: Callable[[NodeName, tuple[NodeMinute, ...]], None]


class AgentServer:
    """`open` it, and `close` it in the end. All other methods may be called by any thread.

    `declared`: what Git says a node is. `leads`: whether this control plane does; while it does not, agents are sent away. `told`:
    called when there is news of tasks. `use`: what becomes of what agents tell of their GPUs' use; None: they are not to.
    """

    def __init__(
        self,
        address: tuple[str, int],
        entry: Entry,
        fleet: Fleet,
        declared: Callable[[NodeName], Node | None],
        leads: Callable[[], bool],
        told: Callable[[], None],
        log: FilteringBoundLogger,
        use: HeardUse | None = None,
    ) -> None:
        self._address = address
        self._entry = entry
        self._fleet = fleet
        self._declared = declared
        self._leads = leads
        self._told = told
        self._log = log
        self._use = use
        self._lines: dict[NodeName, AgentConnection] = {}
        self._asked = PendingRequests()
        self._ids = count(1)
        self._opened: Future[int] = Future()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="agents", daemon=True)

    def open(self) -> int:
        """Listen; returns the port. Raises AgentListenerError."""
        self._thread.start()
        return self._opened.result()

    def wait(self) -> None:
        """Until it is closed. Raises whatever ended it before."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Let go of every agent. Their tasks go on."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()

    def send(self, nodes: Iterable[NodeName], message: Callable[[int], ToAgent]) -> None:
        """Send to each that is connected; one that is not is told by a later order, or by what it reports then."""
        self._do(lambda: self._send(nodes, message))

    def ask(self, node: NodeName, message: Callable[[int], ToAgent]) -> Future[Answer]:
        """Send, and have its answer. The future raises NotThereError where there is no connection, or it ends first."""
        asked: Future[Answer] = Future()
        number = next(self._ids)

        def hear(answer: Answer | None) -> None:
            self._asked.drop(node, number)
            if not asked.set_running_or_notify_cancel():
                return
            if answer is None:
                asked.set_exception(NotThereError(f"the agent of {node} is not connected"))
            else:
                asked.set_result(answer)

        def send() -> None:
            line = self._lines.get(node)
            if line is None:
                return hear(None)
            self._asked.add(node, number, hear)
            return line.send(message(number))

        if not self._do(send):
            asked.set_exception(NotThereError("the door is closed"))
        return asked

    def listen(self, node: NodeName, hear: Hear) -> int:
        """A number under which an agent may say more than one thing; `hear` is called in the door's thread, at last with None."""
        number = next(self._ids)

        def register() -> None:
            if node not in self._lines:
                return hear(None)
            return self._asked.add(node, number, hear)

        self._do(register)
        return number

    def no_more(self, node: NodeName, number: int) -> None:
        """That number is not waited for now."""
        self._do(lambda: self._asked.drop(node, number))

    def declare(self) -> None:
        """Tell each agent what Git says of its node, if that has changed."""
        self._do(self._declare_all)

    def _do(self, work: Callable[[], object]) -> bool:
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:  # It is closed.
            return False
        return True

    def _send(self, nodes: Iterable[NodeName], message: Callable[[int], ToAgent]) -> None:
        for node in sorted(nodes):
            if node in self._lines:
                self._lines[node].send(message(next(self._ids)))

    def _declare_all(self) -> None:
        sample_every = self._sample_every()
        for line in self._lines.values():
            line.declare(self._declared(line.node), sample_every)

    def _sample_every(self) -> Duration | None:
        return self._use.every() if self._use else None

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:  # noqa: BLE001  (raised again by `wait`)
            self._failure = failure
            if not self._opened.done():
                self._opened.set_exception(failure)

    async def _serve(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        self._doorway = AgentListener(self._address, self._log)
        server = await serve(
            self._receive,
            sock=self._doorway.listener,
            create_connection=self._doorway.connection,
            ssl=self._entry.server_context(),
            process_request=self._entry.route,
            compression=None,
            ping_interval=None,  # Agents ping, and beat.
            max_size=join_wire.MESSAGE_BYTES_MAX,  # Until it is known which agent that is.
            close_timeout=CLOSED_WITHIN_S,
        )
        self._opened.set_result(next(iter(server.sockets)).getsockname()[1])
        async with server:
            for tick in count():
                await self._send_away(tick)
                with suppress(TimeoutError):
                    async with asyncio.timeout(TICK_S):
                        await self._closing.wait()
                        break
            await self._let_go(dict.fromkeys(self._lines.values(), ""), CloseCode.GOING_AWAY)

    async def _send_away(self, tick: int) -> None:
        """All, where another control plane leads; else silent ones, and those with certificates that count no more."""
        lines = tuple(self._lines.values())
        if not self._leads():
            # Before goodbyes, which take a while: an agent that comes meanwhile, since this one leads again, must stay known.
            self._fleet.away()
            await self._let_go(dict.fromkeys(lines, "another control plane leads"), NOT_LEADING)
            return
        self._fleet.tick()
        for node in self._fleet.silent(LEASE) & self._lines.keys():
            self._lines[node].abort()
        if lines and tick % (REVOCATIONS_EVERY_S // TICK_S) == 0:
            await self._revoke(lines)
        full_collections.after(tick * TICK_S)

    async def _revoke(self, lines: tuple[AgentConnection, ...]) -> None:
        try:
            untrusted = await self._entry.no_longer([line.identity for line in lines])
        except (StoreUnusableError, KeyFileError) as error:
            self._log.warning("agents-not-checked", message=str(error))
            return
        refused = {line: untrusted[line.identity] for line in lines if line.identity in untrusted}
        for line, why in refused.items():
            self._log.warning("agent-refused", node=line.node, message=why)
        await self._let_go(refused, BAD_HELLO)

    async def _let_go(self, lines: Mapping[AgentConnection, str], code: int) -> None:
        """All at once, each for a reason: one that takes no leave holds up no other, and is not heard any more."""
        for line in lines:
            self._gone(line)
        await asyncio.gather(*(line.close(code, reason) for line, reason in lines.items()))

    async def _receive(self, connection: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            if await self._entry.joins(connection):
                return
            line = await self._welcomed(connection)
            if line is None:
                return
            carrying = asyncio.create_task(line.carry())
            try:
                async for message in connection:
                    # What was long on its way, over a connection that the agent has replaced, is older than what it told since.
                    if self._lines.get(line.node) is not line:
                        break
                    self._hear(line.node, message)
            except msgspec.MsgspecError as error:
                self._log.warning("agent-not-understood", node=line.node, message=str(error))
            finally:
                carrying.cancel()
                self._gone(line)

    async def _welcomed(self, connection: ServerConnection) -> AgentConnection | None:
        """The agent's line, once it has named itself and that agrees with its certificate."""
        try:
            identity, hello = await self._entry.hello(connection)
        except (UntrustedError, msgspec.MsgspecError, TimeoutError, StoreUnusableError, KeyFileError) as error:
            if self._doorway.is_news(str(error)):
                self._log.warning("agent-refused", peer=str(connection.remote_address), message=str(error))
            await connection.close(BAD_HELLO, str(error)[:REASON_MAX])
            return None
        if not self._leads():
            await connection.close(NOT_LEADING, "this control plane does not lead")
            return None
        self._doorway.keep(connection)
        connection.protocol.max_message_size = MESSAGE_BYTES_MAX
        before, line = self._lines.get(hello.node), AgentConnection(identity, connection)
        if before is not None:
            self._gone(before)
            await before.close(REPLACED, "the same node has connected once more")
        self._fleet.saw_epoch(hello.epoch_seen)
        self._fleet.connected(hello.node, hello.address or str(connection.remote_address[0]))
        self._lines[hello.node] = line
        line.send(Welcome(self._fleet.led))
        line.declare(self._declared(hello.node), self._sample_every())
        self._log.info("agent-connected", node=hello.node, address=hello.address, epoch=hello.epoch_seen)
        return line

    def _hear(self, node: NodeName, message: str | bytes) -> None:
        self._fleet.heard(node)
        heard: FromAgent = decode(message, FromAgent)  # type: ignore[arg-type]
        match heard:
            case Beat(use):
                if use and self._use:
                    self._use.hear(node, use)
            case Report(changes, whole):
                self._fleet.told(node, changes, whole)
                self._told()
            case Hello():
                self._log.warning("agent-not-understood", node=node, message="a second hello")
            case Refused(_, epoch_seen):
                self._fleet.saw_epoch(epoch_seen)
                self._asked.answer(node, heard)
            case _:
                self._asked.answer(node, heard)

    def _gone(self, line: AgentConnection) -> None:
        """Unless the node has connected once more since."""
        if self._lines.get(line.node) is not line:
            return
        del self._lines[line.node]
        self._fleet.disconnected(line.node)
        self._asked.gone(line.node)
        self._log.info("agent-disconnected", node=line.node)
