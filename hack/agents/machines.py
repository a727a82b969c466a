"""The machines of a cluster: on each a real agent with its folder on a real disk, and processes that are played."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import shutil
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from hack.agents.network import End, Network
from hack.agents.virtual_time import AtOnce, Silence, VirtualLoop
from hack.crash.clocks import SteppedClock
from reconciler.backends.simulated.behaviour import by_command
from reconciler.backends.simulated.cluster import Interval
from reconciler.node.agent.agent import NodeAgent
from reconciler.node.agent.folder import AgentFolder
from reconciler.node.agent.order_handler import OrderHandler
from reconciler.node.agent.pace import AgentPace
from reconciler.node.local.attempts import Accepted, LeaveRequest, StopRequest, life_folder, read_document
from reconciler.node.local.gpus import DeclaredGpus, NodeGpus
from reconciler.protocols.backend import TaskState
from reconciler.supervisor import taskfiles
from solver.model.cluster import Node
from solver.model.quantities import Instant
from solver.model.workload import TaskPlacement

PACE: Final = AgentPace(look_s=1.0)
POLL_S: Final = 0.4
BEGINS_S: Final = (0.05, 3.0)
"""How long a command takes to begin."""
STOPPED_CODE: Final = 143
_NO_PROCESS: Final = 2**30
"""A pid that Linux gives to none (proc(5), pid_max)."""


@dataclass
class Processes:
    """What runs on one machine, played by what supervisors write: `ran` outlives the machine's reboots, and is what judges see."""

    loop: VirtualLoop
    clock: SteppedClock
    chance: random.Random
    ran: list[Interval]
    forgotten: list[tuple[Instant, Instant]] = field(default_factory=list)
    """Spans that a disk which was put in place of another does not know of."""
    _alive: dict[Path, tuple[int, asyncio.Task[None]]] = field(default_factory=dict)
    _intervals: dict[Path, int] = field(default_factory=dict)

    def spawn(self, folder: Path) -> None:
        """A supervisor, unless there is one: its lock says so."""
        lock = os.open(folder / taskfiles.LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return
        self._alive[folder] = lock, self.loop.create_task(self._supervise(folder))

    def end_all(self) -> None:
        """The power fails: nothing is written any more."""
        for folder in list(self._alive):
            self._let_go(folder, "lost")

    async def _supervise(self, folder: Path) -> None:
        if any((folder / name).exists() for name in (taskfiles.STARTED, taskfiles.STOP, taskfiles.LEAVE)):
            self._release(folder)
            return
        await asyncio.sleep(self.chance.uniform(*BEGINS_S))
        if any((folder / name).exists() for name in (taskfiles.STOP, taskfiles.LEAVE)):
            self._release(folder)
            return
        accepted, task = _told(folder)
        order, now = accepted.order, self.clock.true.now()
        self._intervals[folder] = len(self.ran)
        life = order.job, order.attempt, task.group, task.index, task.node, task.devices
        self.ran.append(Interval(*life, begin=now, growth=accepted.growth))
        _write(folder / taskfiles.STARTED, {"pid": _NO_PROCESS, "startTicks": 1, "at": int(self.clock.now())})
        behaviour = by_command(order.spec, task.group)
        state, code = await self._wait(folder, now, behaviour.lasts, behaviour.exit_code)
        ended = {"at": int(self.clock.now()), "code": code, "stopped": state == "stopped"}
        self._let_go(folder, state, code)
        _write(folder / taskfiles.EXIT, ended)

    async def _wait(self, folder: Path, begin: Instant, lasts: int | None, code: int) -> tuple[TaskState, int]:
        stop_at: Instant | None = None
        while True:
            await asyncio.sleep(POLL_S)
            now = self.clock.true.now()
            if lasts is not None and now >= begin.after(lasts):
                return ("failed" if code else "succeeded"), code
            asked = read_document(folder / taskfiles.STOP, StopRequest) or read_document(
                folder / taskfiles.LEAVE, LeaveRequest
            )
            if asked is not None and stop_at is None:
                stop_at = now.after(int(self.chance.uniform(0, min(asked.grace_s, 10.0)) * 1_000))
            if stop_at is not None and now >= stop_at:
                return "stopped", STOPPED_CODE

    def _let_go(self, folder: Path, state: TaskState, code: int | None = None) -> None:
        if folder in self._intervals:
            number = self._intervals.pop(folder)
            changes: dict[str, Any] = {"end": self.clock.true.now(), "state": state, "exit_code": code}
            self.ran[number] = msgspec.structs.replace(self.ran[number], **changes)
        self._release(folder)

    def _release(self, folder: Path) -> None:
        lock, task = self._alive.pop(folder)
        os.close(lock)
        if task is not asyncio.current_task(self.loop) and not task.done():
            task.cancel()


def _told(folder: Path) -> tuple[Accepted, TaskPlacement]:
    attempt = folder.parent
    for path in sorted(attempt.glob("order*.json")):
        accepted = read_document(path, Accepted)
        for task in accepted.order.tasks if accepted else ():
            if accepted and life_folder(attempt, task, accepted.growth) == folder:
                return accepted, task
    raise AssertionError(f"{folder}: no order says what runs there")


def _write(path: Path, content: object) -> None:
    taskfiles.write_durably(str(path), msgspec.json.encode(content).decode())


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
        self.processes = Processes(network.loop, clock, self.chance, ran)
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
        self.processes.end_all()

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
        self.processes.forgotten.append((self._kept_at, self.clock.true.now()))
        shutil.rmtree(self.folder)
        shutil.copytree(self._kept, self.folder, symlinks=True)
        return True

    def _gpus(self, kept: Path) -> NodeGpus:
        return DeclaredGpus(kept, self.folder / "none")


def spawning(machines: dict[str, Machine]) -> Any:
    """In place of what begins a supervisor."""

    def spawn(folder: Path) -> int:
        machine = next(one for one in machines.values() if folder.is_relative_to(one.folder))
        machine.processes.spawn(folder)
        return _NO_PROCESS

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
