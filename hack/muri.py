"""The Muri traces (rigid gangs derived from Microsoft's Philly) as nodes, jobs with known durations, and two policies.

Y. Zhao et al., "Multi-Resource Interleaving for Deep Learning Training" (Muri, SIGCOMM 2022). Published at
https://github.com/Rivendile/Muri with the scheduler's simulator. Columns used: `num_gpu`, and `submit_time` and `duration` in ms.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.quantities import Cpu, Duration, Instant, Memory
from solver.model.shape import Shape
from solver.model.workload import Checkpoint, Job, JobName, JobSpec, QueueName, TaskGroup
from solver.policy.harm import Evictions, Protection
from solver.policy.ordering import Ordering, Turns
from solver.policy.policy import Policy, PriorityClass, Queue, Reservations, SchedulingPolicy, policy_of
from solver.simulation.trace import TraceJob

NODES, GPUS_PER_NODE = 8, 8
V100 = GpuType("V100")
QUEUE = QueueName("muri")
CLASS = "training"

RESTART_COST = Duration(60_000)
MIN_RUNTIME = Duration(600_000)
MAX_WAIT = Duration(7 * 86_400_000)
"""What a job loses when it has to start again, how long it runs at least, and after which wait it comes first."""

FOR_EVER = Duration(100 * 365 * 86_400_000)


def nodes() -> tuple[Node, ...]:
    """8 nodes of 8 V100."""
    return tuple(_node(NodeName(f"node-{number}")) for number in range(NODES))


def policy(name: str) -> Policy:
    """`srtf`: the least remaining time comes first, known beforehand. `default`: nothing is known, so the Gittins index."""
    ordering = (
        Ordering("shortest", turns=Turns(FOR_EVER)) if name == "srtf" else Ordering("gittins", turns=Turns(MAX_WAIT))
    )
    protection = Protection(min_runtime=MIN_RUNTIME)
    # The published policies reserve nothing, and nobody here asks when a job will start.
    scheduling = SchedulingPolicy(
        CLASS,
        evictions=Evictions(restart_cost=RESTART_COST),
        reservations=Reservations(per_gpu_type=0),
        estimated_jobs=0,
    )
    return policy_of((Queue(QUEUE, ordering=ordering),), (PriorityClass(CLASS, protection=protection),), scheduling)


def read_jobs(trace: Path, *, known: bool) -> tuple[TraceJob, ...]:
    """The jobs of a trace; `known`: their time limits are what they will run. Raises OSError, KeyError, ValueError."""
    with trace.open(newline="", encoding="utf-8") as lines:
        return tuple(_jobs(csv.DictReader(lines), known=known))


def _jobs(rows: csv.DictReader[str], *, known: bool) -> Iterator[TraceJob]:
    for number, row in enumerate(rows):
        gpus, runs = int(row["num_gpu"]), Duration(int(row["duration"]))
        per_task = next(size for size in (8, 4, 2, 1) if gpus % size == 0)
        spec = JobSpec(
            QUEUE,
            (TaskGroup("worker", gpus // per_task, Shape(per_task)),),
            time_limit=runs if known else None,
            # Nothing but the restart is lost: it saves its work as often as time is counted.
            checkpoint=Checkpoint(Duration(1)),
        )
        yield TraceJob(Job(JobName(f"job-{number:05}"), Instant(int(row["submit_time"])), spec), runs)


def _node(name: NodeName) -> Node:
    gpus = tuple(Gpu(DeviceId(f"{name}/{index}"), index) for index in range(GPUS_PER_NODE))
    return Node(name, "v100", Cpu(92_000), Memory(520 * 2**30), V100, gpus)
