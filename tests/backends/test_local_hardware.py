"""What a machine tells of its hardware is reported when it is news, and to a new reader whole."""

from __future__ import annotations

from pathlib import Path

import msgspec

from reconciler.backend import Cursor
from reconciler.backends.baremetal.facts import GpuFacts, NicFacts, NodeFacts
from reconciler.backends.local import LocalBackend
from reconciler.backends.local.hardware import READ_EVERY, Hardware
from reconciler.backends.simulated.clock import VirtualClock
from solver.world.cluster import DeviceId
from solver.world.quantities import Instant
from tests.contracts.simulated_worlds import NODES

GPU = GpuFacts(DeviceId("n1/0"), temperature_c=40)


def test_facts_are_reported_when_they_are_news(tmp_path: Path) -> None:
    clock, machine, asked = VirtualClock(), {"gpus": (GPU,), "nics": (NicFacts("ib0", True),)}, list[Instant]()

    def read(at: Instant) -> list[NodeFacts]:
        asked.append(at)
        return [msgspec.structs.replace(NodeFacts(NODES[0].name, at), **machine)]

    backend = LocalBackend(tmp_path / "state", lambda: NODES, clock, hardware=Hardware(read))
    first = backend.changes(Cursor(0))
    assert [(facts.node, facts.gpus, facts.at) for facts in first.facts] == [("n1", (GPU,), clock.now())]
    machine["nics"] = (NicFacts("ib0", False),)
    assert backend.changes(first.cursor).facts == (), "the hardware is not asked all the time"
    assert len(asked) == 1
    clock.advance(READ_EVERY)
    second = backend.changes(first.cursor)
    assert [facts.nics for facts in second.facts] == [(NicFacts("ib0", False),)]
    machine["gpus"] = (msgspec.structs.replace(GPU, temperature_c=80),)
    clock.advance(READ_EVERY)
    assert backend.changes(second.cursor).facts == (), "a temperature alone is no news"
    machine["gpus"] = (msgspec.structs.replace(GPU, lost=True),)
    clock.advance(READ_EVERY)
    assert [facts.gpus[0].lost for facts in backend.changes(second.cursor).facts] == [True]
    assert backend.changes(Cursor(0)).facts == backend.changes(second.cursor).facts
