"""The protocol of what wants to run; its conformance suite is tests/contracts/test_job_source.py."""

from __future__ import annotations

from typing import Protocol

from reconciler.backend import Epoch
from reconciler.jobs.failure import Failure
from reconciler.jobs.record import JobOutcome, JobRecord
from solver.world.quantities import Instant
from solver.world.workload import JobName, JobSpec


class DuplicateJobError(Exception):
    """A job of that name exists and is not the one this idempotency key submitted."""


class UnknownJobError(KeyError):
    """There is no job of that name."""


class JobSource(Protocol):
    """What wants to run."""

    def submit(self, name: JobName, spec: JobSpec, user: str, at: Instant, idempotency_key: str) -> JobRecord:
        """Accept a job; the same key and name again returns the first record. Raises DuplicateJobError."""

    def job(self, name: JobName) -> JobRecord:
        """One job, live or ended. Raises UnknownJobError."""

    def live_jobs(self) -> tuple[JobRecord, ...]:
        """Jobs without an outcome, sorted by name."""

    def jobs(self, limit: int = 1000, after: JobName | None = None) -> tuple[JobRecord, ...]:
        """The newest jobs, live and ended, newest first; with `after`, of those submitted before it. Raises UnknownJobError."""

    def request_cancel(self, name: JobName, actor: str) -> JobRecord:
        """Note that the job shall end; idempotent, and without effect on an ended one. Raises UnknownJobError."""

    def request_suspend(self, name: JobName, actor: str) -> JobRecord:
        """Note that the job shall wait until it is resumed; as with a cancellation. Raises UnknownJobError."""

    def resume(self, name: JobName) -> JobRecord:
        """Let a suspended job go on; idempotent. Raises UnknownJobError."""

    def request_requeue(self, name: JobName, attempt: int, actor: str) -> JobRecord:
        """Note that this attempt shall stop, and the job begin anew; as with a cancellation. Raises UnknownJobError."""

    def retry(self, epoch: Epoch, name: JobName, failure: Failure) -> None:
        """Record how an attempt failed that another one follows; the first record of an attempt stays.

        Raises StaleEpochError, UnknownJobError.
        """

    def finish(self, epoch: Epoch, name: JobName, outcome: JobOutcome) -> None:
        """Record how a job ended; the first outcome stays. Raises StaleEpochError, UnknownJobError."""
