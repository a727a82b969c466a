"""A control plane and three agents, all real processes: what becomes of a gang whatever dies or is cut off."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from reconciler.client import Client
from reconciler.jobs.record import JobOutcome
from solver.world.quantities import Cpu, Duration, Memory
from solver.world.shape import Shape
from solver.world.workload import Checkpoint, JobName, JobSpec, QueueName, TaskGroup
from tests.e2e import training, witness
from tests.e2e.control_plane import ControlPlane, sh
from tests.e2e.nodes import AgentProcess, eventually, three_nodes
from tests.e2e.test_life import policy
from tests.gitsource.origin import Origin

RUN = JobName("training")
POOL = (
    "apiVersion: quorate.dev/v1\nkind: NodePool\nmetadata: {name: pool}\n"
    "spec: {gpuType: H100, gpusPerNode: 4, cpu: 64, memory: 64Gi, nodes: {prefix: n, count: 3}}\n"
)
LISTENING = ("--agents-listen", "127.0.0.1:0", "--node-lost-after", "30s")
"""Longer than the lease of a node, so that one can be silent for so long and not be given up."""
STEPS = 600
PACE_S = 0.1


@dataclass
class Cluster:
    plane: ControlPlane
    nodes: dict[str, AgentProcess]
    client: Client
    folder: Path

    def spec(self, tasks: int = 6, steps: int = STEPS) -> JobSpec:
        """A training run that saves its work every two seconds, each task with a witness of the devices it has."""
        command = self.witnessed(sys.executable, training.__file__, str(steps), str(PACE_S))
        group = TaskGroup("worker", tasks, Shape(gpus=1, cpu=Cpu(1), memory=Memory(2**28)), min_replicas=tasks)
        saves = Checkpoint(Duration(2_000), Duration(60_000))
        return JobSpec(
            QueueName("team"),
            (group,),
            checkpoint=saves,
            command=command,
            priority_class="training",
            retry_policy="training",
        )

    def witnessed(self, *command: str) -> tuple[str, ...]:
        return (sys.executable, witness.__file__, str(self.folder / "witness"), *command)

    def where(self, job: JobName = RUN) -> dict[str, int]:
        """How many of its tasks are on each node."""
        nodes = [task.node for task in self.client.job(job).tasks]
        return {node: nodes.count(node) for node in sorted(set(nodes))}

    def runs(self, attempt: int, job: JobName = RUN) -> bool:
        view = self.client.job(job)
        return view.attempt == attempt and view.state == "running"

    def has_saved(self, more_than: int) -> bool:
        saved = [checkpoint.step for checkpoint in self.client.checkpoints(RUN).items]
        return max(saved, default=0) > more_than

    def ready(self, *nodes: str) -> bool:
        known = {str(view.node.name): view.node.ready for view in self.client.nodes().items}
        return all(known[node] for node in nodes or self.nodes)

    def causes(self, kind: str, job: JobName = RUN) -> list[str]:
        return [event.cause for event in self.client.events(job, limit=1_000).items if event.kind == kind]

    def outcome(self, job: JobName = RUN) -> JobOutcome:
        eventually(f"{job} has ended", lambda: self.client.job(job).outcome)
        outcome = self.client.job(job).outcome
        assert outcome is not None
        return outcome


@pytest.fixture
def cluster(plane: ControlPlane, origin: Origin, tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "storage").mkdir()
    (tmp_path / "witness").mkdir()
    files = policy(tmp_path / "storage") | {"cluster-state/pool.yaml": POOL}
    files["policies/serving.yaml"] = files["policies/serving.yaml"].replace("guaranteed: 4", "guaranteed: 8")
    origin.commit(files)
    plane.start(*LISTENING).until_ready()
    with plane.client() as client, three_nodes(plane, client, tmp_path) as nodes:
        made = Cluster(plane, nodes, client, tmp_path)
        eventually("every node is ready", made.ready)
        yield made
    assert witness.overlaps(witness.uses(tmp_path / "witness")) == []


@pytest.mark.long
def test_a_gang_survives_a_lost_node_an_eviction_and_a_partition(cluster: Cluster) -> None:
    client = cluster.client
    client.submit(RUN, cluster.spec())
    eventually("it has saved its work", lambda: cluster.has_saved(20))
    assert cluster.client.job(RUN).attempt == 1
    assert sorted(cluster.where().values()) == [2, 4]

    gone = next(node for node, tasks in cluster.where().items() if tasks == 2)
    cluster.nodes[gone].kill(with_tasks=True)
    eventually("it goes on elsewhere", lambda: cluster.runs(2))
    assert gone not in cluster.where()
    (resumed,) = map(int, re.findall(r"going on from step (\d+)", " ".join(cluster.causes("resumes"))))
    assert resumed > 20
    cluster.nodes[gone].start()
    eventually("its node is back", cluster.ready)

    server = TaskGroup("server", 2, Shape(gpus=4, cpu=Cpu(1), memory=Memory(2**26)))
    command = cluster.witnessed("sleep", "1")
    client.submit(
        JobName("serving"), JobSpec(QueueName("serving"), (server,), priority_class="serving", command=command)
    )
    assert cluster.outcome(JobName("serving")).state == "succeeded"
    (ends,) = cluster.causes("ends")
    assert re.search(r"it has saved step \d+", ends)
    eventually("it is back", lambda: cluster.runs(3))

    cut = cluster.nodes[next(iter(cluster.where()))]
    running = cut.tasks()
    cut.wire.cut()
    eventually("nobody hears of it", lambda: not cluster.ready(cut.node))
    cut.wire.heal()
    eventually("its node is back", cluster.ready)
    assert set(running) <= set(cut.tasks())
    assert cluster.client.job(RUN).attempt == 3

    outcome = cluster.outcome()
    assert outcome.state == "succeeded", outcome.message
    assert f"result {training.trained(STEPS)}" in client.log(RUN, attempt=3).decode()


@pytest.mark.long
def test_tasks_outlive_their_agent_and_the_control_plane(cluster: Cluster) -> None:
    script = 'echo "here $$"; read over < "$0/$QUORATE_INDEX"; echo "let $over"'
    (cluster.folder / "over").mkdir()
    gates = [cluster.folder / "over" / str(index) for index in range(3)]
    for gate in gates:
        os.mkfifo(gate)
    command = cluster.witnessed("sh", "-c", script, str(cluster.folder / "over"))
    spec = msgspec.structs.replace(sh("", tasks=3, gpus=4), command=command)
    client = cluster.client
    client.submit(JobName("job"), spec)
    eventually("it runs", lambda: cluster.runs(1, JobName("job")))
    running = {name: agent.tasks() for name, agent in cluster.nodes.items()}

    cluster.plane.signal(signal.SIGKILL)
    cluster.nodes["n1"].kill()
    cluster.nodes["n1"].start()
    port = cluster.nodes["n1"].wire.target
    cluster.plane.start("--agents-listen", f"127.0.0.1:{port}").until_ready()
    with cluster.plane.client() as again:
        cluster.client = again
        eventually("every node is back", cluster.ready)
        assert {name: agent.tasks() for name, agent in cluster.nodes.items()} == running
        for gate in gates:
            gate.write_text("go\n")
        assert cluster.outcome(JobName("job")).state == "succeeded"
        assert again.job(JobName("job")).attempt == 1
        logs = [again.log(JobName("job"), index=index).decode() for index in range(3)]
        assert all(re.fullmatch(r"here \d+\nlet go\n", log) for log in logs)


@pytest.mark.long
def test_a_node_that_was_given_up_ends_what_it_still_runs_before_it_gets_anything(cluster: Cluster) -> None:
    job = JobName("job")
    spec = msgspec.structs.replace(
        sh("", gpus=4), command=cluster.witnessed("sleep", "600"), retry_policy="training", priority_class="training"
    )
    cluster.client.submit(job, spec)
    eventually("it runs", lambda: cluster.runs(1, job))
    (first,) = cluster.where(job)
    cut = cluster.nodes[first]
    cut.wire.cut()
    eventually("it runs elsewhere", lambda: cluster.runs(2, job))
    assert first not in cluster.where(job)
    assert cut.tasks(), "the partition alone ends nothing"
    assert not cluster.ready(first)
    cut.wire.heal()
    eventually("the node is ready", lambda: cluster.ready(first))
    assert not cut.tasks()
    assert cluster.runs(2, job)
    assert "nothing has been heard of its node since" in " ".join(cluster.causes("retried", job))
