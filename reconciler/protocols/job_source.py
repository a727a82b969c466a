"""The protocol of what wants to run; its conformance suite is tests/contracts/test_job_source.py."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from reconciler.model.failure import Failure
from reconciler.model.job_groups import Batch, GroupRecord, Submission, Tally
from reconciler.model.job_record import JobOutcome, JobRecord, JobState
from reconciler.protocols.backend import Epoch
from solver.model.quantities import Instant
from solver.model.workload import JobName, JobSpec, QueueName


class DuplicateJobError(Exception):
    """What has that name, a job or a group, has not ended; and it is not the one this idempotency key submitted."""


class PassedNumberError(DuplicateJobError):
    """A batch has ids that are not the next of its names, since others were called so meanwhile. Nothing of it was kept."""


class UnknownJobError(KeyError):
    """There is no job of that name."""


class NoJobYetError(UnknownJobError):
    """Something has that name, and is no job so far; `fix` says how to learn why."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


class JobsAreElsewhereError(Exception):
    """Jobs of this source are only read here; `fix` says how what was wanted is done where they are."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


class AcceptedJob(NamedTuple):
    """A job that was accepted: now, or, under the same key and name, before."""

    record: JobRecord
    is_new: bool


JobOrder = Literal["newest", "waiting", "biggest"]
"""newest: by submission, the last first. waiting: those alone that hold nothing, the first submitted first. biggest: by GPUs, the
most first; jobs of which an older release took in the submission come last."""


class JobQuery(NamedTuple):
    """Which jobs are looked for; what is left out lets every job through.

    `queues`: in one of these. `group`: of this array or pipeline. `prefix`: with a name that begins so. `ended`: with one of these
    outcomes, or `live`, where either is stated. `holds`: whether they hold devices. `text`: in the name, in letters of either case.
    `classes`: of one of these priority classes ("": none was named). `gpu_type`: would take GPUs of it. `seen_in`, `seen_by`: in
    one of these queues, or that user's. `since`: that had not ended then; `to`: that had been submitted before. `called`: the job
    of that name, and all that were called so after it.
    """

    queues: frozenset[QueueName] | None = None
    user: str = ""
    prefix: str = ""
    ended: frozenset[JobState] | None = None
    live: bool = True
    holds: bool | None = None
    text: str = ""
    classes: frozenset[str] | None = None
    gpu_type: str = ""
    seen_in: frozenset[QueueName] | None = None
    seen_by: str = ""
    since: Instant | None = None
    to: Instant | None = None
    called: str = ""
    group: str = ""
    order: JobOrder = "newest"


ALL_JOBS: Final = JobQuery()


class JobSource(Protocol):
    """What wants to run. Where jobs are changed elsewhere, what would change one raises JobsAreElsewhereError."""

    def accepts(self) -> None:
        """Whether jobs are submitted here at all, asked before anything is said of one: raises JobsAreElsewhereError if not."""

    def submit(self, name: JobName, spec: JobSpec, user: str, at: Instant, idempotency_key: str) -> JobRecord:
        """Accept a job; the same key and name again returns the first record. Raises DuplicateJobError.

        A name may be used again once the job that is called so has ended: the new one has another id (model/job_runs.py).
        """

    def submit_each(self, asked: Sequence[Submission]) -> list[AcceptedJob | DuplicateJobError]:
        """Accept each as if those before it had been, all in one write; what became of each, in their order."""

    def was_submitted(self, name: JobName, idempotency_key: str) -> bool:
        """Whether a job or group was submitted under this name and key before; False for an empty key."""

    def resolved(self, names: Collection[JobName]) -> Mapping[JobName, JobName]:
        """The id that each written name means: of a name alone the newest that is called so, be it a job, an array or a pipeline.

        What nothing is called stays.
        """

    def next_number(self, names: Collection[JobName]) -> int:
        """The number that none of these names has had yet, nor any after it: with it they are ids that are new."""

    def submit_all(self, batch: Batch, user: str, at: Instant, idempotency_key: str) -> GroupRecord:
        """Accept a group with all its jobs, or nothing of it; the same key and name again returns what is there.

        Its ids are those of `next_number`: the write finds out whether they are still. Raises DuplicateJobError where something
        that has a name of it has not ended, PassedNumberError.
        """

    def newest_group(self, name: JobName, seen_in: frozenset[QueueName] | None, seen_by: str) -> GroupRecord | None:
        """The newest array or pipeline that is called so; of those that are that user's, or have all jobs in these queues.

        As with a query, another may be given.
        """

    def group(self, name: JobName) -> GroupRecord:
        """One array or pipeline. Raises UnknownJobError."""

    def members(self, name: JobName) -> tuple[JobRecord, ...]:
        """The jobs of a group, live and ended, as they were submitted. Raises UnknownJobError."""

    def tallies(self, names: Collection[JobName]) -> dict[JobName, Tally]:
        """How the jobs stand that are named, or belong to a group that is; unknown names are left out."""

    def request_cancel_all(self, name: JobName, actor: str) -> None:
        """Note for every job of a group that it shall end, as `request_cancel` does for one, at once. Raises UnknownJobError."""

    def job(self, name: JobName) -> JobRecord:
        """One job, live or ended. Raises UnknownJobError."""

    def named(self, names: Collection[JobName]) -> Mapping[JobName, JobRecord]:
        """The jobs of these names, live and ended; unknown names are left out."""

    def live_jobs(self) -> tuple[JobRecord, ...]:
        """Jobs without an outcome, sorted by name."""

    def jobs(
        self, limit: int = 1000, after: JobName | None = None, query: JobQuery = ALL_JOBS
    ) -> tuple[JobRecord, ...]:
        """Jobs, live and ended, in the order that is asked for; with `after`, of those behind it. Raises UnknownJobError.

        Others than those that are looked for may be among them: a query spares work, and is no test.
        """

    def count(self, query: JobQuery, most: int) -> int | None:
        """How many jobs `jobs` would give, of which no more than `most` are counted; None: others would be among them."""

    def request_cancel(self, name: JobName, actor: str) -> JobRecord:
        """Note that the job shall end; idempotent, and without effect on an ended one. Raises UnknownJobError."""

    def request_suspend(self, name: JobName, actor: str) -> JobRecord:
        """Note that the job shall wait until it is resumed; as with a cancellation. Raises UnknownJobError."""

    def resume(self, name: JobName) -> JobRecord:
        """Let a suspended job go on; idempotent. Raises UnknownJobError."""

    def request_requeue(self, name: JobName, attempt: int, actor: str) -> JobRecord:
        """Note that this attempt shall stop, and the job begin anew; as with a cancellation. Raises UnknownJobError."""

    def retry(self, epoch: Epoch, name: JobName, failure: Failure) -> None:
        """Record how an attempt failed that another one follows, or that goes on; the first record of the same failure stays.

        Raises StaleEpochError, UnknownJobError.
        """

    def finish(self, epoch: Epoch, name: JobName, outcome: JobOutcome) -> None:
        """Record how a job ended; the first outcome stays. Raises StaleEpochError, UnknownJobError."""

    def finish_all(self, epoch: Epoch, ended: Mapping[JobName, JobOutcome]) -> None:
        """As `finish` for many jobs, in one write, or for none. Raises StaleEpochError, UnknownJobError."""
