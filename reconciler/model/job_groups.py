"""Jobs that were submitted together: arrays, and pipelines, which may have arrays in them."""

from __future__ import annotations

from typing import Literal, NamedTuple

from reconciler.model.job_record import ArrayElement
from solver.model.document import Document
from solver.model.quantities import Instant
from solver.model.workload import JobName, JobSpec

GroupKind = Literal["array", "pipeline"]


class NewGroup(Document, frozen=True):
    """A group to be; `pipeline`: the one that an array belongs to."""

    name: JobName
    kind: GroupKind
    pipeline: str = ""


class NewJob(Document, frozen=True):
    """A job to be, and which group it belongs to."""

    name: JobName
    spec: JobSpec
    array: ArrayElement | None = None
    pipeline: str = ""


class Submission(NamedTuple):
    """A job alone, as it is asked for: by which user, when, and under which key ("": none)."""

    name: JobName
    spec: JobSpec
    user: str
    at: Instant
    idempotency_key: str = ""


class Batch(Document, frozen=True):
    """What is submitted at once: all of it or nothing. The first group is the one that was asked for."""

    groups: tuple[NewGroup, ...]
    jobs: tuple[NewJob, ...]

    @property
    def name(self) -> JobName:
        """The name it was submitted under."""
        return self.groups[0].name

    @property
    def names(self) -> tuple[JobName, ...]:
        """The ids of all that it is: first those of groups, then those of jobs."""
        return tuple(each.name for each in self.groups) + tuple(each.name for each in self.jobs)


class GroupRecord(Document, frozen=True):
    """A group as submitted. How it stands is how its jobs stand."""

    name: JobName
    kind: GroupKind
    user: str
    submitted_at: Instant
    pipeline: str = ""


class Tally(Document, frozen=True):
    """How many jobs of a group have not ended, and how the others did. A job alone counts as a group of one."""

    live: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0

    def __str__(self) -> str:
        counts = {
            "not ended": self.live,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "cancelled": self.cancelled,
        }
        return ", ".join(f"{number} {what}" for what, number in counts.items() if number)
