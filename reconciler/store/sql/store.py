"""The protocols of storage on one database, opened together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reconciler.store.sql.agents import SqlAgents
from reconciler.store.sql.alerts import SqlAlerts
from reconciler.store.sql.checkpoints import SqlCheckpoints
from reconciler.store.sql.database import Database, LeaseClock
from reconciler.store.sql.following import SqlFollowing
from reconciler.store.sql.gone_pods import SqlGonePods
from reconciler.store.sql.health import SqlNodeHealths
from reconciler.store.sql.history import SqlHistory
from reconciler.store.sql.interventions import SqlInterventions
from reconciler.store.sql.jobs import SqlJobSource
from reconciler.store.sql.ledger import SqlLedger
from reconciler.store.sql.plans import SqlAcceptedPlans


@dataclass(frozen=True, slots=True)
class SqlStore:
    """One open database and what it implements."""

    database: Database
    jobs: SqlJobSource
    ledger: SqlLedger
    history: SqlHistory
    checkpoints: SqlCheckpoints
    interventions: SqlInterventions
    health: SqlNodeHealths
    alerts: SqlAlerts
    following: SqlFollowing
    plans: SqlAcceptedPlans
    agents: SqlAgents
    gone_pods: SqlGonePods

    def close(self) -> None:
        """Close every connection."""
        self.database.close()


def open_store(
    where: Path | str,
    password_file: Path | None = None,
    lease_clock: LeaseClock | None = None,
    *,
    as_found: bool = False,
) -> SqlStore:
    """Open or create a database: an SQLite file by its path, PostgreSQL by its URL. Raises StoreUnusableError.

    `password_file`: of PostgreSQL; without one, libpq looks where it always does (PGPASSFILE). `as_found`: one that has to be
    there, whose schema is left as it is.
    """
    database = Database(where, password_file, lease_clock, as_found=as_found)
    return SqlStore(
        database,
        SqlJobSource(database),
        SqlLedger(database),
        SqlHistory(database),
        SqlCheckpoints(database),
        SqlInterventions(database),
        SqlNodeHealths(database),
        SqlAlerts(database),
        SqlFollowing(database),
        SqlAcceptedPlans(database),
        SqlAgents(database),
        SqlGonePods(database),
    )
