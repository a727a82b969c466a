"""Hoarding, with a real control plane and real agents: a job that leaves its GPUs idle is warned, lends them, and loses them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from solver.model.workload import JobName, QueueName
from tests.e2e.bare_metal import Cluster, bare_metal_policy
from tests.e2e.control_plane import ControlPlane, sh
from tests.e2e.links import wires
from tests.e2e.nodes import eventually, three_nodes
from tests.reconciler.gitops.source.origin import Origin

HOARDER, WORKER, SECOND = JobName("hoarder"), JobName("worker"), JobName("second")
HEAD = "apiVersion: quorate.dev/v1\nkind: "
POLICIES = {
    "policies/queue.yaml": f"{HEAD}Queue\nmetadata: {{name: team}}\nspec: {{quota: [{{gpuType: H100, guaranteed: 12}}]}}\n",
    "policies/labs.yaml": f"{HEAD}Queue\nmetadata: {{name: labs}}\nspec: {{quota: [{{gpuType: H100, guaranteed: 0}}]}}\n",
    "policies/idle.yaml": f"{HEAD}IdlePolicy\nmetadata: {{name: hoarding}}\n"
    "spec: {idleWhen: {gpuActivity: {below: 5, for: 1m, measured: 0.5}}, grace: 1s, action: lend}\n",
}


@pytest.fixture
def cluster(plane: ControlPlane, origin: Origin, tmp_path: Path) -> Iterator[Cluster]:
    files = bare_metal_policy(tmp_path) | POLICIES
    del files["policies/serving.yaml"]
    origin.commit(files)
    plane.start("--agents-listen", "127.0.0.1:0").until_ready()
    with (
        wires() as network,
        plane.client() as client,
        three_nodes(network, [plane.agents_port], client, tmp_path) as nodes,
    ):
        made = Cluster([(plane, client)], nodes, tmp_path)
        eventually("every node is ready", made.ready)
        yield made


@pytest.mark.long
def test_a_job_that_hoards_gpus_is_warned_and_lends_them_and_a_second_job_gets_them(cluster: Cluster) -> None:
    client, forever = cluster.client, "while :; do sleep 0.2; echo busy; done"
    idle = msgspec.structs.replace(sh(forever, tasks=2, gpus=4), env={"SIMULATED_GPUS": "idle"})
    client.submit(HOARDER, idle)
    client.submit(WORKER, sh(forever, tasks=1, gpus=4))
    eventually("both run", lambda: cluster.runs(1, HOARDER) and cluster.runs(1, WORKER))
    client.submit(SECOND, msgspec.structs.replace(sh(forever, tasks=2, gpus=4), queue=QueueName("labs")))
    eventually("it is warned", lambda: cluster.causes("idle", HOARDER))
    (warned,) = cluster.causes("idle", HOARDER)
    assert "all its GPUs were below 5 % active" in warned
    assert "policies/idle.yaml:3" in warned
    eventually("the second job runs", lambda: cluster.runs(1, SECOND))
    assert len(cluster.causes("lent", HOARDER)) == 1
    eventually("it waits to be resumed", lambda: client.job(HOARDER).state == "suspended")
    assert client.job(HOARDER).suspended_by == "IdlePolicy hoarding"
    one_each = {"labs": 1, "team": 1}
    eventually("a pass has seen it", lambda: {view.name: view.running for view in client.queues().items} == one_each)
    assert cluster.runs(1, WORKER), "what works keeps its GPUs"
    assert cluster.causes("idle", WORKER) == []
    client.resume(HOARDER)
    eventually("it asks for what it is guaranteed", lambda: client.job(HOARDER).state != "suspended")
