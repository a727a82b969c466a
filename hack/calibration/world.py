"""Clusters that are too small for their jobs, with random policies: from a window of the Philly trace, or drawn from a seed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from reconciler.analysis.traces import read_philly
from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup
from solver.policy.harm import Evictions, Protection
from solver.policy.ordering import Ordering
from solver.policy.policy import Policy, PriorityClass, Queue, Quota, Reservations, SchedulingPolicy, policy_of
from solver.simulation.trace import TraceJob

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
V100 = GpuType("V100")
GPUS_PER_NODE = 8
CLASSES = ("training", "batch", "inference")
FIRST_DAY = Instant.parse("2017-10-03T00:00:00Z")
LAST_DAY = 60
LIMITED = 0.5
"""So many users know how long their job runs at most, and say so in half of the worlds."""


@dataclass(frozen=True, slots=True)
class CrowdedCluster:
    """What is replayed. `end`: until when."""

    seed: int
    nodes: tuple[Node, ...]
    policy: Policy
    jobs: Sequence[TraceJob]
    end: Instant


def crowded(seed: int, quantile: float, trace: Path | None, hours: int, *, closed: bool = False) -> CrowdedCluster:
    """The cluster of a seed, of which jobs without a limit are expected to run as long as that part of earlier ones.

    `closed`: all jobs come at once, so that nothing arrives after a forecast. Raises OSError and TraceUnreadableError.
    """
    chance = random.Random(f"calibration {seed}")
    start = FIRST_DAY.after(DAY_MS * chance.randrange(LAST_DAY))
    end = start.after(hours * HOUR_MS)
    found = read_philly(trace, start, end) if trace else tuple(_drawn(chance, start, hours))
    limited, load = chance.random() < LIMITED, chance.uniform(0.9, 1.4)
    jobs = [_as_asked(chance, job, limited) for job in found]
    # So large that so much of it is asked for, and no smaller than its largest job.
    asked = sum(one.job.spec.gpus / 1000 * min(one.duration, end - one.job.submitted_at) for one in jobs)
    largest = max((one.job.spec.gpus // 1000 for one in jobs), default=1)
    count = max(math.ceil(asked / load / (end - start) / GPUS_PER_NODE), math.ceil(largest / GPUS_PER_NODE), 1)
    queues = sorted({one.job.spec.queue for one in jobs})
    nodes = tuple(_node(number) for number in range(count))
    if closed:
        jobs = [TraceJob(msgspec.structs.replace(one.job, submitted_at=start), one.duration) for one in jobs]
    return CrowdedCluster(seed, nodes, _policy(chance, queues, count * GPUS_PER_NODE, quantile), jobs, end)


def _node(number: int) -> Node:
    name = NodeName(f"n{number:04}")
    gpus = tuple(Gpu(DeviceId(f"{name}/{index}"), index) for index in range(GPUS_PER_NODE))
    return Node(name, "v100", Cpu(96_000), Memory(2**40), V100, gpus)


def _drawn(chance: random.Random, start: Instant, hours: int) -> Iterator[TraceJob]:
    """Jobs that arrive at random, and run from seconds to days."""
    at, number = start, 0
    pace = chance.uniform(120_000, 400_000)
    while (at := at.after(round(chance.expovariate(1 / pace)))) < start.after(hours * HOUR_MS):
        gpus = chance.choice((1, 1, 1, 2, 4, 8, 16))
        per_task = min(gpus, 8)
        spec = JobSpec(QueueName(f"q{chance.randrange(4)}"), (TaskGroup("worker", gpus // per_task, Shape(per_task)),))
        runs = Duration(round(min(chance.lognormvariate(math.log(1_800_000), 1.5), 2 * DAY_MS)))
        yield TraceJob(Job(JobName(f"job-{number:05}"), at, spec), runs)
        number += 1


def _as_asked(chance: random.Random, one: TraceJob, limited: bool) -> TraceJob:
    """The job in a class, and with a limit that is rounded up, where users state any."""
    limit = one.job.spec.time_limit
    if limited and chance.random() < 0.7:
        limit = Duration(-(-round(one.duration * chance.uniform(1, 4)) // 600_000) * 600_000 or 600_000)
    spec = msgspec.structs.replace(one.job.spec, priority_class=chance.choice(CLASSES), time_limit=limit)
    return TraceJob(msgspec.structs.replace(one.job, spec=spec), one.duration)


def _policy(chance: random.Random, queues: Sequence[QueueName], gpus: int, quantile: float) -> Policy:
    protection = Protection(Duration(chance.choice((0, 300_000, HOUR_MS))))
    classes = (
        PriorityClass("inference", 1000, "latency-critical"),
        PriorityClass("training", 100, protection=protection),
        PriorityClass("batch", 10, "preemptible", protection=protection),
    )
    scheduling = SchedulingPolicy(
        "training",
        reclaim=chance.choice(("fair-share", "guaranteed")),
        evictions=Evictions(chance.choice((0, 0, 2, None))),
        reservations=Reservations(chance.choice((0, 1, 2))),
        duration_quantile=quantile,
    )
    return policy_of(tuple(_queue(chance, name, gpus, len(queues)) for name in queues), classes, scheduling)


def _queue(chance: random.Random, name: QueueName, gpus: int, queues: int) -> Queue:
    guaranteed = MilliGpu.gpus(int(gpus * chance.choice((0, 0.5, 1)) / queues))
    return Queue(
        name,
        quota=(Quota(V100, guaranteed),),
        weight=chance.randint(1, 4),
        ordering=chance.choice((None, Ordering("fifo"), Ordering("fifo", strict=True), Ordering("shortest"))),
    )
