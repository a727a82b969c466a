"""Agents that are known stay connected however many others stand in the doorway."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from reconciler.backends.baremetal import agent_listener
from reconciler.connections.limits import ConnectionLimits
from tests.contracts.baremetal_worlds import baremetal_world
from tests.contracts.simulated_worlds import NODES

LIMITS = ConnectionLimits(len(NODES) + 2, 2)
"""Two may stand there whose names are not known; both agents and they come from one address."""


def test_known_agents_are_not_displaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_listener, "agents_limits", lambda: LIMITS)
    with baremetal_world(tmp_path) as world:
        before = {node.name: world.door._lines[node.name] for node in NODES}
        with ExitStack() as held:
            others = [held.enter_context(_connected(world.port)) for _ in range(20)]
            for each in others[: -LIMITS.per_peer_max]:
                assert _ended(each)
            assert world.door._lines == before


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 60)


def _ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
