"""Break-glass on a real control plane: a cordon outlives a kill, and is over once Git says the same."""

from __future__ import annotations

import signal

import pytest

from tests.e2e.control_plane import POLICY, ControlPlane, sh, submit, until
from tests.reconciler.gitops.source.origin import Origin

pytestmark = pytest.mark.long

POOL = "cluster-state/pool.yaml"


def test_a_cordon_outlives_a_kill_and_git_takes_it_over(plane: ControlPlane, origin: Origin) -> None:
    plane.start().until_ready()
    with plane.client() as client:
        for node in ("n1", "n2"):
            client.by_hand.cordon(node, "fan 3 is broken")
        until("the round sees it", lambda: all(node.cordoned for node in client.snapshot().nodes))
    assert plane.signal(signal.SIGKILL) == -signal.SIGKILL
    plane.start().until_ready()
    with plane.client() as client:
        submit(client, ["job"], sh("true", gpus=4))
        until("it waits", lambda: client.why("job").verdict)
        assert client.job("job").state == "queued"
        origin.commit({POOL: POLICY[POOL].replace("count: 2}", "count: 2}, cordoned: [n1]")})
        until("git has taken it over", lambda: [each.subject.name for each in client.status().by_hand] == ["n2"])
        client.by_hand.uncordon("n2")
        until("it has ended", lambda: client.job("job").outcome)
        assert [event.kind for event in plane.events("n1")] == ["cordoned", "agreed"]
        nodes = {view.node.name: view.node.cordoned for view in client.nodes().items}
    assert nodes == {"n1": True, "n2": False}
