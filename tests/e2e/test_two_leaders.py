"""Two control planes on one PostgreSQL, and the agents of three nodes: one dies, the other leads, and tasks don't notice."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from solver.world.workload import JobName
from tests.contracts.stores import postgresql_schema
from tests.e2e.control_plane import POLICY, ControlPlane, sh
from tests.e2e.nodes import AgentProcess, eventually, three_nodes
from tests.e2e.test_bare_metal import POOL
from tests.gitsource.origin import Origin

JOB = JobName("job")


@pytest.fixture
def planes(tmp_path: Path) -> Iterator[list[ControlPlane]]:
    """Two that are not started, for the same cluster."""
    origin = Origin(tmp_path / "policy")
    origin.commit(POLICY | {"cluster-state/pool.yaml": POOL})
    made = [ControlPlane(origin.folder, tmp_path / name) for name in ("first", "second")]
    yield made
    for plane in made:
        plane.end()


def begin(plane: ControlPlane, store: str) -> int:
    """Start it; returns where it listens for agents."""
    password = re.findall(r":([^:@/]+)@", store)[0]
    plane.folder.path.mkdir(mode=0o700, exist_ok=True)
    file = plane.folder.path / "password"
    file.write_text(password)
    file.chmod(0o600)
    authority = plane.folder.path.parent / "first" / "agents" / "authority.pem"
    given = ("--agents-authority", str(authority)) if authority.exists() else ()
    listen = ("--agents-listen", "127.0.0.1:0")
    plane.start("--store", store.replace(f":{password}@", "@"), "--store-password-file", str(file), *listen, *given)
    found: int = plane.logged("listening-for-agents")[-1]["port"]
    return found


@pytest.mark.long
@pytest.mark.postgresql
def test_whoever_leads_next_finds_the_tasks_of_all_agents(planes: list[ControlPlane], tmp_path: Path) -> None:
    first, second = planes
    with postgresql_schema() as store:
        begin(first, store)
        first.until_ready()
        with first.client() as client, three_nodes(first, client, tmp_path) as nodes:
            other = begin(second, store)
            also_serve(nodes, other)
            eventually("every node is ready", lambda: all(view.node.ready for view in client.nodes().items))
            script = 'read over < "$0/$QUORATE_INDEX"; echo "let $over"'
            gates = [tmp_path / "over" / str(index) for index in range(3)]
            (tmp_path / "over").mkdir()
            for gate in gates:
                os.mkfifo(gate)
            spec = msgspec.structs.replace(
                sh("", tasks=3, gpus=4), command=("sh", "-c", script, str(tmp_path / "over"))
            )
            client.submit(JOB, spec)
            eventually("it runs", lambda: client.job(JOB).state == "running")
            running = {name: agent.tasks() for name, agent in nodes.items()}
            first.signal(signal.SIGKILL)
            with second.client() as successor:
                eventually(
                    "the other leads",
                    lambda: any(c.type == "Leading" and c.status for c in successor.status().conditions),
                )
                eventually("and hears of all", lambda: all(view.node.ready for view in successor.nodes().items))
                assert {name: agent.tasks() for name, agent in nodes.items()} == running
                for gate in gates:
                    gate.write_text("go\n")
                eventually("it has ended", lambda: successor.job(JOB).outcome)
                assert successor.job(JOB).attempt == 1
                assert successor.log(JOB, index=2).decode() == "let go\n"


def also_serve(nodes: dict[str, AgentProcess], port: int) -> None:
    """Start the agents anew, with the address of the other control plane beside that of the first."""
    for agent in nodes.values():
        agent.kill()
        agent.start("--server", f"127.0.0.1:{port}")
