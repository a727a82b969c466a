"""A history read into jobs to be replayed: what arrives when, and how long it runs once it runs."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from reconciler.analysis.backtest.history_file import Attempt, HistoryHead, RecordedJob, ready_at
from reconciler.analysis.traces import TraceUnreadableError
from solver.model.document import decode, encode
from solver.model.quantities import Duration, Instant
from solver.model.workload import Job, JobName, JobSpec
from solver.plan.reason import count
from solver.simulation.trace import TraceJob

T = TypeVar("T")

BYTES_MAX = 2_000_000_000
"""Of a history once it is unpacked: a million jobs take less, and a file that is a trap takes no more."""


@dataclass(frozen=True)
class Past:
    """The jobs of a history in the order of their arrival, until when it was recorded, and what had to be assumed."""

    jobs: tuple[TraceJob, ...]
    until: Instant
    notes: tuple[str, ...]


def write_history(path: Path, head: HistoryHead, jobs: Iterable[RecordedJob]) -> int:
    """Write a history, compressed if its name ends in .gz; says how many jobs it has. Raises OSError."""
    written = 0
    # Under another name until it is whole: a server that goes away in the middle leaves no file that looks like a history.
    unfinished = path.with_name(f"{path.name}.part")
    with gzip.open(unfinished, "wb") if path.suffix == ".gz" else unfinished.open("wb") as file:
        file.write(encode(head) + b"\n")
        for job in jobs:
            file.write(encode(job) + b"\n")
            written += 1
    put_in_place(unfinished, path)
    return written


def put_in_place(unfinished: Path, path: Path) -> None:
    """Give a file its name once it is on disk: a machine that fails meanwhile leaves the old one whole. Raises OSError."""
    with unfinished.open("rb+") as file:
        os.fsync(file.fileno())
    unfinished.replace(path)


def read_history(path: Path) -> Past:
    """What there is to replay. Raises TraceUnreadableError, OSError."""
    return replayable(*read_recorded(path))


def read_recorded(path: Path) -> tuple[HistoryHead, tuple[RecordedJob, ...]]:
    """The lines of a history as they are. Raises TraceUnreadableError, OSError."""
    lines = _lines(path)
    head = _read(path, 1, next(lines, b""), HistoryHead)
    jobs: dict[JobName, RecordedJob] = {}
    for number, line in enumerate(lines, 2):
        job = _read(path, number, line, RecordedJob)
        if not _could_be_submitted(job.spec):
            raise TraceUnreadableError(
                f"{path}:{number}: the job {job.name} has no queue or no tasks, or fewer than none"
            )
        if job.name in jobs:
            raise TraceUnreadableError(f"{path}:{number}: there is a job {job.name} already")
        jobs[job.name] = job
    return head, tuple(jobs.values())


def replayable(head: HistoryHead, jobs: Collection[RecordedJob]) -> Past:
    """What there is to replay of these jobs."""
    until = head.exported_at
    ends = {job.name: job.ended_at for job in jobs if job.ended_at is not None}
    found: list[TraceJob] = []
    cut = never = unknown = 0
    for one in jobs:
        duration = _duration(one, until)
        if duration is None and one.ended_at is not None:
            never += 1
        elif duration is None:
            unknown += 1
        else:
            cut += one.ended_at is None and bool(one.attempts)
            found.append(TraceJob(Job(one.name, ready_at(one, ends), one.spec, one.user), duration))
    found.sort(key=lambda known: (known.job.submitted_at, known.job.name))
    return Past(tuple(found), until, tuple(_notes(cut, never, unknown, until)))


def _lines(path: Path) -> Iterator[bytes]:
    total = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            while line := file.readline(BYTES_MAX - total + 1):
                total += len(line)
                if total > BYTES_MAX:
                    raise TraceUnreadableError(f"{path}: more than {BYTES_MAX} bytes")
                yield line
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise TraceUnreadableError(f"{path}: not a whole gzip file: {error}") from error


def _read(path: Path, number: int, line: bytes, kind: type[T]) -> T:
    try:
        return decode(line, kind)
    except (msgspec.DecodeError, ValueError) as error:
        raise TraceUnreadableError(f"{path}:{number}: {error}") from error


def _could_be_submitted(spec: JobSpec) -> bool:
    """What no server accepts was written by hand, and would be no job to a round either."""
    groups = spec.task_groups
    return bool(spec.queue and groups) and all(group.replicas >= 0 and group.shape.gpus >= 0 for group in groups)


def _notes(cut: int, never: int, unknown: int, until: Instant) -> Iterator[str]:
    if cut:
        yield f"cut at {until}, when the history was written: {count(cut, 'job')} that had not ended"
    if never:
        yield f"left out: {count(never, 'job')} that ended without ever having run"
    if unknown:
        yield f"left out: {count(unknown, 'job')} still waiting at {until}, without a time limit to go by"


def _duration(job: RecordedJob, until: Instant) -> Duration | None:
    """How long it runs: its last attempt, and what earlier ones had saved when they were sent back; None: not known.

    One that still waits is taken to run for its time limit.
    """
    if not job.attempts:
        return None if job.ended_at is not None else job.spec.time_limit
    *earlier, last = job.attempts
    saved = sum(saved_ms(job, attempt) for attempt in earlier if attempt.ended_at is not None)
    ended_at = last.ended_at if last.ended_at is not None else until
    return Duration(max(0, saved + ended_at - last.started_at))


def saved_ms(job: RecordedJob, attempt: Attempt) -> int:
    """What an attempt had saved by its schedule, where it was sent back; an attempt that failed counts for nothing."""
    checkpoint = job.spec.checkpoint
    if checkpoint is None or attempt.ended_at is None or attempt.stopped_for not in ("evict", "suspend", "requeue"):
        return 0
    ran_ms = attempt.ended_at - attempt.started_at
    return ran_ms - ran_ms % checkpoint.interval if checkpoint.interval else 0
