"""Public job traces read into jobs with known durations, so that policies can be compared on real arrivals.

The Philly trace (Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC 2019) as a
table: `timestamp, duration, num_gpus, gpu_time, cluster`, one row a job. A virtual cluster is a queue, a job a rigid gang.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from solver.model.quantities import Duration, Instant
from solver.model.shape import Shape
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup
from solver.simulation.trace import TraceJob

PHILLY_COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")

TASK_SIZES = (8, 4, 2, 1)
"""A job is a gang of the largest such tasks that make up its GPUs exactly: 16 are two whole nodes, 20 are five tasks of 4."""


class TraceUnreadableError(Exception):
    """The file is not a trace this reader knows; says the place and what is wrong there."""


def read_philly(path: Path, start: Instant, end: Instant) -> tuple[TraceJob, ...]:
    """Jobs submitted in [start, end), in the order of submission. Timestamps without a zone are UTC.

    Raises TraceUnreadableError, OSError.
    """
    try:
        # What spreadsheets write as UTF-8 begins with a byte order mark.
        with path.open(newline="", encoding="utf-8-sig") as lines:
            rows = csv.DictReader(lines)
            missing = [column for column in PHILLY_COLUMNS if column not in (rows.fieldnames or ())]
            if missing:
                needed = f"needed: {', '.join(PHILLY_COLUMNS)}"
                raise TraceUnreadableError(f"{path}:1: no column {', '.join(missing)}; {needed}")
            return _numbered(_within(path, rows, start, end))
    except UnicodeDecodeError as error:
        raise TraceUnreadableError(f"{path}: not UTF-8") from error
    except csv.Error as error:
        raise TraceUnreadableError(f"{path}: no CSV: {error}") from error


class _Row(NamedTuple):
    """A row, read."""

    submitted: Instant
    gpus: int
    queue: QueueName
    duration: Duration


def _within(path: Path, rows: Iterable[dict[str, str | None]], start: Instant, end: Instant) -> Iterator[_Row]:
    for number, row in enumerate(rows, start=2):
        if not any(row.values()):
            continue
        try:
            found = _read(row)
        except ValueError as error:
            raise TraceUnreadableError(f"{path}:{number}: {error}") from error
        if start <= found.submitted < end and found.gpus > 0:
            yield found


def _read(row: dict[str, str | None]) -> _Row:
    """Raises ValueError for what is not there, or is not what its column holds."""
    timestamp, duration, gpus, queue = (_text(row, column) for column in PHILLY_COLUMNS)
    submitted = Instant.parse(f"{timestamp.replace(' ', 'T').removesuffix('Z')}Z")
    length_s = _number(duration, "duration")
    number = _number(gpus, "num_gpus")
    if number != int(number):
        raise ValueError(f"num_gpus: {gpus!r} is no whole number")
    return _Row(submitted, int(number), QueueName(queue), Duration(round(length_s * 1000)))


def _text(row: dict[str, str | None], column: str) -> str:
    written = (row[column] or "").strip()
    if not written:
        raise ValueError(f"{column} is empty")
    return written


def _number(written: str, column: str) -> float:
    """Tools that write tables write whole numbers like 8.0 where some are missing."""
    try:
        number = float(written)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"{column}: {written!r} is no number of at least 0")
    return number


def _numbered(rows: Iterable[_Row]) -> tuple[TraceJob, ...]:
    ordered = sorted(rows, key=lambda row: row.submitted)
    return tuple(_trace_job(number, row) for number, row in enumerate(ordered))


def _trace_job(number: int, row: _Row) -> TraceJob:
    per_task = next(size for size in TASK_SIZES if row.gpus % size == 0)
    group = TaskGroup("worker", row.gpus // per_task, Shape(per_task))
    spec = JobSpec(row.queue, (group,))
    return TraceJob(Job(JobName(f"job-{number:06}"), row.submitted, spec), row.duration)
