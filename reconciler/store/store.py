"""The protocols of storage on one database, opened together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reconciler.access.audit_keys import AuditKeyFile
from reconciler.store.agents import SqlAgents
from reconciler.store.alerts import SqlAlerts
from reconciler.store.audit import AuditChain, SqlAudit
from reconciler.store.capacity import SqlCapacities
from reconciler.store.checkpoints import SqlCheckpoints
from reconciler.store.database import Database, LeaseClock
from reconciler.store.git_decisions import SqlAcceptedPlans, SqlFollowing
from reconciler.store.gone_pods import SqlGonePods
from reconciler.store.gpu_use import SqlGpuUses
from reconciler.store.health import SqlNodeHealths
from reconciler.store.history import SqlHistory
from reconciler.store.interventions import SqlInterventions
from reconciler.store.jobs import SqlJobSource
from reconciler.store.ledger import SqlLedger
from reconciler.store.past_jobs import SqlPastJobs
from reconciler.store.placements import SqlPlacements
from reconciler.store.pod_placements import SqlPodPlacements
from reconciler.store.sessions import SqlSessions


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
    sessions: SqlSessions
    placements: SqlPlacements
    capacities: SqlCapacities
    past_jobs: SqlPastJobs
    gpu_uses: SqlGpuUses
    audit: SqlAudit
    pod_placements: SqlPodPlacements

    def close(self) -> None:
        """Close every connection."""
        self.database.close()


def open_store(
    where: Path | str,
    password_file: Path | None = None,
    lease_clock: LeaseClock | None = None,
    *,
    as_found: bool = False,
    audit_keys: AuditKeyFile | None = None,
) -> SqlStore:
    """Open or create a database: an SQLite file by its path, PostgreSQL by its URL. Raises StoreUnusableError.

    `password_file`: of PostgreSQL; without one, libpq looks where it always does (PGPASSFILE). `as_found`: one that has to be
    there, with its schema left as it is. `audit_keys`: what is recorded is linked into the audit chain and signed with them; None:
    it is not, for programs that record nothing.
    """
    database = Database(where, password_file, lease_clock, as_found=as_found)
    chain = AuditChain(audit_keys.keys) if audit_keys is not None else None
    return SqlStore(
        database,
        SqlJobSource(database),
        SqlLedger(database),
        SqlHistory(database, chain),
        SqlCheckpoints(database),
        SqlInterventions(database),
        SqlNodeHealths(database),
        SqlAlerts(database),
        SqlFollowing(database),
        SqlAcceptedPlans(database),
        SqlAgents(database),
        SqlGonePods(database),
        SqlSessions(database),
        SqlPlacements(database),
        SqlCapacities(database),
        SqlPastJobs(database),
        SqlGpuUses(database),
        SqlAudit(database),
        SqlPodPlacements(database),
    )
