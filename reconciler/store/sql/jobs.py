"""What wants to run, in SQL."""

from __future__ import annotations

from sqlalchemy import Connection, Row, delete, insert, select, update

from reconciler.backend import Epoch
from reconciler.jobs.record import JobOutcome, JobRecord
from reconciler.store.protocols import DuplicateJobError, UnknownJobError
from reconciler.store.sql.database import Database
from reconciler.store.sql.tables import jobs, nominations, reservations
from solver.world.document import encode
from solver.world.quantities import Instant
from solver.world.workload import JobName, JobSpec


class SqlJobSource:
    """Implements JobSource."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def submit(self, name: JobName, spec: JobSpec, user: str, at: Instant, idempotency_key: str) -> JobRecord:
        """Accept a job; an empty key matches nothing."""
        with self._database.writing() as connection:
            known = connection.execute(select(jobs).where(jobs.c.name == name)).one_or_none()
            if known is not None and (not idempotency_key or known.idempotency_key != idempotency_key):
                raise DuplicateJobError(f"a job {name} exists already, and names are never used again")
            if known is None:
                values = {"user": user, "submitted_at": at, "idempotency_key": idempotency_key}
                connection.execute(insert(jobs).values(name=name, spec=encode(spec).decode(), **values))
            return self._read(connection, name)

    def job(self, name: JobName) -> JobRecord:
        """One job, live or ended."""
        with self._database.reading() as connection:
            return self._read(connection, name)

    def live_jobs(self) -> tuple[JobRecord, ...]:
        """Jobs without an outcome, sorted by name."""
        with self._database.reading() as connection:
            rows = connection.execute(select(jobs).where(jobs.c.ended_at.is_(None))).all()
        return tuple(sorted((self._record(row) for row in rows), key=lambda record: record.name))

    def jobs(self, limit: int = 1000, after: JobName | None = None) -> tuple[JobRecord, ...]:
        """The newest jobs, newest first."""
        wanted = select(jobs).order_by(jobs.c.number.desc()).limit(limit)
        with self._database.reading() as connection:
            if after is not None:
                number = connection.execute(select(jobs.c.number).where(jobs.c.name == after)).scalar_one_or_none()
                if number is None:
                    raise UnknownJobError(f"there is no job {after}")
                wanted = wanted.where(jobs.c.number < number)
            rows = connection.execute(wanted).all()
        return tuple(self._record(row) for row in rows)

    def request_cancel(self, name: JobName, actor: str) -> JobRecord:
        """Note that the job shall end; the first who asks is remembered."""
        with self._database.writing() as connection:
            unasked = (jobs.c.name == name) & jobs.c.ended_at.is_(None) & (jobs.c.cancel_requested_by == "")
            connection.execute(update(jobs).where(unasked).values(cancel_requested_by=actor))
            return self._read(connection, name)

    def finish(self, epoch: Epoch, name: JobName, outcome: JobOutcome) -> None:
        """Record how a job ended; the first outcome stays."""
        with self._database.writing(epoch) as connection:
            self._read(connection, name)
            live = (jobs.c.name == name) & jobs.c.ended_at.is_(None)
            connection.execute(update(jobs).where(live).values(ended_at=outcome.at, outcome=encode(outcome).decode()))
            connection.execute(delete(nominations).where(nominations.c.job == name))
            connection.execute(delete(reservations).where(reservations.c.holder == name))

    def _read(self, connection: Connection, name: JobName) -> JobRecord:
        row = connection.execute(select(jobs).where(jobs.c.name == name)).one_or_none()
        if row is None:
            raise UnknownJobError(f"there is no job {name}")
        return self._record(row)

    def _record(self, row: Row[tuple[object, ...]]) -> JobRecord:
        return JobRecord(
            name=JobName(row.name),
            spec=self._database.read_document(row.spec, JobSpec),
            user=row.user,
            submitted_at=Instant(row.submitted_at),
            cancel_requested_by=row.cancel_requested_by,
            outcome=self._database.read_document(row.outcome, JobOutcome) if row.outcome is not None else None,
        )
