"""Arrays and pipelines as they are written in the tables, inside a transaction of the job source."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, insert, select

from reconciler.model.job_groups import Batch, GroupRecord, NewJob, Tally
from reconciler.protocols.job_source import DuplicateJobError
from reconciler.store.pieces import pieces
from reconciler.store.tables import groups, jobs
from solver.model.document import encode
from solver.model.quantities import Instant
from solver.model.workload import JobName


def group_named(connection: Connection, name: JobName) -> Row[Any] | None:
    """The row of a group; None: there is none of that name."""
    return connection.execute(select(groups).where(groups.c.name == name)).one_or_none()


def group_of(row: Row[Any]) -> GroupRecord:
    """A group from its row."""
    return GroupRecord(JobName(row.name), row.kind, row.user, Instant(row.submitted_at), row.pipeline or "")


def part_of(group: GroupRecord) -> ColumnElement[bool]:
    """Which jobs belong to a group."""
    return (jobs.c.array_id if group.kind == "array" else jobs.c.pipeline) == group.name


def taken(connection: Connection, names: Sequence[JobName]) -> list[JobName]:
    """Those of the names that a job or group has already."""
    found: list[str] = []
    for some in pieces(names):
        for column in (jobs.c.name, groups.c.name):
            found += connection.execute(select(column).where(column.in_(some))).scalars()
    return sorted(map(JobName, found))


def insert_batch(connection: Connection, batch: Batch, user: str, at: Instant, idempotency_key: str) -> None:
    """Write every group and job; raises DuplicateJobError where a name is taken."""
    known = taken(connection, [*(group.name for group in batch.groups), *(job.name for job in batch.jobs)])
    if known:
        raise DuplicateJobError(f"{known[0]} exists already, and names are never used again")
    common = {"user": user, "submitted_at": at, "idempotency_key": idempotency_key}
    connection.execute(
        insert(groups),
        [{"name": each.name, "kind": each.kind, "pipeline": each.pipeline or None, **common} for each in batch.groups],
    )
    connection.execute(insert(jobs), [{**_columns(job), **common} for job in batch.jobs])


def tallied(connection: Connection, names: Collection[JobName]) -> dict[JobName, Tally]:
    """How the jobs stand that are named, or belong to a group that is."""
    counts: dict[JobName, dict[str, int]] = {}
    for some in pieces(names):
        for column in (jobs.c.name, jobs.c.array_id, jobs.c.pipeline):
            asked = select(column, jobs.c.ended_as, func.count()).where(column.in_(some))
            for name, ended_as, number in connection.execute(asked.group_by(column, jobs.c.ended_as)):
                counts.setdefault(JobName(name), {})[ended_as or "live"] = number
    return {name: Tally(**each) for name, each in counts.items()}


def _columns(job: NewJob) -> dict[str, object]:
    return {
        "name": job.name,
        "spec": encode(job.spec).decode(),
        "array": None if job.array is None else encode(job.array).decode(),
        "array_id": None if job.array is None else job.array.id,
        "pipeline": job.pipeline or None,
    }
