"""What the control plane knows of a job, live or ended."""

from __future__ import annotations

from typing import Literal

from reconciler.model.failure import Failure
from solver.model.document import Document
from solver.model.quantities import Instant
from solver.model.workload import Dependency, JobName, JobSpec

JobState = Literal[
    "queued", "reserved", "starting", "running", "checkpointing", "evicting", "stopping",
    "suspended", "retrying", "succeeded", "failed", "cancelled",
]  # fmt: skip
TERMINAL: frozenset[JobState] = frozenset({"succeeded", "failed", "cancelled"})
WAITING: frozenset[JobState] = frozenset({"queued", "reserved", "suspended", "retrying"})
"""It lives and holds nothing."""


class JobOutcome(Document, frozen=True):
    """How a job ended, in which attempt (0: it never started). `exit_code` is that of the first task that failed.

    `message` says it to the job's owner. `unmet`: what it depended on could not come true any more, and so it never began.
    """

    state: Literal["succeeded", "failed", "cancelled"]
    at: Instant
    exit_code: int | None = None
    message: str = ""
    attempt: int = 0
    unmet: Dependency | None = None


class ArrayElement(Document, frozen=True):
    """A job is number `index` of the `count` jobs of an array, of which at most `max_running` run at a time."""

    id: JobName
    index: int
    count: int
    max_running: int | None = None


class JobRecord(Document, frozen=True):
    """A job as submitted, what people asked of it since, its failed attempts, and how it ended.

    Whether it holds devices is the ledger's to say. `suspended_by`: the user that wants it to wait until it is resumed.
    `requeue_attempt`: the attempt that `requeued_by` wants to begin anew (0: none).
    `array` and `pipeline`: what it was submitted as a part of.
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
    array: ArrayElement | None = None
    pipeline: str = ""

    @property
    def last_failure(self) -> Failure | None:
        """The newest that ended an attempt; None where every attempt so far ended otherwise."""
        return next((failure for failure in reversed(self.failures) if not failure.outlived), None)

    def failed_in(self, attempt: int) -> bool:
        """That attempt is one of those that ended by failing."""
        return any((failure.attempt, failure.outlived) == (attempt, 0) for failure in self.failures)
