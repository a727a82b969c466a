"""A cluster of three nodes with real agents under real control planes, and the training run that its stories are about."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from reconciler.client import Client
from reconciler.model.job_record import JobOutcome
from solver.model.quantities import Cpu, Duration, Memory
from solver.model.shape import Shape
from solver.model.workload import Checkpoint, JobName, JobSpec, QueueName, TaskGroup
from tests.e2e import training, witness
from tests.e2e.control_plane import ControlPlane, leads
from tests.e2e.nodes import AgentProcess, eventually
from tests.e2e.test_life import policy

RUN = JobName("training")
PACE_S = 0.1


def bare_metal_policy(folder: Path) -> dict[str, str]:
    """Three nodes of four GPUs, of which serving is guaranteed eight; checkpoints are below `folder`."""
    (folder / "storage").mkdir()
    files = policy(folder / "storage")
    files["policies/serving.yaml"] = files["policies/serving.yaml"].replace("guaranteed: 4", "guaranteed: 8")
    files["cluster-state/pool.yaml"] = (
        "apiVersion: quorate.dev/v1\nkind: NodePool\nmetadata: {name: pool}\n"
        "spec: {gpuType: H100, gpusPerNode: 4, cpu: 64, memory: 64Gi, nodes: {prefix: n, count: 3}}\n"
    )
    return files


@dataclass
class Cluster:
    """`planes`: those that live, each with a client. `folder`: where witnesses write."""

    planes: list[tuple[ControlPlane, Client]]
    nodes: dict[str, AgentProcess]
    folder: Path

    @property
    def leader(self) -> tuple[ControlPlane, Client]:
        """Whoever leads; waits until somebody does."""
        found: list[tuple[ControlPlane, Client]] = []

        def is_found() -> bool:
            found.extend(each for each in self.planes if leads(each[1]))
            return bool(found)

        eventually("somebody leads", is_found)
        return found[0]

    @property
    def client(self) -> Client:
        """That of whoever leads."""
        return self.leader[1]

    @property
    def enough(self) -> Path:
        """The training run ends soon after this file is there."""
        return self.folder / "enough"

    def training_run(self) -> JobSpec:
        """Six tasks that save their work every two seconds and go on until it is enough, each with a witness of its devices."""
        group = TaskGroup("worker", 6, Shape(gpus=1, cpu=Cpu(1), memory=Memory(2**28)), min_replicas=6)
        return JobSpec(
            QueueName("team"),
            (group,),
            checkpoint=Checkpoint(Duration(2_000), Duration(60_000)),
            command=self.witnessed(sys.executable, training.__file__, "0", str(PACE_S), str(self.enough)),
            priority_class="training",
            retry_policy="training",
        )

    def server(self) -> JobSpec:
        """Of higher priority: it needs all GPUs of two nodes for a second."""
        group = TaskGroup("server", 2, Shape(gpus=4, cpu=Cpu(1), memory=Memory(2**26)))
        command = self.witnessed("sleep", "1")
        return JobSpec(QueueName("serving"), (group,), priority_class="serving", command=command)

    def witnessed(self, *command: str) -> tuple[str, ...]:
        return (sys.executable, witness.__file__, str(self.folder / "witness"), *command)

    def tasks(self) -> dict[str, list[int]]:
        """The processes of all tasks, node by node."""
        return {name: agent.tasks() for name, agent in self.nodes.items()}

    def where(self, job: JobName = RUN) -> dict[str, int]:
        """How many of its tasks are on each node."""
        nodes = [task.node for task in self.client.job(job).tasks]
        return {node: nodes.count(node) for node in sorted(set(nodes))}

    def runs(self, attempt: int, job: JobName = RUN) -> bool:
        view = self.client.job(job)
        return view.attempt == attempt and view.state == "running"

    def saved(self) -> int:
        """The newest step that the training run has saved."""
        return max((checkpoint.step for checkpoint in self.client.checkpoints(RUN).items), default=0)

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
