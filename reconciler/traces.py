"""Public job traces read into jobs with known durations, so that policies can be compared on real arrivals.

The Philly trace (Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC 2019) as a
table: `timestamp, duration, num_gpus, gpu_time, cluster`, one row a job. A virtual cluster is a queue, a job a rigid gang.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

from solver.traced import TraceJob
from solver.world.quantities import Duration, Instant
from solver.world.shape import Shape
from solver.world.workload import Job, JobName, JobSpec, QueueName, TaskGroup

PHILLY_COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")

TASK_SIZES = (8, 4, 2, 1)
"""A job is a gang of the largest such tasks that make up its GPUs exactly: 16 are two whole nodes, 20 are five tasks of 4."""


class TraceUnreadableError(Exception):
    """The file is not a trace this reader knows; says the place and what is wrong there."""


def read_philly(path: Path, start: Instant, end: Instant) -> tuple[TraceJob, ...]:
    """Jobs submitted in [start, end), in the order of submission. Timestamps without a zone are UTC.

    Raises TraceUnreadableError, OSError.
    """
    with path.open(newline="", encoding="utf-8") as lines:
        rows = csv.DictReader(lines)
        missing = [column for column in PHILLY_COLUMNS if column not in (rows.fieldnames or ())]
        if missing:
            raise TraceUnreadableError(f"{path}:1: no column {', '.join(missing)}; needed: {', '.join(PHILLY_COLUMNS)}")
        return _numbered(_within(path, rows, start, end))


def _within(
    path: Path, rows: Iterable[dict[str, str]], start: Instant, end: Instant
) -> Iterator[tuple[Instant, dict[str, str]]]:
    for number, row in enumerate(rows, start=2):
        if not any(row.values()):
            continue
        try:
            submitted = Instant.parse(f"{row['timestamp'].replace(' ', 'T')}Z")
            if start <= submitted < end and int(row["num_gpus"]) > 0:
                yield submitted, row
        except (ValueError, AttributeError) as error:
            raise TraceUnreadableError(f"{path}:{number}: {error}") from error


def _numbered(rows: Iterable[tuple[Instant, dict[str, str]]]) -> tuple[TraceJob, ...]:
    ordered = sorted(rows, key=lambda found: found[0])
    return tuple(_trace_job(number, submitted, row) for number, (submitted, row) in enumerate(ordered))


def _trace_job(number: int, submitted: Instant, row: dict[str, str]) -> TraceJob:
    gpus = int(row["num_gpus"])
    per_task = next(size for size in TASK_SIZES if gpus % size == 0)
    group = TaskGroup("worker", gpus // per_task, Shape(per_task))
    spec = JobSpec(QueueName(row["cluster"]), (group,))
    return TraceJob(Job(JobName(f"job-{number:06}"), submitted, spec), Duration(round(float(row["duration"]) * 1000)))
