"""Seeded clusters for timing one round: nearly full, with many that wait."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from solver.rules.policy import Policy, PriorityClass, Queue, Quota, policy_of
from solver.world.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.world.quantities import Cpu, Instant, Memory, MilliGpu
from solver.world.shape import Shape
from solver.world.snapshot import Snapshot, snapshot_of
from solver.world.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement, TopologyRequest

H100 = GpuType("H100-SXM5-80GB")
GPUS_PER_NODE = 8
NODES_PER_RACK = 16
RACKS_PER_BLOCK = 8
QUEUES = 20
FULL = 0.93
NOW = Instant(1_000_000_000_000)
SECOND_MS = 1000


@dataclass(frozen=True, slots=True)
class Contended:
    """Everybody's guarantee is the same, a few queues hold most, and all of them ask for more.

    `elastic`: half of what runs, and half of what waits, gives up tasks before it dies.
    """

    gpus: int
    pending: int
    elastic: bool
    seed: int

    @property
    def policy(self) -> Policy:
        """Equal guarantees that add up to the cluster, and two priority classes."""
        guaranteed = MilliGpu.gpus(self.gpus // QUEUES)
        queues = (Queue(QueueName(f"team-{index:02}"), quota=(Quota(H100, guaranteed),)) for index in range(QUEUES))
        return policy_of(tuple(queues), (PriorityClass("high", 100), PriorityClass("low", 10)))

    @property
    def snapshot(self) -> Snapshot:
        """The cluster at one moment."""
        chance = random.Random(self.seed)
        nodes = [_node(index) for index in range(self.gpus // GPUS_PER_NODE)]
        return snapshot_of(NOW, nodes, [*self._running(nodes, chance), *self._waiting(chance)])

    def _running(self, nodes: list[Node], chance: random.Random) -> Iterator[Job]:
        for node in nodes:
            at = 0 if chance.random() < FULL else GPUS_PER_NODE
            while at < GPUS_PER_NODE:
                gpus = min(GPUS_PER_NODE - at, chance.choice((1, 2, 4, 8, 8, 8)))
                devices = tuple(gpu.id for gpu in node.gpus[at : at + gpus])
                queue = int(abs(chance.gauss(0, QUEUES / 5))) % QUEUES
                since = Instant(NOW - chance.randint(600, 90_000) * SECOND_MS)
                per_task = 1 if self.elastic and chance.random() < 0.5 else gpus
                group = TaskGroup("worker", gpus // per_task, Shape(gpus=per_task), min_replicas=1)
                placed = tuple(
                    TaskPlacement("worker", task, node.name, devices[task * per_task : (task + 1) * per_task])
                    for task in range(gpus // per_task)
                )
                spec = JobSpec(QueueName(f"team-{queue:02}"), (group,), chance.choice(("high", "low")))
                name = JobName(f"runs-{node.name}-{at}")
                yield Job(name, since, spec, "someone", "running", 1, since, placed)
                at += gpus

    def _waiting(self, chance: random.Random) -> Iterator[Job]:
        for index in range(self.pending):
            tasks, gpus = chance.choice((1, 1, 1, 2, 4, 8, 16)), chance.choice((1, 2, 4, 8, 8))
            least = max(1, tasks // 2) if self.elastic and chance.random() < 0.5 else tasks
            group = TaskGroup("worker", tasks, Shape(gpus=gpus), min_replicas=least)
            within = TopologyRequest(required=chance.choice((None, None, "block")))
            queue = QueueName(f"team-{chance.randrange(QUEUES):02}")
            spec = JobSpec(queue, (group,), chance.choice(("high", "low")), within)
            since = Instant(NOW - chance.randint(0, 7200) * SECOND_MS)
            yield Job(JobName(f"waits-{index:05}"), since, spec, "someone")


def _node(index: int) -> Node:
    name, rack = f"n{index:05}", index // NODES_PER_RACK
    gpus = tuple(Gpu(DeviceId(f"{name}/{gpu}"), gpu) for gpu in range(GPUS_PER_NODE))
    room = Cpu(192_000), Memory(2 << 40)
    return Node(NodeName(name), "h100", *room, H100, gpus, rack=f"r{rack}", block=f"b{rack // RACKS_PER_BLOCK}")
