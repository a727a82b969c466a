"""Seeded clusters as large as one likes: three GPU types, racks and blocks, a hundred queues, gangs of 1 to 4,096 GPUs."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hack.rounds.floor import Floor
from hack.rounds.nodes import GPUS_PER_NODE, MIG, POOLS_IN_PARTS, SHARES, SHARING, nodes_of
from hack.rounds.parts import in_parts
from hack.rounds.workload import CLASSES, NOW, Workload, leaves
from solver.model.cluster import GpuType, Node
from solver.model.quantities import MilliGpu
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, QueueName
from solver.policy.policy import Policy, Queue, Quota, policy_of


@dataclass(frozen=True, slots=True)
class World:
    """`full`: which part of the GPUs is held. `largest`: GPUs of the largest gang. `parts`: some GPUs are used in parts."""

    gpus: int
    pending: int
    full: float = 0.93
    seed: int = 1
    largest: int = 4096
    parts: bool = True

    @property
    def shares(self) -> tuple[float, ...]:
        """Which part of all is guaranteed to each leaf."""
        chance = random.Random(self.seed)
        weights = [chance.paretovariate(1.2) for _ in leaves()]
        return tuple(weight / sum(weights) for weight in weights)

    @property
    def policy(self) -> Policy:
        """Three levels of queues, 100 leaves; guarantees add up to what there is at each level; a third of leaves has ceilings."""
        chance, leaf_queues = random.Random(self.seed + 4), list[Queue]()
        for (parent, name), part in zip(leaves(), self.shares, strict=True):
            quota = []
            for gpu_type, share in SHARES.items():
                guaranteed = int(self.gpus * share * part)
                most = max(GPUS_PER_NODE, 3 * guaranteed) if chance.random() < 1 / 3 else None
                quota.append(Quota(gpu_type, MilliGpu.gpus(guaranteed), None if most is None else MilliGpu.gpus(most)))
            leaf_queues.append(Queue(name, parent, tuple(quota)))
        queues = _above(_above(leaf_queues))
        return policy_of(tuple(queues), CLASSES, sharing=SHARING, mig=MIG)

    @property
    def snapshot(self) -> Snapshot:
        """The cluster at one moment."""
        chance = random.Random(self.seed + 1)
        nodes = list(nodes_of(self.gpus, parts=self.parts))
        workload = self.workload(chance)
        running = self._running(nodes, workload, chance)
        return snapshot_of(NOW, nodes, [*running, *(workload.waiting() for _ in range(self.pending))])

    def workload(self, chance: random.Random, called: str = "waits") -> Workload:
        """Draws this cluster's jobs."""
        return Workload(chance, min(self.largest, self.gpus // 8), self.shares, called, self.parts)

    def _running(self, nodes: Sequence[Node], workload: Workload, chance: random.Random) -> list[Job]:
        """Filled to the brim, and then some leave: what is free lies scattered."""
        whole = [node for node in nodes if node.pool not in POOLS_IN_PARTS.values()]
        jobs = [*in_parts(nodes, workload), *_filling(Floor(whole), workload, self.policy)]
        chance.shuffle(jobs)
        held, stays = sum(map(_held, jobs)), list[Job]()
        for job in jobs:
            if held - _held(job) >= self.full * self.gpus * 1000:
                held -= _held(job)
            else:
                stays.append(job)
        return stays


def _held(job: Job) -> int:
    return sum(task.gpus for task in job.placement)


def _filling(floor: Floor, workload: Workload, policy: Policy) -> Iterator[Job]:
    """Gangs on nearly all there is, the largest first, none of them above its queue's ceiling."""
    ceilings = {(queue.name, quota.gpu_type): quota.max for queue in policy.queues for quota in queue.quota}
    used: dict[tuple[QueueName, GpuType], int] = defaultdict(int)
    for gpu_type in SHARES:
        left, drawn = floor.free_gpus(gpu_type), list[Job]()
        while left > 0:
            job = workload.drawn(gpu_type, most=left)
            line = job.spec.queue, gpu_type
            ceiling = ceilings[line]
            if ceiling is None or used[line] + job.spec.gpus <= ceiling:
                used[line] += job.spec.gpus
                drawn.append(job)
                left -= job.spec.gpus // 1000
        drawn.sort(key=lambda job: (-job.spec.gpus, job.name))
        yield from filter(None, (floor.placed(job, gpu_type) for job in drawn))


def _above(queues: Sequence[Queue]) -> list[Queue]:
    """The queues, with the parents of those that are highest: guaranteed what these are together."""
    known = {queue.name for queue in queues}
    below: dict[QueueName, list[Queue]] = defaultdict(list)
    for queue in queues:
        if queue.parent and queue.parent not in known:
            below[queue.parent].append(queue)
    return [*(Queue(name, _parent(name), _sums(children)) for name, children in below.items()), *queues]


def _parent(name: QueueName) -> QueueName | None:
    organisation, team, _ = name.partition("-team-")
    return QueueName(organisation) if team else None


def _sums(queues: Sequence[Queue]) -> tuple[Quota, ...]:
    total: dict[GpuType, int] = defaultdict(int)
    for queue in queues:
        for quota in queue.quota:
            total[quota.gpu_type] += quota.guaranteed or 0
    return tuple(Quota(gpu_type, MilliGpu(milli)) for gpu_type, milli in total.items())
