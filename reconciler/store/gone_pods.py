"""What pods took with them when they went, in SQL."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import ColumnElement, delete, insert, select

from reconciler.protocols.backend import Epoch
from reconciler.store.database import Database
from reconciler.store.rows import pieces
from reconciler.store.tables import ended_gangs, gang_evictions
from solver.model.inflight import Ended
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.queueing.durations import HISTORY_JOBS


class SqlGonePods:
    """Implements GonePods."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep_ended(self, epoch: Epoch, ended: Iterable[Ended]) -> None:
        """One row for each; what is too old to be read goes."""
        table = ended_gangs.c
        oldest = select(table.submitted_at).order_by(table.submitted_at.desc()).offset(HISTORY_JOBS).limit(1)
        with self._database.writing(epoch) as connection:
            for one in ended:
                same = (table.job == one.job) & (table.submitted_at == one.submitted_at)
                connection.execute(delete(ended_gangs).where(same))
                row = {name: getattr(one, name) for name in Ended.__struct_fields__}
                connection.execute(insert(ended_gangs).values(row))
            too_old = connection.execute(oldest).scalar()
            if too_old is not None:
                connection.execute(delete(ended_gangs).where(table.submitted_at <= too_old))

    def ended(self) -> tuple[Ended, ...]:
        """The last submitted first."""
        newest = select(ended_gangs).order_by(ended_gangs.c.submitted_at.desc(), ended_gangs.c.job).limit(HISTORY_JOBS)
        with self._database.reading() as connection:
            rows = connection.execute(newest).all()
        return tuple(
            Ended(
                QueueName(row.queue),
                MilliGpu(row.gpus),
                Instant(row.submitted_at),
                JobName(row.job),
                Duration(row.ran),
                row.priority_class,
            )
            for row in rows
        )

    def keep_evictions(self, epoch: Epoch, jobs: Collection[JobName], at: Instant) -> None:
        """One row for each."""
        with self._database.writing(epoch) as connection:
            for job in sorted(set(jobs)):
                connection.execute(delete(gang_evictions).where(_that(job, at)))
                connection.execute(insert(gang_evictions).values(job=job, at=at))

    def call_off(self, epoch: Epoch, job: JobName, at: Instant) -> None:
        """As if it had never been."""
        with self._database.writing(epoch) as connection:
            connection.execute(delete(gang_evictions).where(_that(job, at)))

    def forget(self, epoch: Epoch, jobs: Collection[JobName]) -> None:
        """All rows of theirs go."""
        with self._database.writing(epoch) as connection:
            for some in pieces(jobs):
                connection.execute(delete(gang_evictions).where(gang_evictions.c.job.in_(some)))

    def evictions(self) -> dict[JobName, tuple[Instant, ...]]:
        """By job, the oldest first."""
        found: dict[JobName, tuple[Instant, ...]] = {}
        with self._database.reading() as connection:
            for row in connection.execute(select(gang_evictions).order_by(gang_evictions.c.at)):
                found[JobName(row.job)] = (*found.get(JobName(row.job), ()), Instant(row.at))
        return found


def _that(job: JobName, at: Instant) -> ColumnElement[bool]:
    return (gang_evictions.c.job == job) & (gang_evictions.c.at == at)
