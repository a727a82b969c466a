"""Draws the jobs of a seeded cluster: gangs of 1 to 4,096 GPUs, and a few services and notebooks on parts of GPUs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, count
from typing import Final

from hack.rounds.nodes import A100, GPUS_PER_NODE, H100, L40S, NODES_PER_RACK
from solver.model.cluster import GpuType
from solver.model.quantities import Cpu, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import (
    INTERACTIVE_TIME_LIMIT,
    Job,
    JobName,
    JobSpec,
    QueueName,
    TaskGroup,
    TopologyRequest,
)
from solver.policy.policy import PriorityClass

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

PROFILES: Final = {"1g.10gb": 1, "2g.20gb": 2, "3g.40gb": 3}
"""MIG profiles that are asked for, each with its compute slices."""
FRACTIONS: Final = (MilliGpu(250), MilliGpu(500))
NOTEBOOKS: Final = 0.3
"""Which part of the jobs on instances are notebooks; the others are services."""
LARGEST_SERVICE: Final = 256
BY_SHARE: Final = 0.6
"""Which part of the jobs is of queues as their guarantees are large; all others are of any queue."""
ON_INSTANCES, ON_FRACTIONS = 0.05, 0.01
"""Which part of the jobs that wait is so."""


@dataclass(slots=True)
class Workload:
    """Draws jobs. Equal seeds draw equal ones.

    `shares`: what is guaranteed to the leaves, in their order; `called`: what the names of those that wait begin with; `parts`:
    some of them ask for parts of GPUs.
    """

    chance: random.Random
    largest: int
    shares: tuple[float, ...]
    called: str = "waits"
    parts: bool = True
    _numbers: Iterator[int] = field(default_factory=count)

    def waiting(self) -> Job:
        """A job that waits."""
        drawn = self.chance.random()
        kind = drawn if self.parts else 1.0
        if kind < ON_INSTANCES:
            spec = self._on_instances(
                self.chance.choice((H100, A100)), self.chance.choice(tuple(PROFILES)), LARGEST_SERVICE
            )
        elif kind < ON_INSTANCES + ON_FRACTIONS:
            spec = self._on_fractions()
        else:
            gpu_types = self.chance.choices(((H100,), (A100,), (L40S,), (H100, A100), ()), (0.45, 0.2, 0.05, 0.2, 0.1))
            spec = self._spec(gpu_types[0], self._size(self.largest))
        since = Instant(NOW - self.chance.randint(0, 8 * 3600) * 1000)
        return Job(self._name(self.called), since, spec, self._user())

    def drawn(self, gpu_type: GpuType, most: int) -> Job:
        """A job that is to run on GPUs of a type, of at most so many."""
        return self._runs(self._spec((gpu_type,), self._size(min(most, self.largest))), 2 * DAY_S)

    def drawn_on_instances(self, gpu_type: GpuType, profile: str, most: int) -> Job:
        """A job that is to run on MIG instances, of at most so many."""
        spec = self._on_instances(gpu_type, profile, most)
        if spec.type == "interactive":
            return self._runs(spec, INTERACTIVE_TIME_LIMIT // 1000 - 600)
        return self._runs(spec, 2 * DAY_S)

    def drawn_on_fractions(self) -> Job:
        """A job that is to run on the parts of one GPU."""
        return self._runs(self._on_fractions(), 2 * DAY_S)

    def _runs(self, spec: JobSpec, longest_s: int) -> Job:
        since = Instant(NOW - self.chance.randint(600, longest_s) * 1000)
        limit = INTERACTIVE_TIME_LIMIT if spec.type == "interactive" else None
        return Job(self._name("runs"), since, spec, self._user(), "running", 1, since, time_limit=limit)

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
        return JobSpec(self._queue(), (group,), known.name, self._topology(tasks))

    def _on_instances(self, gpu_type: GpuType, profile: str, most: int) -> JobSpec:
        slices = PROFILES[profile]
        shape = Shape(0, (gpu_type,), Cpu(2000 * slices), Memory(slices * (16 << 30)), mig=profile)
        if self.chance.random() < NOTEBOOKS:
            return JobSpec(self._queue(), (TaskGroup("notebook", 1, shape),), "middle", type="interactive")
        replicas = self._size(min(most, LARGEST_SERVICE))
        return JobSpec(self._queue(), (TaskGroup("server", replicas, shape),), "inference", type="service")

    def _on_fractions(self) -> JobSpec:
        """Parts that are one GPU together."""
        part = self.chance.choice(FRACTIONS)
        shape = Shape(0, (L40S,), Cpu(8 * part), Memory(part * (64 << 20)), gpu_fraction=part)
        return JobSpec(self._queue(), (TaskGroup("server", 1000 // part, shape),), "low", type="service")

    def _queue(self) -> QueueName:
        """Most ask for about what they are guaranteed, some for much more and some for less."""
        by_share = self.chance.random() < BY_SHARE
        _, name = self.chance.choices(tuple(leaves()), self.shares if by_share else None)[0]
        return name

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


def leaves() -> Iterator[tuple[QueueName, QueueName]]:
    """The parent and the name of each leaf, those of different teams by turns."""
    for leaf in range(LEAVES):
        for team in range(TEAMS):
            for organisation in range(ORGANISATIONS):
                parent = QueueName(f"org-{organisation}-team-{team}")
                yield parent, QueueName(f"{parent}-{leaf}")
