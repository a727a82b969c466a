"""What really became of Slurm's jobs, look by look, as a history that can be replayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from reconciler.analysis.backtest.history_file import Attempt, RecordedJob
from reconciler.slurm.look import SlurmJobFacts
from solver.model.inflight import Ended, StopPurpose
from solver.model.quantities import Duration, Instant
from solver.model.workload import Job, JobName
from solver.queueing.durations import HISTORY_JOBS

KEPT: Final = Duration(7 * 86_400_000)
"""Jobs stay for so long after their end."""


class SlurmHistory:
    """Look at the cluster again and again. What was there at the first look came then, to the record."""

    def __init__(self, jobs: Iterable[RecordedJob] = (), until: Instant | None = None) -> None:
        self._jobs = {job.name: job for job in jobs}
        self._since = min((job.submitted_at for job in self._jobs.values()), default=until)

    @property
    def jobs(self) -> tuple[RecordedJob, ...]:
        """Every job that is not forgotten."""
        return tuple(self._jobs.values())

    def look(self, now: Instant, jobs: Iterable[Job], facts: Mapping[JobName, SlurmJobFacts]) -> None:
        """See what is so now. Jobs that Slurm does not know any more have ended meanwhile, and it is not known how."""
        if self._since is None:
            self._since = now
        for job in jobs:
            found = facts[job.name]
            if job.name not in self._jobs and found.standing != "held":
                came = max(found.came, self._since)
                self._jobs[job.name] = RecordedJob(job.name, job.spec, job.user, came)
        unlisted = {found.array for found in facts.values() if found.cut}
        for name, record in self._jobs.items():
            if record.is_over and name not in facts:
                continue
            if name in facts:
                self._jobs[name] = _seen(record, facts[name], now)
            elif not (unlisted and not record.attempts and any(f"-{array}-" in name for array in unlisted)):
                self._jobs[name] = _ended(record, max(now, _free_from(record)))

    def forget(self, now: Instant) -> None:
        """What ended long ago."""
        self._jobs = {
            name: job for name, job in self._jobs.items() if job.ended_at is None or job.ended_at.after(KEPT) > now
        }

    def ended(self) -> tuple[Ended, ...]:
        """How long jobs with GPUs ran that have done their work, the last submitted."""
        found = [
            Ended(
                job.spec.queue,
                job.spec.gpus,
                job.submitted_at,
                job.name,
                Duration(_ran_ms(job)),
                job.spec.priority_class,
            )
            for job in self._jobs.values()
            if job.is_over and job.attempts and job.attempts[-1].stopped_for is None and job.spec.gpus
        ]
        return tuple(sorted(found, key=lambda one: (-one.submitted_at, one.job))[:HISTORY_JOBS])


def _seen(record: RecordedJob, found: SlurmJobFacts, now: Instant) -> RecordedJob:
    if found.standing in ("running", "aside") or (found.standing == "ended" and found.started_at):
        record = _begun(record, found)
    elif found.standing in ("waiting", "held") and record.is_running:
        # Slurm sent it back. By what is not said once it waits again, but for preemption while it is on its way.
        record = _closed(record, now, "evict" if found.is_preempted else "requeue")
    if found.standing != "ended":
        # A job that came back: Slurm keeps the number of one that is requeued after its end.
        return msgspec.structs.replace(record, ended_at=None, ended_as=None) if record.is_over else record
    if record.is_over:
        return record
    at = max(found.ended_at, _free_from(record))
    if found.is_preempted and record.is_running:
        record = _closed(record, at, "evict")
    return msgspec.structs.replace(_ended(record, at), ended_as=found.ended_as)


def _begun(record: RecordedJob, found: SlurmJobFacts) -> RecordedJob:
    """The attempt that runs, or ran last: another one if it began after that which is on record."""
    at = max(found.started_at, record.submitted_at)
    if record.attempts and at <= record.attempts[-1].started_at:
        return record
    if record.is_running:
        record = _closed(record, at, "requeue")
    return msgspec.structs.replace(record, attempts=(*record.attempts, Attempt(max(at, _free_from(record)))))


def _ended(record: RecordedJob, at: Instant) -> RecordedJob:
    if record.is_running:
        record = _closed(record, at, None)
    return msgspec.structs.replace(record, ended_at=at)


def _closed(record: RecordedJob, at: Instant, why: StopPurpose | None) -> RecordedJob:
    *earlier, last = record.attempts
    return msgspec.structs.replace(record, attempts=(*earlier, Attempt(last.started_at, max(at, last.started_at), why)))


def _free_from(record: RecordedJob) -> Instant:
    """Nothing further of it happened before."""
    last = record.attempts[-1:]
    return max([record.submitted_at, *(one.ended_at or one.started_at for one in last)])


def _ran_ms(job: RecordedJob) -> int:
    return sum(one.ended_at - one.started_at for one in job.attempts if one.ended_at is not None)
