"""A job in a container under a real control plane."""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec
import pytest

from solver.model.workload import Container, JobName
from tests.e2e.bare_metal import bare_metal_policy
from tests.e2e.control_plane import PATIENCE_S, ControlPlane, sh, until
from tests.e2e.links import wires
from tests.e2e.nodes import AgentProcess, eventually
from tests.reconciler.gitops.source.origin import Origin
from tests.reconciler.node.local.podman_image import IMAGE, podman_or_why

pytestmark = pytest.mark.long


def test_a_gang_in_containers_outlives_its_control_plane(plane: ControlPlane) -> None:
    found = podman_or_why()
    if isinstance(found, str):
        pytest.skip(found)
    script = 'echo "$RANK of $WORLD_SIZE in $container"; while [ ! -e go ]; do sleep 0.05; done'
    gang = msgspec.structs.replace(sh(script, tasks=2), container=Container(IMAGE))
    plane.start().until_ready()
    with plane.client() as client:
        client.submit(JobName("gang"), gang)
        until("it runs", lambda: client.job("gang").state == "running")
    assert plane.signal(signal.SIGKILL) == -signal.SIGKILL
    plane.start().until_ready()
    for index in (0, 1):
        (plane.folder.tasks / f"live/gang.1/worker.{index}/work/go").touch()
    with plane.client() as client:
        assert client.wait("gang", PATIENCE_S).state == "succeeded"
        assert client.job("gang").attempt == 1
        until("its log is there", lambda: client.log("gang") == b"0 of 2 in podman\n")


def test_a_container_goes_to_a_node_that_runs_those(plane: ControlPlane, origin: Origin, tmp_path: Path) -> None:
    found = podman_or_why()
    if isinstance(found, str):
        pytest.skip(found)
    (tmp_path / "bin").mkdir()
    origin.commit(bare_metal_policy(tmp_path))
    plane.start("--agents-listen", "127.0.0.1:0").until_ready()
    with wires() as network, plane.client() as client:
        ports = [plane.agents_port]
        without, having = (AgentProcess(node, tmp_path, network.link(node), ports) for node in ("n1", "n2"))
        try:
            for agent in (without, having):
                agent.join(client)
            without.start(PATH=str(tmp_path / "bin"))
            having.start()
            states = {"n1": True, "n2": True, "n3": False}
            eventually("two are ready", lambda: {v.node.name: v.node.ready for v in client.nodes().items} == states)
            boxed = msgspec.structs.replace(sh("echo in $container"), container=Container(IMAGE))
            for number in range(4):
                client.submit(JobName(f"job-{number}"), boxed)
                ended = client.wait(f"job-{number}", timeout_s=120)
                assert ended.state == "succeeded", ended
                assert client.log(f"job-{number}") == b"in podman\n"
            assert not list((without.folder / "tasks" / "forgotten").iterdir())
            assert len(list((having.folder / "tasks").glob("*/job-*"))) == 4
        finally:
            for agent in (without, having):
                agent.end()
