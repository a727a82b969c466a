"""What the ledger has of one job, in SQL: a pass that deals with thousands of jobs need not read all of them for each."""

from __future__ import annotations

from sqlalchemy import select

from reconciler.store.protocols import Claim
from reconciler.store.sql.database import Database
from reconciler.store.sql.rows import intent_named, read_claim
from reconciler.store.sql.tables import attempts, claims
from solver.world.inflight import Intent
from solver.world.workload import JobName


class SqlOneJob:
    """The part of Ledger that is read job by job."""

    _database: Database

    def held_by(self, job: JobName) -> Claim | None:
        """By the key."""
        with self._database.reading() as connection:
            row = connection.execute(select(claims).where(claims.c.job == job)).one_or_none()
        return None if row is None else read_claim(self._database, row)

    def last_attempt(self, job: JobName) -> int:
        """By the key."""
        with self._database.reading() as connection:
            return connection.execute(select(attempts.c.last).where(attempts.c.job == job)).scalar() or 0

    def asked(self, intent: str) -> Intent | None:
        """By the key."""
        with self._database.reading() as connection:
            return intent_named(self._database, connection, intent)
