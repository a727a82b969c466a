"""What the control plane knows of a job, live or ended."""

from __future__ import annotations

from typing import Literal

from solver.world.document import Document
from solver.world.quantities import Instant
from solver.world.workload import Dependency, JobName, JobSpec

JobState = Literal["queued", "starting", "running", "stopping", "succeeded", "failed", "cancelled"]
TERMINAL: frozenset[JobState] = frozenset({"succeeded", "failed", "cancelled"})


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
    """A job as submitted, and as it ended. Whether it holds devices is the ledger's to say.

    `array` and `pipeline`: what it was submitted as a part of.
    """

    name: JobName
    spec: JobSpec
    user: str
    submitted_at: Instant
    cancel_requested_by: str = ""
    outcome: JobOutcome | None = None
    array: ArrayElement | None = None
    pipeline: str = ""
