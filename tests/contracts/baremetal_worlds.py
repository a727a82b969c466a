"""Two agents and a control plane's side under the conformance suite: TLS on loopback, and real processes on each node."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import structlog

from reconciler.backends.baremetal.agent_server import AgentServer, HeardUse
from reconciler.backends.baremetal.backend import BareMetalBackend
from reconciler.backends.baremetal.entry import Entry
from reconciler.backends.baremetal.fleet import Fleet
from reconciler.backends.baremetal.wire import SentSecret
from reconciler.model.clock import SystemClock
from reconciler.model.gpu_use import NodeMinute
from reconciler.node.agent.agent import NodeAgent
from reconciler.node.agent.folder import AgentFolder
from reconciler.node.agent.join import join
from reconciler.node.agent.order_handler import OrderHandler
from reconciler.node.agent.pace import AgentPace
from reconciler.node.local.gpus import NodeGpus
from reconciler.protocols.backend import (
    AttemptKey,
    BackendChanges,
    Cursor,
    Epoch,
    GrowGang,
    Order,
    PartitionGpu,
    StartGang,
    forget_each,
)
from reconciler.protocols.ledger import Claim
from solver.model.cluster import Node, NodeName
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, JobSpec
from tests.contracts.local_worlds import LocalWorld, eventually
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.backends.baremetal.trust import Trust, trust_in

QUICK = AgentPace(look_s=0.03, rest_first_s=0.01, rest_max_s=0.02)
LOG = structlog.get_logger("quorate.test")


class Agents:
    """Both, in one thread: each with a folder of its own, on disk like everything that outlives them."""

    def __init__(
        self,
        state: Path,
        trust: Trust,
        port: int,
        gpus: Callable[[Path], NodeGpus],
        pace: AgentPace,
        minutes: Callable[[int], tuple[tuple[NodeMinute, ...], int]],
    ) -> None:
        self._pace = pace
        self._minutes = minutes
        self._agents = [self._agent(node, state, trust, port, gpus) for node in NODES]
        self._begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        self._begun.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._running.cancel)
        self._thread.join()

    def _agent(self, node: Node, state: Path, trust: Trust, port: int, gpus: Callable[[Path], NodeGpus]) -> NodeAgent:
        folder = AgentFolder(state / node.name)
        deeds = OrderHandler(node.name, folder, SystemClock(), gpus=gpus, minutes=self._minutes)
        identity = join("127.0.0.1", port, trust.token(node.name), folder.identity)
        servers, address = [("127.0.0.1", port)], f"{node.name}.example"
        return NodeAgent(deeds, servers, identity, SystemClock(), LOG, address, self._pace)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running = asyncio.ensure_future(asyncio.gather(*(agent.run() for agent in self._agents)))
        self._begun.set()
        with suppress(asyncio.CancelledError):
            await self._running
        # A TLS transport that was closed ends some turns of the loop later.
        await asyncio.sleep(0.05)


class Recorded:
    """A backend with what the loop does around it: before a gang is ordered anywhere, its claim is in the ledger."""

    def __init__(self, backend: BareMetalBackend, claims: dict[tuple[JobName, int], Claim]) -> None:
        self._backend = backend
        self._claims = claims

    def changes(self, since: Cursor) -> BackendChanges:
        return self._backend.changes(since)

    def submit(self, order: Order, epoch: Epoch) -> None:
        if isinstance(order, StartGang | GrowGang):
            known = self._claims.get((order.job, order.attempt))
            growth = order.growth if isinstance(order, GrowGang) else 0
            if known is None or growth > known.growth:
                before = {(task.group, task.index): task for task in (known.tasks if known else ())}
                tasks = before | {(task.group, task.index): task for task in order.tasks}
                claim = Claim(order.job, order.attempt, tuple(tasks.values()), Instant(0), growth=growth)
                self._claims[order.job, order.attempt] = claim
        self._backend.submit(order, epoch)

    def partition(self, order: PartitionGpu, epoch: Epoch) -> None:
        self._backend.partition(order, epoch)

    def forget(self, job: JobName, attempt: int, epoch: Epoch) -> None:
        self._backend.forget(job, attempt, epoch)
        self._claims.pop((job, attempt), None)

    def forget_all(self, over: Collection[AttemptKey], epoch: Epoch) -> dict[AttemptKey, str]:
        return forget_each(self.forget, over, epoch)


class BareMetalWorld(LocalWorld):
    """Implements BackendWorld. The agents go on while the control plane's side is made anew."""

    attempts = "*/tasks/*"
    pace = QUICK

    def __init__(self, folder: Path, trust: Trust) -> None:
        self._trust = trust
        self.leads = True
        self._agents: Agents | None = None
        self.minutes: list[NodeMinute] = []
        """What every agent has recorded of its GPUs' use; tests add to it."""
        self.use: list[tuple[NodeName, NodeMinute]] = []
        """What the control plane's side was told of that, in order."""
        self.opened: AgentServer | None = None
        self.port = 0
        self._claims: dict[tuple[JobName, int], Claim] = {}
        self.sends: Callable[[JobSpec], tuple[SentSecret, ...]] = lambda _: ()
        self.specs: dict[JobName, JobSpec] = {}
        super().__init__(folder)

    def restart(self) -> None:
        if self.opened is not None:
            self.opened.close()
        self.fleet = Fleet(SystemClock())
        declared = {node.name: node for node in NODES}
        address, trust = ("127.0.0.1", self.port), self._trust
        self.opened = AgentServer(
            address,
            Entry(trust.authority, trust.joining),
            self.fleet,
            declared.get,
            lambda: self.leads,
            lambda: None,
            LOG,
            HeardUse(lambda: Duration(5_000), self._hear_use),
        )
        self.port = self.opened.open()
        self.inner = BareMetalBackend(
            self.opened,
            self.fleet,
            lambda: tuple(self._claims.values()),
            secrets=lambda spec: self.sends(spec),  # noqa: PLW0108  (tests set it later)
            spec_of=self.specs.get,
        )
        self.backend = Recorded(self.inner, self._claims)  # type: ignore[assignment]  # logs are read of `inner`
        if self._agents is None:
            self._agents = Agents(self.state, self._trust, self.port, self.gpus, self.pace, self._recorded)
        eventually(lambda: sum(node.ready for node in self.backend.changes(Cursor(0)).nodes) == len(NODES))

    def _recorded(self, number: int) -> tuple[tuple[NodeMinute, ...], int]:
        recorded = tuple(self.minutes)
        return recorded[number:], len(recorded)

    def _hear_use(self, node: NodeName, minutes: tuple[NodeMinute, ...]) -> None:
        self.use += ((node, minute) for minute in minutes)

    @property
    def door(self) -> AgentServer:
        assert self.opened is not None
        return self.opened

    def is_set_up_anew(self, node: Node) -> None:
        """A machine is switched off, and comes back with an empty disk. Its agent joins again."""
        assert self._agents is not None
        self._agents.close()
        folder = self.state / node.name
        for pid in self.processes():
            # A task may end because its supervisor was killed a moment ago.
            with suppress(FileNotFoundError, ProcessLookupError):
                texts = [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("environ", "cmdline")]
                if os.fsencode(f"{folder}/") in b"".join(texts):
                    os.kill(pid, signal.SIGKILL)
        for link in folder.glob("secrets"):
            shutil.rmtree(link.resolve())
        eventually(lambda: self._emptied(folder))
        self._agents = None
        self.restart()

    def _emptied(self, folder: Path) -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    def confirms(self, job: str) -> None:
        """The ledger says that all tasks of a gang run."""
        claim = self._claims[JobName(job), 1]
        self._claims[JobName(job), 1] = msgspec.structs.replace(claim, running_since=Instant(0))

    def gives_up(self, job: str, index: int) -> None:
        """The claim of a gang is without one task from now on."""
        claim = self._claims[JobName(job), 1]
        tasks = tuple(task for task in claim.tasks if task.index != index)
        self._claims[JobName(job), 1] = Claim(claim.job, claim.attempt, tasks, claim.since, growth=claim.growth)

    def close(self) -> None:
        assert self.opened is not None
        assert self._agents is not None
        try:
            super().close()
        finally:
            self._agents.close()
            self.opened.close()
            for link in self.state.glob("*/secrets"):
                shutil.rmtree(link.resolve())


@contextmanager
def baremetal_world(folder: Path) -> Iterator[BareMetalWorld]:
    """Real processes behind real connections; nothing is left running at the end."""
    with trust_in(folder) as trust:
        world = BareMetalWorld(folder, trust)
        try:
            yield world
        finally:
            world.close()
