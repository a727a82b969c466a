"""Leaves out of an answer what only a job's own team may read: commands, environments, and what tasks wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from reconciler.access.rights import Rights
from reconciler.api.payloads import JobView
from reconciler.model.comparison import ObservedComparison
from reconciler.model.failure import Failure
from reconciler.model.intervention_record import Intervention
from reconciler.model.job_record import JobOutcome
from reconciler.protocols.history import Event
from reconciler.protocols.job_source import JobSource
from reconciler.protocols.rounds import RoundRecord
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, JobSpec


def readable_view(view: JobView, rights: Rights) -> JobView:
    """The view as the caller may see it."""
    if rights.may("read-job", view.spec.queue, view.user):
        return view
    outcome = view.outcome and bare_outcome(view.outcome)
    return msgspec.structs.replace(
        view,
        spec=bare_spec(view.spec),
        outcome=outcome,
        failures=tuple(map(bare_failure, view.failures)),
        redacted=True,
    )


def bare_failure(failure: Failure) -> Failure:
    """Without the last lines of the log that follow what happened."""
    return msgspec.structs.replace(failure, message=first_line(failure.message))


def bare_spec(spec: JobSpec) -> JobSpec:
    """Without commands, the folder they run in, environment, image, and what secrets there are."""
    groups = tuple(msgspec.structs.replace(group, command=()) for group in spec.task_groups)
    return msgspec.structs.replace(
        spec, task_groups=groups, command=(), working_directory="", env={}, secrets=(), container=None
    )


def bare_outcome(outcome: JobOutcome) -> JobOutcome:
    """Without the last lines of the log that follow what happened."""
    return msgspec.structs.replace(outcome, message=first_line(outcome.message))


def bare_event(event: Event) -> Event:
    """Without the output of a task that its cause may end with."""
    return msgspec.structs.replace(event, cause=first_line(event.cause))


def readable_snapshot(snapshot: Snapshot, rights: Rights) -> Snapshot:
    """Jobs of others without their commands. It has another digest than the whole one."""
    return msgspec.structs.replace(snapshot, jobs=tuple(map(_readable_job(rights), snapshot.jobs)))


def readable_round(record: RoundRecord, rights: Rights) -> RoundRecord:
    """The same for a round. One with something left out solves to the same steps, under another digest of its snapshot."""
    readable = _readable_job(rights)
    narrow = (
        msgspec.structs.replace(
            each,
            taken=tuple(map(readable, each.taken)),
            waited=tuple(map(readable, each.waited)),
            unsure=tuple(map(readable, each.unsure)),
            came=tuple(map(readable, each.came)),
        )
        for each in record.narrow
    )
    snapshot = readable_snapshot(record.snapshot, rights)
    return msgspec.structs.replace(record, snapshot=snapshot, narrow=tuple(narrow))


def readable_interventions(
    interventions: Iterable[Intervention], jobs: JobSource, rights: Rights
) -> Iterator[Intervention]:
    """Those about nodes and queues, and about jobs that the caller may see."""
    found = tuple(interventions)
    records = jobs.named({JobName(each.subject.name) for each in found if each.subject.kind == "job"})
    for each in found:
        record = records.get(JobName(each.subject.name)) if each.subject.kind == "job" else None
        if each.subject.kind != "job" or (record and rights.may("see-job", record.spec.queue, record.user)):
            yield each


def readable_comparison(found: ObservedComparison | None, rights: Rights) -> ObservedComparison | None:
    """All figures, and the jobs that the caller may see."""
    if found is None:
        return None
    starts = tuple(one for one in found.starts if rights.may("see-job", one.queue, one.user))
    evictions = tuple(one for one in found.evictions if rights.may("see-job", one.queue, one.user))
    return msgspec.structs.replace(found, starts=starts, evictions=evictions)


def first_line(text: str) -> str:
    """Below it there may be what a task wrote."""
    return next(iter(text.splitlines()), "")


def _readable_job(rights: Rights) -> Callable[[Job], Job]:
    def readable(job: Job) -> Job:
        if rights.may("read-job", job.spec.queue, job.user):
            return job
        return msgspec.structs.replace(job, spec=bare_spec(job.spec))

    return readable
