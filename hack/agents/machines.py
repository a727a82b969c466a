"""The machines of a cluster: on each a real agent with its folder on a real disk, and processes that are played."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

from hack.agents.network import End, Network
from hack.agents.supervisors import NO_PROCESS, PlayedSupervisors
from hack.agents.virtual_time import AtOnce, Silence
from hack.crash.clocks import SteppedClock
from reconciler.backends.simulated.cluster import Interval
from reconciler.node.agent import agent as node_agent
from reconciler.node.agent.agent import NodeAgent
from reconciler.node.agent.folder import AgentFolder
from reconciler.node.agent.order_handler import OrderHandler
from reconciler.node.agent.pace import AgentPace
from reconciler.node.local import supervisors, tasks
from reconciler.node.local.gpus import DeclaredGpus, NodeGpus
from solver.model.cluster import Node
from solver.model.quantities import Instant

PACE: Final = AgentPace(look_s=1.0)


class Machine:
    """A node: it dies and comes back, and so does its agent; its disk may be an older one then."""

    def __init__(
        self,
        node: Node,
        folder: Path,
        network: Network,
        planes: tuple[str, ...],
        clock: SteppedClock,
        ran: list[Interval],
    ) -> None:
        self.node, self.folder, self.clock = node, folder, clock
        self.chance = random.Random(f"machine {node.name} of {network.seed}")
        self.supervisors = PlayedSupervisors(network.loop, clock, self.chance, ran)
        self._network, self._planes = network, planes
        self._kept: Path | None = None
        self._kept_at = Instant(0)
        self._agent: asyncio.Task[None] | None = None
        self.begin_agent()

    def begin_agent(self) -> None:
        """A new process on the same folder."""
        self.end_agent()
        orders = OrderHandler(self.node.name, AgentFolder(self.folder), self.clock, gpus=self._gpus)
        identity: Any = SimpleNamespace(
            node=self.node.name, path=self.folder / "identity.pem", client_context=lambda: self.node.name
        )
        servers = [(plane, 7_420) for plane in self._planes]
        agent = NodeAgent(orders, servers, identity, self.clock, Silence(), "", PACE, self.chance)  # type: ignore[arg-type]
        agent._worker = AtOnce()
        agent._identities = lambda: identity  # type: ignore[assignment]
        self._agent = self._network.loop.create_task(agent._connect())

    def end_agent(self) -> None:
        """It is killed, and what it runs goes on."""
        if self._agent is not None:
            self._agent.cancel()
            self._agent = None
        self._network.vanish(self.node.name)

    def dies(self) -> None:
        """With all that runs on it."""
        self.end_agent()
        self.supervisors.end_all()

    def keeps_its_disk(self) -> None:
        """Somebody makes a copy of its disk."""
        kept = self.folder.with_name(f"{self.node.name}.kept")
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.folder, kept, symlinks=True)
        self._kept, self._kept_at = kept, self.clock.true.now()

    def has_an_old_disk(self) -> bool:
        """The copy is put in place of its disk, while it is off."""
        if self._kept is None:
            return False
        self.supervisors.forgotten.append((self._kept_at, self.clock.true.now()))
        shutil.rmtree(self.folder)
        shutil.copytree(self._kept, self.folder, symlinks=True)
        return True

    def _gpus(self, kept: Path) -> NodeGpus:
        return DeclaredGpus(kept, self.folder / "none")


def played(machines: dict[str, Machine], network: Network) -> Iterator[Any]:
    """Patches by which agents run on these machines, and reach others over this network."""
    yield mock.patch.object(supervisors, "_spawn", spawning(machines))
    yield mock.patch.object(node_agent, "connect", connecting(network))
    # What is played has no processes, and a machine's disk keeps what was written before its power fails.
    yield mock.patch.object(tasks, "kill_strays", return_value=True)
    yield mock.patch.object(os, "fsync", return_value=None)


def spawning(machines: dict[str, Machine]) -> Any:
    """In place of what begins a supervisor."""

    def spawn(folder: Path) -> int:
        machine = next(one for one in machines.values() if folder.is_relative_to(one.folder))
        machine.supervisors.spawn(folder)
        return NO_PROCESS

    return spawn


def connecting(network: Network) -> Any:
    """In place of what connects an agent: its context says which machine it is on."""

    @asynccontextmanager
    async def connect(url: str, **how: Any) -> Any:
        plane = url.removeprefix("wss://").partition(":")[0]
        end: End = await network.connect(how["ssl"], plane, how["open_timeout"], how["ping_interval"])
        try:
            yield end
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(how["close_timeout"]):
                    await end.close()
            end.abort()

    return connect
