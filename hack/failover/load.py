"""Jobs that write down when each of their tasks began and ended, on which GPUs; and what that must not show."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from reconciler.model.job_record import JobRecord
from solver.model.quantities import Cpu, Memory
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup


class Ran(NamedTuple):
    """One life of a task, in nanoseconds since 1970; `end` None: it did not write that it ended."""

    job: str
    attempt: int
    task: int
    devices: tuple[str, ...]
    begin: int
    end: int | None


def gang(number: int, trace: Path) -> tuple[JobName, JobSpec]:
    """Two tasks of one or two GPUs for one to three seconds."""
    seconds, gpus = 1 + number % 3, 1 + number % 2
    line = "$QUORATE_JOB $QUORATE_ATTEMPT $QUORATE_INDEX $QUORATE_DEVICES"
    script = (
        f'echo "begin {line} $(date +%s%N)" >> {trace}; sleep {seconds}; echo "end {line} $(date +%s%N)" >> {trace}'
    )
    shape = Shape(gpus=gpus, cpu=Cpu(1), memory=Memory(2**26))
    return JobName(f"job-{number}"), JobSpec(
        QueueName("team"), (TaskGroup("worker", 2, shape),), command=("sh", "-c", script)
    )


def lives(trace: Path) -> tuple[Ran, ...]:
    """What tasks wrote; a line is appended by one write, so none is torn."""
    begun: list[tuple[str, int, int, tuple[str, ...], int]] = []
    ended: dict[tuple[str, int, int], int] = {}
    for line in trace.read_text().splitlines() if trace.exists() else ():
        what, job, attempt, index, devices, at = line.split()
        key = job, int(attempt), int(index)
        if what == "begin":
            begun.append((*key, tuple(devices.split(",")), int(at)))
        else:
            ended[key] = int(at)
    return tuple(Ran(*life, ended.get(life[:3])) for life in begun)


def violations(ran: Iterable[Ran], records: Iterable[JobRecord]) -> Iterator[str]:
    """Nothing fails by itself here, so each job runs once, and well."""
    ran = tuple(ran)
    for (job, index), count in sorted(Counter((life.job, life.task) for life in ran).items()):
        if count > 1:
            yield f"run twice: task {index} of {job} began {count} times"
    for record in records:
        state = record.outcome.state if record.outcome else "without an outcome"
        whole = sum(life.job == record.name and life.end is not None for life in ran) == record.spec.tasks
        if state != "succeeded" or not whole:
            yield f"lost: {record.name} is {state}, and {'all' if whole else 'not all'} of its tasks ended"
    by_device: defaultdict[str, list[Ran]] = defaultdict(list)
    for life in ran:
        for device in life.devices:
            by_device[device].append(life)
    for device, used in sorted(by_device.items()):
        for before, after in pairwise(sorted(used, key=lambda life: life.begin)):
            if before.end is None or before.end > after.begin:
                yield f"two owners: {device} of {before.job} and {after.job}"
