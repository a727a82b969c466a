"""Seeded clusters as large as one likes: three GPU types, racks and blocks, a hundred queues, gangs of 1 to 4,096 GPUs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count
from typing import Final

from hack.rounds.floor import Floor
from solver.rules.policy import Policy, PriorityClass, Queue, Quota, policy_of
from solver.world.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.world.quantities import Cpu, Instant, Memory, MilliGpu
from solver.world.shape import Shape
from solver.world.snapshot import Snapshot, snapshot_of
from solver.world.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TopologyRequest

H100, A100, L40S = map(GpuType, ("H100-SXM5-80GB", "A100-SXM4-80GB", "L40S-48GB"))
SHARES: Final = {H100: 0.6, A100: 0.3, L40S: 0.1}
GPUS_PER_NODE: Final = 8
NODES_PER_RACK: Final = 32
RACKS_PER_BLOCK: Final = 16
CORES_PER_GPU: Final = (4, 8, 8, 8, 12, 16)
ORGANISATIONS, TEAMS, LEAVES = 4, 5, 5
SIZES: Final = tuple(2**exponent for exponent in range(13))
SMALLER: Final = 0.8
"""A gang of twice the size is 2**-0.8 times as likely: most are small, and most GPUs are in large ones."""

CLASSES: Final = (
    PriorityClass("high", 300),
    PriorityClass("middle", 200),
    PriorityClass("low", 100),
    PriorityClass("reserved", 200, preemptible=False),
    PriorityClass("inference", 400, slo_class="latency-critical"),
)
OF_CLASS: Final = (0.15, 0.35, 0.3, 0.12, 0.08)
NOW: Final = Instant.parse("2026-11-20T09:00:00Z")
DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class World:
    """`full`: which part of the GPUs is held. `largest`: GPUs of the largest gang."""

    gpus: int
    pending: int
    full: float = 0.93
    seed: int = 1
    largest: int = 4096

    @property
    def policy(self) -> Policy:
        """Three levels of queues, 100 leaves; guarantees of each type add up to what there is, and a third has a ceiling."""
        chance = random.Random(self.seed)
        weights = [chance.paretovariate(1.2) for _ in _leaves()]
        total = sum(weights)
        queues = list(_inner_queues())
        for (parent, name), weight in zip(_leaves(), weights, strict=True):
            quota = []
            for gpu_type, share in SHARES.items():
                guaranteed = int(self.gpus * share * weight / total)
                most = max(GPUS_PER_NODE, 3 * guaranteed) if chance.random() < 1 / 3 else None
                quota.append(Quota(gpu_type, MilliGpu.gpus(guaranteed), None if most is None else MilliGpu.gpus(most)))
            queues.append(Queue(name, parent, tuple(quota)))
        return policy_of(tuple(queues), CLASSES)

    @property
    def snapshot(self) -> Snapshot:
        """The cluster at one moment."""
        chance = random.Random(self.seed + 1)
        nodes = list(_nodes(self.gpus))
        workload = Workload(chance, min(self.largest, self.gpus // 8))
        running = self._running(nodes, workload, chance)
        return snapshot_of(NOW, nodes, [*running, *(workload.waiting() for _ in range(self.pending))])

    def _running(self, nodes: Sequence[Node], workload: Workload, chance: random.Random) -> list[Job]:
        """Filled to the brim with the largest first, of which then some leave: what is free lies scattered."""
        floor, jobs = Floor(nodes), list[Job]()
        for gpu_type in SHARES:
            left, drawn = floor.free_gpus(gpu_type), list[Job]()
            while left > 0:
                job = workload.drawn(gpu_type, most=left)
                drawn.append(job)
                left -= job.spec.gpus // 1000
            drawn.sort(key=lambda job: (-job.spec.gpus, job.name))
            jobs += [placed for job in drawn if (placed := floor.placed(job, gpu_type))]
        chance.shuffle(jobs)
        held, most = 0, self.full * self.gpus * 1000
        kept = []
        for job in jobs:
            if held + job.spec.gpus <= most:
                held += job.spec.gpus
                kept.append(job)
        return kept


@dataclass(slots=True)
class Workload:
    """Draws jobs. Equal seeds draw equal ones. `called`: what the names of those that wait begin with."""

    chance: random.Random
    largest: int
    called: str = "waits"
    _numbers: Iterator[int] = field(default_factory=count)

    def waiting(self) -> Job:
        """A job that waits."""
        gpu_types = self.chance.choices(((H100,), (A100,), (L40S,), (H100, A100), ()), (0.45, 0.2, 0.05, 0.2, 0.1))[0]
        since = Instant(NOW - self.chance.randint(0, 8 * 3600) * 1000)
        return Job(self._name(self.called), since, self._spec(gpu_types, self._size(self.largest)), self._user())

    def drawn(self, gpu_type: GpuType, most: int) -> Job:
        """A job that is to run on GPUs of a type, of at most so many."""
        since = Instant(NOW - self.chance.randint(600, 2 * DAY_S) * 1000)
        spec = self._spec((gpu_type,), self._size(min(most, self.largest)))
        return Job(self._name("runs"), since, spec, self._user(), "running", 1, since)

    def _size(self, most: int) -> int:
        sizes = [size for size in SIZES if size <= most]
        weights = accumulate(float(size) ** -SMALLER for size in sizes)
        return int(self.chance.choices(sizes, cum_weights=list(weights))[0])

    def _spec(self, gpu_types: tuple[GpuType, ...], size: int) -> JobSpec:
        gpus = min(size, GPUS_PER_NODE)
        tasks, cores = size // gpus, self.chance.choice(CORES_PER_GPU)
        shape = Shape(gpus, gpu_types, Cpu(gpus * cores * 1000), Memory(gpus * (64 << 30)))
        least = max(1, tasks // 2) if tasks > 1 and self.chance.random() < 0.2 else None
        group = TaskGroup("worker", tasks, shape, min_replicas=least)
        known = self.chance.choices(CLASSES, OF_CLASS)[0]
        queue = int(self.chance.paretovariate(0.6)) - 1
        _, name = tuple(_leaves())[queue % (ORGANISATIONS * TEAMS * LEAVES)]
        return JobSpec(name, (group,), known.name, self._topology(tasks))

    def _topology(self, tasks: int) -> TopologyRequest:
        drawn = self.chance.random()
        if tasks == 1 or drawn > 0.5:
            return TopologyRequest()
        if drawn < 0.15:
            return TopologyRequest(required="rack" if tasks <= NODES_PER_RACK else "block")
        return TopologyRequest(required="block") if drawn < 0.3 else TopologyRequest(preferred="rack")

    def _name(self, kind: str) -> JobName:
        return JobName(f"{kind}-{next(self._numbers):06}")

    def _user(self) -> str:
        return f"user-{self.chance.randrange(400):03}"


def _inner_queues() -> Iterator[Queue]:
    for organisation in range(ORGANISATIONS):
        above = QueueName(f"org-{organisation}")
        yield Queue(above)
        yield from (Queue(QueueName(f"{above}-team-{team}"), above) for team in range(TEAMS))


def _leaves() -> Iterator[tuple[QueueName, QueueName]]:
    """The parent and the name of each leaf, those of different teams by turns."""
    for leaf in range(LEAVES):
        for team in range(TEAMS):
            for organisation in range(ORGANISATIONS):
                parent = QueueName(f"org-{organisation}-team-{team}")
                yield parent, QueueName(f"{parent}-{leaf}")


def _nodes(gpus: int) -> Iterator[Node]:
    number = 0
    for gpu_type, share in SHARES.items():
        pool = gpu_type.partition("-")[0].lower()
        for index in range(int(gpus * share) // GPUS_PER_NODE):
            yield _node(number, pool, gpu_type, index // NODES_PER_RACK)
            number += 1


def _node(number: int, pool: str, gpu_type: GpuType, rack: int) -> Node:
    name = f"n{number:06}"
    gpus = tuple(Gpu(DeviceId(f"{name}/{gpu}"), gpu) for gpu in range(GPUS_PER_NODE))
    room = Cpu(128_000), Memory(1 << 40)
    return Node(
        NodeName(name), pool, *room, gpu_type, gpus, rack=f"{pool}-r{rack}", block=f"{pool}-b{rack // RACKS_PER_BLOCK}"
    )
