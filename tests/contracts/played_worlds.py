"""The agents of `python -m hack.agents` under the conformance suite: in virtual time, with supervisors that are played."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

from hack.agents.machines import Machine, played
from hack.agents.network import Network
from hack.agents.planes import PlaneDoor, waiting
from hack.agents.virtual_time import LoopClock, VirtualLoop
from hack.crash.clocks import SteppedClock
from reconciler.backends.baremetal import backend
from reconciler.backends.baremetal.backend import BareMetalBackend
from reconciler.backends.simulated.cluster import Interval
from reconciler.protocols.backend import Cursor, Epoch, StopGang
from reconciler.protocols.ledger import Claim
from solver.model.quantities import Duration
from solver.model.workload import JobName
from tests.contracts.baremetal_worlds import Recorded
from tests.contracts.played_commands import PlayedCommands
from tests.contracts.simulated_worlds import NODES

PLACE = "plane"
SETTLE_S = 1.0
_WITHIN_S = 60.0
_NEWEST_EPOCH = Epoch(1_000_000)


class PlayedWorld(PlayedCommands):
    """Implements BackendWorld. The agents go on while the control plane's side is made anew."""

    nodes = NODES
    idle_limit = Duration(60_000)

    def __init__(self, folder: Path, closing: ExitStack) -> None:
        self.loop = VirtualLoop()
        closing.callback(self.loop.close)
        self._clock = SteppedClock(LoopClock(self.loop))
        self._network = Network(self.loop, 7)
        self.machines: dict[str, Machine] = {}
        self.ran: list[Interval] = []
        for patch in (
            *played(self.machines, self._network),
            mock.patch.object(backend, "wait", waiting(self._network)),
        ):
            closing.enter_context(patch)
        for node in NODES:
            of = folder / node.name, self._network, (PLACE,), self._clock, self.ran
            self.machines[node.name] = Machine(node, *of)
        self._claims: dict[tuple[JobName, int], Claim] = {}
        self._door: PlaneDoor | None = None
        self.restart()

    def settle(self) -> None:
        self.loop.let_pass(SETTLE_S)

    def restart(self) -> None:
        if self._door is not None:
            self._door.vanish()
        door = self._door = PlaneDoor(self._network, PLACE, self._clock, lambda: True)
        made = BareMetalBackend(door.server, door.fleet, lambda: tuple(self._claims.values()))
        self.backend = Recorded(made, self._claims)
        assert self.loop.until(
            lambda: sum(node.ready for node in made.changes(Cursor(0)).nodes) == len(NODES), _WITHIN_S
        )

    def told(self, job: JobName, attempt: int, index: int) -> list[int]:
        heard = [told for machine in self.machines.values() for told in machine.supervisors.heard]
        return [told.number for told in heard if (told.job, told.attempt, told.index) == (job, attempt, index)]

    def starts(self, job: JobName, attempt: int, group: str, index: int) -> int:
        wanted = job, attempt, group, index
        return sum((ran.job, ran.attempt, ran.group, ran.index) == wanted for ran in self.ran)

    def environment(self, job: JobName, attempt: int, group: str, index: int) -> dict[str, str]:
        assert self.starts(job, attempt, group, index)
        task = job, attempt, group, index
        seen = [machine.supervisors.environments for machine in self.machines.values()]
        return next(known[task] for known in seen if task in known)

    def close(self) -> None:
        """Stop everything, and fail if anything is left."""
        for job, attempt in {(task.job, task.attempt) for task in self.backend.changes(Cursor(0)).tasks}:
            self.backend.submit(StopGang(job, attempt, Duration(0)), _NEWEST_EPOCH)
        supervisors = [machine.supervisors for machine in self.machines.values()]
        assert self.loop.until(lambda: not any(each.alive for each in supervisors), _WITHIN_S)
        assert [problem for each in supervisors for problem in each.broken] == []


@contextmanager
def played_world(folder: Path) -> Iterator[PlayedWorld]:
    """No process, and no connection; nothing goes on at the end."""
    with ExitStack() as closing:
        world = PlayedWorld(folder, closing)
        yield world
        world.close()
