"""What agents tell of hardware goes on to whoever looks, and a trial of a node is nothing that strays there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.backends.baremetal.agent_state import Heard
from reconciler.backends.baremetal.merge import FleetView, Patience
from reconciler.backends.baremetal.report_log import ReportLog
from reconciler.lifecycle.health.trials import claims_of, trial_name
from reconciler.model.clock import Clock
from reconciler.model.facts import NicFacts, NodeFacts
from reconciler.model.health_record import HealthTrial, NodeHealth
from reconciler.node.agent import hardware as hardware_of_agents
from reconciler.node.agent.folder import AgentFolder
from reconciler.node.agent.hardware import Hardware
from reconciler.node.agent.order_handler import OrderHandler
from reconciler.protocols.backend import BackendChanges, Cursor, TaskStatus
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from tests.contracts import baremetal_worlds
from tests.contracts.local_worlds import eventually
from tests.contracts.simulated_worlds import NODES

NODE = NODES[0]
NOW = Instant(1_700_000_000_000)
FACTS = NodeFacts(NODE.name, NOW, nics=(NicFacts("ib0", True),))
TRIAL = HealthTrial(NOW, ("n1/0",), ("n1/0",))
RUNS = TaskStatus(trial_name(NODE.name), int(NOW), "test", 0, NODE.name, "running", NOW)


def cluster(*records: NodeHealth) -> FleetView:
    heard = Heard(0.0, NOW, connected=True, whole_at=NOW)
    heard.told.add(BackendChanges(Cursor(1), (NODE,), (RUNS,), facts=(FACTS,)))
    return FleetView({NODE.name: heard}, claims_of(records), 0.0, Patience())


def test_facts_are_told_once_and_whole_to_a_new_reader() -> None:
    known, numbered = cluster().changes(), ReportLog(NOW)
    first = numbered.after(known, Cursor(0))
    assert first.facts == (FACTS,)
    assert numbered.after(known, first.cursor).facts == ()


def test_a_trial_is_known_and_anything_else_has_to_be_stopped_first() -> None:
    tried = cluster(NodeHealth(NODE.name, trial=TRIAL))
    assert (tried.changes().nodes[0].ready, list(tried.strays())) == (True, [])
    alone = cluster()
    assert (alone.changes().nodes[0].ready, [stray.status for stray in alone.strays()]) == (False, [RUNS])


@pytest.mark.thorough
def test_agents_tell_them_over_their_connections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    up = {node.name: True for node in NODES}

    def deeds(node: NodeName, folder: AgentFolder, clock: Clock, **more: Any) -> OrderHandler:
        hardware = Hardware(lambda at: NodeFacts(node, at, nics=(NicFacts("ib0", up[node]),)))
        return OrderHandler(node, folder, clock, hardware=hardware, **more)

    monkeypatch.setattr(baremetal_worlds, "OrderHandler", deeds)
    monkeypatch.setattr(hardware_of_agents, "READ_EVERY", Duration(0))
    with baremetal_worlds.baremetal_world(tmp_path) as world:

        def told() -> dict[str, bool]:
            return {facts.node: facts.nics[0].up for facts in world.backend.changes(Cursor(0)).facts}

        eventually(lambda: told() == {"n1": True, "n2": True})
        up[NODE.name] = False
        eventually(lambda: told() == {"n1": False, "n2": True})
        world.restart()
        eventually(lambda: told() == {"n1": False, "n2": True})
