"""Where a projection starts: the jobs of a live snapshot once everything that was asked for has come true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from solver.backfill.eligibility import EndTimes
from solver.model.inflight import Intent
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import Job


def live_after(snapshot: Snapshot) -> Iterator[tuple[Job, Instant | None]]:
    """Every job that is still alive then, by name, and when it ends; None: it holds nothing, or nothing says when.

    A job that was asked to leave for others waits again; one that was asked to end, or is suspended, is gone. What is past its
    limit may run for ever.
    """
    ends = EndTimes(snapshot)
    asked: dict[str, Intent] = {intent.id: intent for intent in snapshot.in_flight.intents}
    for job in snapshot.jobs:
        stop = asked.get(f"stop/{job.name}/{job.attempt}")
        if not job.placement:
            yield job, None
        elif stop is not None and stop.purpose in ("evict", "requeue"):
            yield _waiting_again(job, stop), None
        elif stop is None and job.phase != "stopping":
            end = ends.of(job)
            yield _running(job, asked, snapshot.time), end if end is not None and end > snapshot.time else None


def _waiting_again(job: Job, stop: Intent) -> Job:
    evicted_at = (*job.evicted_at, stop.asked_at) if stop.evicts else job.evicted_at
    return msgspec.structs.replace(
        job, phase="pending", placement=(), started_at=None, time_limit=None, saved_at=None, evicted_at=evicted_at
    )


def _running(job: Job, asked: Mapping[str, Intent], now: Instant) -> Job:
    """The job as large as it was asked to be."""
    start, grow, shrink = (asked.get(f"{kind}/{job.name}/{job.attempt}") for kind in ("start", "grow", "shrink"))
    tasks = {(task.group, task.index): task for task in (*job.placement, *(grow.tasks if grow else ()))}
    for task in shrink.tasks if shrink else ():
        tasks.pop((task.group, task.index), None)
    since = job.started_at or (start.asked_at if start else now)
    return msgspec.structs.replace(job, phase="running", started_at=since, placement=tuple(tasks.values()))
