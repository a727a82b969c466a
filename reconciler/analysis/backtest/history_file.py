"""The history of a cluster as a file: one line for each job that was submitted, and how its attempts went.

The first line says when the history was written. What jobs run, and with what secrets and variables, is not in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec

from reconciler.model.job_record import JobRecord
from reconciler.protocols.history import Event
from solver.model.document import API_VERSION, Document
from solver.model.inflight import StopPurpose
from solver.model.quantities import Instant
from solver.model.workload import JobName, JobSpec

Ended = Literal["succeeded", "failed", "cancelled"]


class HistoryHead(Document, frozen=True, omit_defaults=False):
    """The first line of a history. `aliased`: jobs and users have other names in it than on the cluster."""

    exported_at: Instant
    aliased: bool = False
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["History"] = "History"


class Attempt(Document, frozen=True):
    """From when all tasks of a gang ran until its devices were given back; `ended_at` None: it still holds them.

    One that had done its work, or failed, before it was seen to run counts from when it was given its devices.
    `stopped_for`: why it was asked to stop, if it was.
    """

    started_at: Instant
    ended_at: Instant | None = None
    stopped_for: StopPurpose | None = None


class RecordedJob(Document, frozen=True):
    """A job as it was submitted and what became of it. `ended_at` None: it had not ended."""

    name: JobName
    spec: JobSpec
    user: str
    submitted_at: Instant
    attempts: tuple[Attempt, ...] = ()
    ended_at: Instant | None = None
    ended_as: Ended | None = None

    @property
    def is_running(self) -> bool:
        """Its last attempt has not ended."""
        return bool(self.attempts) and self.attempts[-1].ended_at is None

    @property
    def is_over(self) -> bool:
        """It has ended for good."""
        return self.ended_at is not None


def recorded(record: JobRecord, spec: JobSpec, events: Iterable[Event]) -> RecordedJob:
    """What is known of a job. `spec` is what may be told of its own; `events` are its, oldest first."""
    bound: dict[int, Instant] = {}
    started: dict[int, Instant] = {}
    released: dict[int, Instant] = {}
    stopped_for: dict[int, StopPurpose] = {}
    for event in events:
        match event.kind:
            case "bound":
                bound.setdefault(event.attempt, event.time)
            case "running":
                started.setdefault(event.attempt, event.time)
            case "released":
                released[event.attempt] = event.time
            case "asked-to-stop" if event.purpose:
                stopped_for[event.attempt] = msgspec.convert(event.purpose, StopPurpose)
            case "called-off":
                stopped_for.pop(event.attempt, None)
            case _:
                pass  # It changes no attempt's beginning or end.
    outcome = record.outcome
    if outcome and outcome.state != "cancelled" and outcome.attempt in bound:
        started.setdefault(outcome.attempt, bound[outcome.attempt])
    if outcome and outcome.attempt in started:
        # Its work was over then; giving the devices back took a moment more.
        released[outcome.attempt] = min(outcome.at, released.get(outcome.attempt, outcome.at))
    attempts = (
        Attempt(at, released.get(number), stopped_for.get(number)) for number, at in sorted(started.items()) if number
    )
    return RecordedJob(
        record.name,
        spec,
        record.user,
        record.submitted_at,
        tuple(attempts),
        outcome.at if outcome else None,
        outcome.state if outcome else None,
    )


def aliased(jobs: Iterable[RecordedJob]) -> tuple[RecordedJob, ...]:
    """The same jobs under other names, and by users of other names; names of data are left out. Queues keep theirs.

    Aliases have the order of the names, since rounds break ties by them.
    """
    listed = tuple(jobs)
    others = {other.job for job in listed for other in job.spec.depends_on}
    names = _numbered("job", others.union(job.name for job in listed))
    users = _numbered("user", {job.user for job in listed})
    return tuple(_renamed(job, names, users) for job in listed)


def _renamed(job: RecordedJob, names: Mapping[str, str], users: Mapping[str, str]) -> RecordedJob:
    depends_on = tuple(msgspec.structs.replace(other, job=JobName(names[other.job])) for other in job.spec.depends_on)
    spec = msgspec.structs.replace(job.spec, depends_on=depends_on, data=())
    return msgspec.structs.replace(job, name=JobName(names[job.name]), user=users[job.user], spec=spec)


def _numbered(kind: str, names: Collection[str]) -> dict[str, str]:
    digits = len(str(len(names)))
    return {name: f"{kind}-{number:0{digits}}" for number, name in enumerate(sorted(names), 1)}


def ready_at(job: RecordedJob, ends: Mapping[JobName, Instant]) -> Instant:
    """When it could begin: once it was submitted, and the single jobs on which it depends had ended."""
    return max([job.submitted_at, *(ends[other.job] for other in job.spec.depends_on if other.job in ends)])
