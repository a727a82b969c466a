"""A control plane and three agents, all real processes: what becomes of tasks whatever dies or is cut off."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from solver.model.workload import JobName
from tests.e2e import witness
from tests.e2e.bare_metal import Cluster, bare_metal_policy
from tests.e2e.control_plane import ControlPlane, sh
from tests.e2e.links import wires
from tests.e2e.nodes import eventually, three_nodes
from tests.reconciler.gitops.source.origin import Origin

JOB = JobName("job")
LOST_AFTER = ("--node-lost-after", "30s")


@pytest.fixture
def cluster(plane: ControlPlane, origin: Origin, tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "witness").mkdir()
    origin.commit(bare_metal_policy(tmp_path))
    plane.start("--agents-listen", "127.0.0.1:0", *LOST_AFTER).until_ready()
    with (
        wires() as network,
        plane.client() as client,
        three_nodes(network, [plane.agents_port], client, tmp_path) as nodes,
    ):
        made = Cluster([(plane, client)], nodes, tmp_path)
        eventually("every node is ready", made.ready)
        yield made
    assert witness.overlaps(witness.uses(tmp_path / "witness")) == []


@pytest.mark.long
def test_tasks_outlive_their_agent_and_the_control_plane(cluster: Cluster) -> None:
    script = 'echo "here $$"; read over < "$0/$QUORATE_INDEX"; echo "let $over"'
    (cluster.folder / "over").mkdir()
    gates = [cluster.folder / "over" / str(index) for index in range(3)]
    for gate in gates:
        os.mkfifo(gate)
    command = cluster.witnessed("sh", "-c", script, str(cluster.folder / "over"))
    cluster.client.submit(JOB, msgspec.structs.replace(sh("", tasks=3, gpus=4), command=command))
    eventually("it runs", lambda: cluster.runs(1, JOB))
    running = cluster.tasks()

    plane, _ = cluster.leader
    port = plane.agents_port
    plane.signal(signal.SIGKILL)
    cluster.nodes["n1"].kill()
    cluster.nodes["n1"].start()
    plane.start("--agents-listen", f"127.0.0.1:{port}").until_ready()
    with plane.client() as again:
        cluster.planes = [(plane, again)]
        eventually("every node is back", cluster.ready)
        assert cluster.tasks() == running
        for gate in gates:
            gate.write_text("go\n")
        assert cluster.outcome(JOB).state == "succeeded"
        assert again.job(JOB).attempt == 1
        logs = [again.log(JOB, index=index).decode() for index in range(3)]
        assert all(re.fullmatch(r"here \d+\nlet go\n", log) for log in logs)
        forgotten = [cluster.nodes[node].folder / "tasks/forgotten" for node in ("n1", "n2")]
        eventually("its end is on record", lambda: all(list(folder.iterdir()) for folder in forgotten))
        cluster.nodes["n1"].kill()
        cluster.nodes["n1"].start("--keep-logs", "1ms")
        eventually("its log is deleted there", lambda: not list(forgotten[0].iterdir()))
        assert list(forgotten[1].iterdir()), "elsewhere it is kept"


@pytest.mark.long
def test_a_node_that_was_given_up_ends_what_it_still_runs_before_it_gets_anything(cluster: Cluster) -> None:
    spec = msgspec.structs.replace(
        sh("", gpus=4), command=cluster.witnessed("sleep", "600"), retry_policy="training", priority_class="training"
    )
    cluster.client.submit(JOB, spec)
    eventually("it runs", lambda: cluster.runs(1, JOB))
    (first,) = cluster.where(JOB)
    cut = cluster.nodes[first]
    cut.link.cut()
    eventually("it runs elsewhere", lambda: cluster.runs(2, JOB))
    assert first not in cluster.where(JOB)
    assert cut.tasks(), "the partition alone ends nothing"
    assert not cluster.ready(first)
    cut.link.heal()
    eventually("the node is ready", lambda: cluster.ready(first))
    assert not cut.tasks()
    assert cluster.runs(2, JOB)
    assert "nothing has been heard of its node since" in " ".join(cluster.causes("retried", JOB))
