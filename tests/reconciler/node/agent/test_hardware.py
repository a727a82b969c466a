"""What an agent's node tells of its hardware is told when it is news, and to a new listener whole."""

from __future__ import annotations

from pathlib import Path

import msgspec

from reconciler.model.clock import VirtualClock
from reconciler.model.facts import GpuFacts, NicFacts, NodeFacts
from reconciler.node.agent.folder import AgentFolder
from reconciler.node.agent.hardware import READ_EVERY, Hardware
from reconciler.node.agent.order_handler import OrderHandler
from reconciler.protocols.backend import Cursor
from solver.model.cluster import DeviceId
from solver.model.quantities import Instant
from tests.contracts.simulated_worlds import NODES

GPU = GpuFacts(DeviceId("n1/0"), temperature_c=40)


def test_facts_are_told_when_they_are_news(tmp_path: Path) -> None:
    clock, asked = VirtualClock(), list[Instant]()
    machine = NodeFacts(NODES[0].name, Instant(0), (GPU,), (NicFacts("ib0", True),))

    def read(at: Instant) -> NodeFacts:
        asked.append(at)
        return msgspec.structs.replace(machine, at=at)

    deeds = OrderHandler(NODES[0].name, AgentFolder(tmp_path / "agent"), clock, hardware=Hardware(read))
    first = deeds.changes(Cursor(0))
    assert [(facts.node, facts.gpus, facts.at) for facts in first.facts] == [("n1", (GPU,), clock.now())]
    machine = msgspec.structs.replace(machine, nics=(NicFacts("ib0", False),))
    assert deeds.changes(first.cursor).facts == (), "the hardware is not asked all the time"
    assert len(asked) == 1
    clock.advance(READ_EVERY)
    assert [facts.nics for facts in deeds.changes(first.cursor).facts] == [(NicFacts("ib0", False),)]
    machine = msgspec.structs.replace(machine, gpus=(msgspec.structs.replace(GPU, temperature_c=80),))
    clock.advance(READ_EVERY)
    assert deeds.changes(first.cursor).facts == (), "a temperature alone is no news"
    machine = msgspec.structs.replace(machine, gpus=(msgspec.structs.replace(GPU, lost=True),))
    clock.advance(READ_EVERY)
    (told,) = deeds.changes(first.cursor).facts
    assert told.gpus[0].lost
    assert deeds.changes(first.cursor).facts == ()
    assert deeds.changes(Cursor(0)).facts == (told,)


def test_a_node_that_has_just_joined_is_asked_again_until_there_is_something_to_ask() -> None:
    """Until it had said that it runs no containers, jobs in containers were placed there: for five seconds."""
    known: NodeFacts | None = None
    hardware = Hardware(lambda _: known)
    assert hardware.news(Instant(0), whole=True) == ()
    known = NodeFacts(NODES[0].name, Instant(0), containers=False)
    assert hardware.news(Instant(1), whole=False) == (known,)
