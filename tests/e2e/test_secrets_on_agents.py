"""A secret on its way to a task on another machine, and as whom that runs: real agents and a real control plane."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from reconciler.client import ApiError
from solver.model.workload import JobName, SecretUse
from tests.e2e.bare_metal import bare_metal_policy
from tests.e2e.control_plane import PATIENCE_S, ControlPlane, sh, until
from tests.e2e.links import wires
from tests.e2e.nodes import AgentProcess, eventually
from tests.e2e.test_secrets import CANARY, PROOF, found_in, log_of, secretive, vault
from tests.files import files_with
from tests.reconciler.gitops.source.origin import Origin

__all__ = ["vault"]

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user"),
]


@pytest.fixture
def ground(origin: Origin, tmp_path: Path) -> Iterator[Path]:
    """A folder that every account can pass through: pytest's own are closed."""
    origin.commit(bare_metal_policy(tmp_path))
    made = Path(tempfile.mkdtemp(prefix="quorate-run-as-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


def test_a_secret_is_in_the_tasks_of_an_agent_and_nowhere_else(plane: ControlPlane, vault: Path, ground: Path) -> None:
    plane.start("--agents-listen", "127.0.0.1:0", "--secrets", str(vault)).until_ready()
    with wires() as network, plane.client() as client:
        agent = AgentProcess("n1", ground, network.link("n1"), [plane.agents_port])
        try:
            agent.join(client)
            agent.start("--run-as-submitter", "--account", "root=nobody")
            eventually("the node is ready", lambda: any(view.node.ready for view in client.nodes().items))
            client.submit(JobName("knows"), secretive('id -un; echo "told $WANDB_API_KEY"; ' + PROOF))
            digest = sha256(CANARY.encode()).hexdigest()
            until("it has them", lambda: log_of(client, "knows").count(digest) == 2)
            assert log_of(client, "knows").splitlines()[:2] == ["nobody", "told " + "*" * len(CANARY)]
            assert found_in(plane, client, ["knows"]) == []
            assert CANARY not in agent.log()
            attempt = agent.folder / "tasks/live/knows.1/worker.0"
            having = files_with(agent.folder, CANARY.encode())
            assert having == [attempt / "log"], "what a task prints is its own doing"
            (attempt / "work/go").touch()
            assert client.wait("knows", PATIENCE_S).state == "succeeded"
            unknown = msgspec.structs.replace(sh("true"), secrets=(SecretUse("nothing", env="X"),))
            with pytest.raises(ApiError, match="have no secret"):
                client.submit(JobName("other"), unknown)
            assert plane.signal(signal.SIGTERM) == 0
        finally:
            agent.end()


def test_a_user_without_an_account_on_the_node_runs_nothing(plane: ControlPlane, ground: Path) -> None:
    plane.start("--agents-listen", "127.0.0.1:0").until_ready()
    with wires() as network, plane.client() as client:
        agent = AgentProcess("n1", ground, network.link("n1"), [plane.agents_port])
        try:
            agent.join(client)
            agent.start("--run-as-submitter")
            eventually("the node is ready", lambda: any(view.node.ready for view in client.nodes().items))
            client.submit(JobName("job"), sh("echo began"))
            assert client.wait("job", PATIENCE_S).state == "failed"
            assert "no job runs as it" in log_of(client, "job")
            assert "began" not in log_of(client, "job")
        finally:
            agent.end()
