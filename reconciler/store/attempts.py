"""How attempts begin, are known to run and end, in SQL: of thousands in as few statements and commits as of one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from reconciler.protocols.backend import Epoch
from reconciler.protocols.stores import Claim, ClaimRefusedError
from reconciler.store.database import Database
from reconciler.store.device_holds import held_by, hold, ran, refuse_held
from reconciler.store.occupancy import Occupancy
from reconciler.store.partition_conflicts import refuse_divided
from reconciler.store.pieces import pieces
from reconciler.store.rows import insert_intents
from reconciler.store.tables import attempts, claims, intents, jobs, nominations, reservations
from solver.model.document import encode
from solver.model.inflight import Intent
from solver.model.quantities import Instant
from solver.model.workload import JobName


class SqlAttempts:
    """The part of Ledger that is about attempts as a whole."""

    _database: Database

    def claim(self, epoch: Epoch, claim: Claim, intent: Intent) -> None:
        """All devices of a gang, or none."""
        for refused in self.claim_all(epoch, [(claim, intent)]).values():
            raise refused

    def claim_all(self, epoch: Epoch, wanted: Sequence[tuple[Claim, Intent]]) -> dict[JobName, ClaimRefusedError]:
        """Each as if those before it were written; then all that may be are."""
        refused: dict[JobName, ClaimRefusedError] = {}
        granted: list[tuple[Claim, Intent]] = []
        with self._database.writing(epoch) as connection:
            standing = _Standing(connection, [claim.job for claim, _ in wanted])
            occupancy = Occupancy(self._database, connection, (task for claim, _ in wanted for task in claim.tasks))
            for claim, intent in wanted:
                try:
                    refuse_unless_next(standing, claim)
                    refuse_divided(occupancy, claim.tasks)
                    refuse_held(occupancy, claim.job, claim.tasks)
                except ClaimRefusedError as why:
                    refused[claim.job] = why
                else:
                    standing.holds[claim.job] = claim.attempt
                    occupancy.add(held_by(claim.job, claim.tasks))
                    granted.append((claim, intent))
            _write_claims(connection, standing, granted)
        return refused

    def confirm_running(self, epoch: Epoch, job: JobName, attempt: int, at: Instant) -> None:
        """All tasks run: the start intent is done."""
        self.confirm_running_all(epoch, [(job, attempt, at)])

    def confirm_running_all(self, epoch: Epoch, seen: Iterable[tuple[JobName, int, Instant]]) -> None:
        """Two statements, run for each by the driver."""
        rows = [{"of": job, "in": attempt, "at": at, "id": f"start/{job}/{attempt}"} for job, attempt, at in seen]
        unconfirmed = (claims.c.job == bindparam("of")) & (claims.c.attempt == bindparam("in"))
        confirmed = update(claims).where(unconfirmed, claims.c.running_since.is_(None))
        if not rows:
            return
        with self._database.writing(epoch) as connection:
            connection.execute(confirmed.values(running_since=bindparam("at")), rows)
            connection.execute(delete(intents).where(intents.c.id == bindparam("id")), rows)

    def release(self, epoch: Epoch, job: JobName, attempt: int, at: Instant) -> None:
        """The claim goes, and with it its holdings and intents."""
        self.release_all(epoch, [(job, attempt)], at)

    def release_all(self, epoch: Epoch, over: Collection[tuple[JobName, int]], at: Instant) -> None:
        """What they have run is added up first."""
        with self._database.writing(epoch) as connection:
            wanted = set(over)
            held = [row for row in _claims_of(connection, [job for job, _ in over]) if (row.job, row.attempt) in wanted]
            served = ran(connection, held, at)
            if served:
                added = attempts.c.served_gpu_ms + bindparam("ran")
                own = update(attempts).where(attempts.c.job == bindparam("of")).values(served_gpu_ms=added)
                connection.execute(own, [{"of": job, "ran": gpu_ms} for job, gpu_ms in served.items()])
            for some in pieces([row.job for row in held]):
                connection.execute(delete(claims).where(claims.c.job.in_(some)))


class _Standing:
    """How the jobs stand that are to begin. A job without a row in `live` does not exist."""

    def __init__(self, connection: Connection, names: Collection[JobName]) -> None:
        self.live: dict[str, Row[Any]] = {}
        self.holds: dict[str, int] = {row.job: row.attempt for row in _claims_of(connection, names)}
        self.last: dict[str, int] = {}
        for some in pieces(names):
            known = select(jobs.c.name, jobs.c.ended_at, jobs.c.suspended_by).where(jobs.c.name.in_(some))
            self.live |= {row.name: row for row in connection.execute(known)}
            tried = select(attempts.c.job, attempts.c.last).where(attempts.c.job.in_(some))
            self.last |= {row.job: row.last for row in connection.execute(tried)}


def refuse_unless_next(standing: _Standing, claim: Claim) -> None:
    """Raises ClaimRefusedError unless the job is live, not suspended, holds nothing, and the attempt is its next."""
    job = standing.live.get(claim.job)
    if job is None or job.ended_at is not None:
        raise ClaimRefusedError(f"{claim.job} {'does not exist' if job is None else 'has ended'}")
    if job.suspended_by:
        raise ClaimRefusedError(f"{claim.job} was suspended by {job.suspended_by}")
    if claim.job in standing.holds:
        raise ClaimRefusedError(f"{claim.job} still holds the devices of attempt {standing.holds[claim.job]}")
    last = standing.last.get(claim.job, 0)
    if claim.attempt != last + 1:
        raise ClaimRefusedError(f"attempt {claim.attempt} of {claim.job} is not the next; its last was {last}")


def _claims_of(connection: Connection, names: Collection[JobName]) -> Iterable[Row[Any]]:
    for some in pieces(names):
        yield from connection.execute(select(claims).where(claims.c.job.in_(some)))


def _write_claims(connection: Connection, standing: _Standing, granted: Sequence[tuple[Claim, Intent]]) -> None:
    if not granted:
        return
    connection.execute(insert(claims), [_row_of(claim) for claim, _ in granted])
    hold(connection, (held for claim, _ in granted for held in held_by(claim.job, claim.tasks)))
    _write_attempts(connection, standing.last, [claim for claim, _ in granted])
    insert_intents(connection, (intent for _, intent in granted))
    for some in pieces([claim.job for claim, _ in granted]):
        connection.execute(delete(nominations).where(nominations.c.job.in_(some)))
        connection.execute(delete(reservations).where(reservations.c.holder.in_(some)))


def _write_attempts(connection: Connection, known: Mapping[str, int], granted: Iterable[Claim]) -> None:
    first = [
        {"job": claim.job, "last": claim.attempt, "served_gpu_ms": 0} for claim in granted if claim.job not in known
    ]
    again = [{"of": claim.job, "now": claim.attempt} for claim in granted if claim.job in known]
    if first:
        connection.execute(insert(attempts), first)
    if again:
        own = update(attempts).where(attempts.c.job == bindparam("of"))
        connection.execute(own.values(last=bindparam("now")), again)


def _row_of(claim: Claim) -> dict[str, object]:
    return {
        "job": claim.job,
        "attempt": claim.attempt,
        "tasks": encode(claim.tasks).decode(),
        "since": claim.since,
        "running_since": claim.running_since,
        "time_limit": claim.time_limit,
        "idle_limit": claim.idle_limit,
        "growth": claim.growth,
        "ran_gpu_ms": 0,
    }
