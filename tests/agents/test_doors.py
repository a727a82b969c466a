"""A control plane's door over the network that is played: what a moment decides, which real connections seldom show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar
from unittest import mock

import pytest

from hack.agents.network import End, Network, Way
from hack.agents.planes import PlaneDoor, waiting
from hack.agents.virtual_time import LoopClock, VirtualLoop
from hack.crash.workload import NODES
from reconciler.backends.baremetal import backend
from reconciler.backends.baremetal.backend import BareMetalBackend
from reconciler.backends.baremetal.wire import PROTOCOL, Done, Forget, FromAgent, Hello, Report, ToAgent
from reconciler.protocols.backend import BackendChanges, BackendUnreachableError, Cursor, Epoch, TaskStatus
from solver.model.cluster import NodeName
from solver.model.document import decode, encode
from solver.model.quantities import Instant
from solver.model.workload import JobName

T = TypeVar("T")

PLACE, JOB = "plane", JobName("job")
ONE, OTHER = (node.name for node in NODES)
LONG_S = 1_000.0
_STATUS = TaskStatus(JOB, 1, "worker", 0, ONE, "running", Instant(0))
RUNS = Report(BackendChanges(Cursor(1), tasks=(_STATUS,)), whole=True)


class DoorWorld:
    """One door, and agents of which each message is sent by the test."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.network = Network(self.loop, 1)
        self.leads = True
        self.door = PlaneDoor(self.network, PLACE, LoopClock(self.loop), lambda: self.leads)

    def comes(self, node: NodeName) -> End:
        """An agent connects, and is welcome."""

        async def come() -> End:
            end = await self.network.connect(node, PLACE, LONG_S, LONG_S)
            await end.send(encode(Hello(PROTOCOL, node, Epoch(0), "")).decode())
            await end.recv()
            return end

        return self.loop.run_until_complete(come())

    def says(self, end: End, said: FromAgent) -> None:
        """An agent sends something, and if it can be so, it has arrived."""
        self.loop.run_until_complete(end.send(encode(said).decode()))
        self.loop.let_pass(0.1)

    def hears(self, end: End, kind: type[T]) -> T:
        """The next message of a kind that an agent was sent."""
        while True:
            said: ToAgent = decode(self.loop.run_until_complete(end.recv()), ToAgent)  # type: ignore[arg-type]
            if isinstance(said, kind):
                return said

    def until(self, reached: Callable[[], bool]) -> None:
        """Time passes."""
        assert self.loop.until(reached, LONG_S)


@pytest.fixture
def world() -> Iterator[DoorWorld]:
    made = DoorWorld()
    yield made
    made.loop.close()


def has_ended(end: End) -> bool:
    return end._ended is not None


def test_an_agent_that_comes_while_others_are_sent_away_stays_known(world: DoorWorld) -> None:
    first = world.comes(ONE)
    world.network.down.add(Way(ONE, PLACE))  # It says no goodbye, so the door waits for that.
    world.leads = False
    world.until(lambda: has_ended(first))
    world.leads = True
    world.comes(OTHER)
    world.until(lambda: has_ended(first.other))
    world.loop.let_pass(3.0)
    assert world.door.fleet.nodes_there() == {OTHER}


def test_what_comes_late_over_a_connection_that_was_replaced_is_not_heard(world: DoorWorld) -> None:
    first = world.comes(ONE)
    world.network.down.add(Way(ONE, PLACE))
    world.says(first, RUNS)
    world.network.down.clear()  # What was said is on its way still.
    world.comes(ONE)
    world.until(lambda: has_ended(first.other))
    world.loop.let_pass(3.0)
    assert world.door.fleet.nodes_there() == {ONE}
    assert world.door.fleet.nodes_with(JOB, 1) == set()


def test_nor_is_what_comes_while_it_is_sent_away(world: DoorWorld) -> None:
    first = world.comes(ONE)
    world.network.down.add(Way(ONE, PLACE))
    world.says(first, RUNS)
    world.leads = False
    world.until(lambda: has_ended(first))
    world.network.down.clear()
    world.until(lambda: has_ended(first.other))
    assert world.door.fleet.nodes_with(JOB, 1) == set()


def test_an_agent_that_says_late_that_it_has_forgotten_an_attempt_is_believed(world: DoorWorld) -> None:
    agent = world.comes(ONE)
    world.says(agent, RUNS)
    plane = BareMetalBackend(world.door.server, world.door.fleet, tuple)
    with (
        mock.patch.object(backend, "wait", waiting(world.network)),
        mock.patch.object(plane, "_announced", Epoch(1)),
        pytest.raises(BackendUnreachableError, match="n1: no answer"),
    ):
        plane.forget(JOB, 1, Epoch(1))
    assert world.door.fleet.nodes_with(JOB, 1) == {ONE}
    world.says(agent, Done(world.hears(agent, Forget).id))
    assert world.door.fleet.nodes_with(JOB, 1) == set()
