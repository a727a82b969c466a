"""The newest of each name, and whether it has ended: jobs, arrays and pipelines have one space of names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Column, Connection, Row, func, select

from reconciler.model.job_groups import Batch, GroupKind
from reconciler.model.job_runs import called, number_of
from reconciler.protocols.job_source import DuplicateJobError, PassedNumberError
from reconciler.store.rows import pieces
from reconciler.store.tables import groups, jobs
from solver.model.workload import JobName


class NameHolder(NamedTuple):
    """The newest of a name: what it is, and whether it has ended, all of it."""

    id: JobName
    kind: GroupKind | None
    has_ended: bool

    @property
    def refusal(self) -> str:
        """Why another may not be called so now; "": it may."""
        if self.has_ended:
            return ""
        name = called(self.id)
        if self.kind is None:
            return f"a job {name} exists already, and has not ended"
        return f"{'an array' if self.kind == 'array' else 'a pipeline'} {name} exists already, and has not ended whole"


def name_holders(connection: Connection, names: Collection[JobName]) -> dict[JobName, NameHolder]:
    """By name; a name that nothing has had is left out. All before the newest of a name have ended."""
    found: dict[JobName, NameHolder] = {}
    for some in pieces(names):
        of_groups = _newest(connection, some, groups.c.name, groups.c.kind)
        live = _live_groups(connection, [row.name for row in of_groups])
        of_jobs = _newest(connection, some, jobs.c.name, jobs.c.ended_at)
        holders = [NameHolder(JobName(row.name), None, row.ended_at is not None) for row in of_jobs]
        holders += [NameHolder(JobName(row.name), row.kind, row.name not in live) for row in of_groups]
        found |= {called(holder.id): holder for holder in sorted(holders, key=lambda each: number_of(each.id))}
    return found


def next_number(holders: Mapping[JobName, NameHolder]) -> int:
    """The number after all that the names have had."""
    return 1 + max((number_of(holder.id) for holder in holders.values()), default=0)


def require_next(connection: Connection, batch: Batch) -> None:
    """Raises DuplicateJobError where what has a name of the batch has not ended, PassedNumberError for another number."""
    holders = name_holders(connection, [called(each) for each in batch.names])
    refusal = next((holders[name].refusal for name in sorted(holders) if holders[name].refusal), "")
    if refusal:
        raise DuplicateJobError(refusal)
    following = next_number(holders)
    if number_of(batch.name) != following:
        raise PassedNumberError(
            f"names of {batch.name} were taken a moment ago: what is called so next is number {following}"
        )


def _newest(connection: Connection, names: Collection[JobName], *columns: Column[Any]) -> Sequence[Row[Any]]:
    """Of each name the first of all and the last of the others: numbers of rows rise as those of ids do."""
    table = columns[0].table
    first = select(*columns).where(table.c.name.in_(names))
    last = select(func.max(table.c.number)).where(table.c.called.in_(names)).group_by(table.c.called)
    # No alternative of the two: PostgreSQL would find no way by an index for it.
    return connection.execute(first.union_all(select(*columns).where(table.c.number.in_(last)))).all()


def _live_groups(connection: Connection, ids: Collection[JobName]) -> set[str]:
    """Those that have a job which has not ended."""
    found = set[str]()
    for some in pieces(ids):
        for column in (jobs.c.array_id, jobs.c.pipeline):
            live = select(column).where(column.in_(some), jobs.c.ended_at.is_(None)).distinct()
            found |= set(connection.execute(live).scalars())
    return found
