"""What the ledger has of one job, or of a few, in SQL: what a pass does for some of thousands need not read all of them."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select

from reconciler.protocols.holdings import JobHoldings
from reconciler.protocols.stores import Claim
from reconciler.store.database import Database
from reconciler.store.pieces import pieces
from reconciler.store.rows import intent_named, read_claim
from reconciler.store.tables import attempts, claims, intents, jobs, nominations, reservations
from solver.model.inflight import Intent, Reservation
from solver.model.workload import JobName


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

    def last_attempts(self, names: Collection[JobName]) -> dict[JobName, int]:
        """By the key."""
        found: dict[JobName, int] = {}
        with self._database.reading() as connection:
            for some in pieces(names):
                of_some = select(attempts.c.job, attempts.c.last).where(attempts.c.job.in_(some))
                found |= {JobName(row.job): row.last for row in connection.execute(of_some)}
        return found

    def of(self, names: Collection[JobName]) -> JobHoldings:
        """By the key, all in one state of the database."""
        held: list[Claim] = []
        asked: list[str] = []
        kept: list[str] = []
        last: dict[JobName, int] = {}
        live = select(attempts.c.job, attempts.c.last).join(jobs).where(jobs.c.ended_at.is_(None))
        with self._database.reading() as connection:
            for some in pieces(names):
                of_some = select(claims).where(claims.c.job.in_(some))
                held += (read_claim(self._database, row) for row in connection.execute(of_some))
                for table in (intents, nominations):
                    asked += connection.execute(select(table.c.intent).where(table.c.job.in_(some))).scalars()
                holders = select(reservations.c.reservation).where(reservations.c.holder.in_(some))
                kept += connection.execute(holders).scalars()
                begun = connection.execute(live.where(attempts.c.job.in_(some)))
                last |= {JobName(row.job): row.last for row in begun}
        found = (self._database.read_document(text, Intent) for text in asked)
        reserved = (self._database.read_document(text, Reservation) for text in kept)
        return JobHoldings({claim.job: claim for claim in held}, tuple(found), tuple(reserved), last)

    def asked(self, intent: str) -> Intent | None:
        """By the key."""
        with self._database.reading() as connection:
            return intent_named(self._database, connection, intent)
