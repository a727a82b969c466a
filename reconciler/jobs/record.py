"""What the control plane knows of a job, live or ended."""

from __future__ import annotations

from typing import Literal

from reconciler.jobs.failure import Failure
from solver.world.document import Document
from solver.world.quantities import Instant
from solver.world.workload import JobName, JobSpec

JobState = Literal[
    "queued", "reserved", "starting", "running", "checkpointing", "evicting", "stopping",
    "suspended", "retrying", "succeeded", "failed", "cancelled",
]  # fmt: skip
TERMINAL: frozenset[JobState] = frozenset({"succeeded", "failed", "cancelled"})
WAITING: frozenset[JobState] = frozenset({"queued", "reserved", "suspended", "retrying"})
"""It lives and holds nothing."""


class JobOutcome(Document, frozen=True):
    """How a job ended, in which attempt (0: it never started). `exit_code` is that of the first task that failed.

    `message` says it to the job's owner.
    """

    state: Literal["succeeded", "failed", "cancelled"]
    at: Instant
    exit_code: int | None = None
    message: str = ""
    attempt: int = 0


class JobRecord(Document, frozen=True):
    """A job as submitted, what people asked of it since, its failed attempts, and how it ended.

    Whether it holds devices is the ledger's to say. `suspended_by`: who wants it to wait until it is resumed.
    `requeue_attempt`: the attempt that `requeued_by` wants to begin anew (0: none).
    """

    name: JobName
    spec: JobSpec
    user: str
    submitted_at: Instant
    cancel_requested_by: str = ""
    outcome: JobOutcome | None = None
    suspended_by: str = ""
    requeue_attempt: int = 0
    requeued_by: str = ""
    failures: tuple[Failure, ...] = ()

    @property
    def last_failure(self) -> Failure | None:
        """The newest; None where every attempt so far ended otherwise."""
        return self.failures[-1] if self.failures else None

    def failed_in(self, attempt: int) -> bool:
        """That attempt is one of those that failed."""
        return any(failure.attempt == attempt for failure in self.failures)
