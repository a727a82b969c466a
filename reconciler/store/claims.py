"""Claims, the holdings and intents that go with them, and the attempts they are: rows, inside a transaction of the ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select, update

from reconciler.protocols.ledger import Claim, ClaimRefusedError, Marks
from reconciler.protocols.placements import PlacementEnd
from reconciler.store import placements
from reconciler.store.database import Database
from reconciler.store.occupancy import DeviceHold, held_by
from reconciler.store.rows import pieces
from reconciler.store.tables import attempts, claims, holdings, intents, jobs, nominations, reservations
from solver.model.cluster import GpuType
from solver.model.document import encode
from solver.model.inflight import Intent
from solver.model.quantities import MILLI_PER_GPU, Duration, Instant
from solver.model.workload import JobName, TaskPlacement


class NextAttempts:
    """How the jobs stand that are to begin. A job without a row in `live` does not exist."""

    def __init__(self, connection: Connection, names: Collection[JobName]) -> None:
        self.live: dict[str, Row[Any]] = {}
        self.holds: dict[str, int] = {row.job: row.attempt for row in claim_rows(connection, names)}
        self.last: dict[str, int] = {}
        for some in pieces(names):
            known = select(jobs.c.name, jobs.c.ended_at, jobs.c.suspended_by).where(jobs.c.name.in_(some))
            self.live |= {row.name: row for row in connection.execute(known)}
            tried = select(attempts.c.job, attempts.c.last).where(attempts.c.job.in_(some))
            self.last |= {row.job: row.last for row in connection.execute(tried)}

    def refuse(self, claim: Claim) -> None:
        """Raises ClaimRefusedError unless the job is live, not suspended, holds nothing, and the attempt is its next."""
        job = self.live.get(claim.job)
        if job is None or job.ended_at is not None:
            raise ClaimRefusedError(f"{claim.job} {'does not exist' if job is None else 'has ended'}")
        if job.suspended_by:
            raise ClaimRefusedError(f"{claim.job} was suspended by {job.suspended_by}")
        if claim.job in self.holds:
            raise ClaimRefusedError(f"{claim.job} still holds the devices of attempt {self.holds[claim.job]}")
        last = self.last.get(claim.job, 0)
        if claim.attempt != last + 1:
            raise ClaimRefusedError(f"attempt {claim.attempt} of {claim.job} is not the next; its last was {last}")


def read_claim(database: Database, row: Row[Any]) -> Claim:
    """A claim from its row."""
    return Claim(
        JobName(row.job),
        row.attempt,
        database.read_document(row.tasks, tuple[TaskPlacement, ...]),
        Instant(row.since),
        None if row.running_since is None else Instant(row.running_since),
        None if row.time_limit is None else Duration(row.time_limit),
        row.growth,
        None if row.idle_limit is None else Duration(row.idle_limit),
        Marks() if row.marks is None else database.read_document(row.marks, Marks),
        () if row.gpu_types is None else database.read_document(row.gpu_types, tuple[tuple[str, GpuType], ...]),
    )


def claim_of(database: Database, connection: Connection, intent: Intent) -> Claim | None:
    """What the attempt of an intent holds; None: nothing."""
    held = (claims.c.job == intent.job) & (claims.c.attempt == intent.attempt)
    row = connection.execute(select(claims).where(held)).one_or_none()
    return None if row is None else read_claim(database, row)


def claim_rows(connection: Connection, names: Collection[JobName]) -> Iterable[Row[Any]]:
    """The rows of those that hold something."""
    for some in pieces(names):
        yield from connection.execute(select(claims).where(claims.c.job.in_(some)))


def intent_named(database: Database, connection: Connection, name: str) -> Intent | None:
    """The intent of that id; None where none is in flight."""
    text = connection.execute(select(intents.c.intent).where(intents.c.id == name)).scalar()
    return None if text is None else database.read_document(text, Intent)


def insert_intents(connection: Connection, asked: Iterable[Intent]) -> None:
    """Write intents of attempts that hold something."""
    rows = [{"id": intent.id, "job": intent.job, "intent": encode(intent).decode()} for intent in asked]
    if rows:
        connection.execute(insert(intents), rows)


def write_claims(
    database: Database,
    connection: Connection,
    next_attempts: NextAttempts,
    granted: Sequence[tuple[Claim, Intent]],
) -> None:
    """What they hold, their attempts, placements and intents; what was promised to them or kept for them goes."""
    if not granted:
        return
    connection.execute(insert(claims), [_row_of(claim) for claim, _ in granted])
    _hold(connection, (held for claim, _ in granted for held in held_by(claim.job, claim.tasks)))
    _write_attempts(connection, next_attempts.last, [claim for claim, _ in granted])
    placements.begin(database, connection, [claim for claim, _ in granted])
    insert_intents(connection, (intent for _, intent in granted))
    for some in pieces([claim.job for claim, _ in granted]):
        connection.execute(delete(nominations).where(nominations.c.job.in_(some)))
        connection.execute(delete(reservations).where(reservations.c.holder.in_(some)))


def ran(connection: Connection, held: Sequence[Row[Any]], at: Instant) -> dict[JobName, int]:
    """GPU-milliseconds that attempts have run until `at`, at all their sizes, by job. `held`: the rows of their claims."""
    running = {row.job: row for row in held if row.running_since is not None}
    charged: dict[str, int] = {}
    for some in pieces(running):
        query = select(holdings.c.job, func.sum(holdings.c.charged)).where(holdings.c.job.in_(some))
        charged.update(tuple(row) for row in connection.execute(query.group_by(holdings.c.job)))
    return {
        JobName(job): int(row.ran_gpu_ms + charged.get(job, 0) * _span_ms(row, at) // MILLI_PER_GPU)
        for job, row in running.items()
    }


def claim_to_grow(database: Database, connection: Connection, intent: Intent) -> Claim:
    """The claim of a growth's gang. Raises ClaimRefusedError for one that holds nothing, or does not simply run."""
    claim = claim_of(database, connection, intent)
    if claim is None:
        raise ClaimRefusedError(f"{intent.job} does not hold attempt {intent.attempt}")
    job = f"attempt {claim.attempt} of {claim.job}"
    if connection.execute(select(jobs.c.ended_at).where(jobs.c.name == claim.job)).scalar_one() is not None:
        raise ClaimRefusedError(f"{claim.job} has ended")
    if claim.running_since is None:
        raise ClaimRefusedError(f"{job} does not run yet")
    asked = set(connection.execute(select(intents.c.id).where(intents.c.job == claim.job)).scalars())
    for kind, is_busy in (("stop", "is being stopped"), ("grow", "still grows")):
        if f"{kind}/{claim.job}/{claim.attempt}" in asked:
            raise ClaimRefusedError(f"{job} {is_busy}")
    return claim


def change_size(database: Database, connection: Connection, claim: Claim, at: Instant, how: PlacementEnd) -> None:
    """The claim has these tasks from `at` on; what it ran with those before is added up first. `how`: it came to have them."""
    own = claims.c.job == claim.job
    held = connection.execute(select(claims).where(own, claims.c.attempt == claim.attempt)).all()
    ran_gpu_ms = ran(connection, held, at).get(claim.job, 0)
    tasks = encode(claim.tasks).decode()
    connection.execute(
        update(claims).where(own).values(ran_gpu_ms=ran_gpu_ms, sized_at=at, tasks=tasks, growth=claim.growth)
    )
    connection.execute(delete(holdings).where(holdings.c.job == claim.job))
    _hold(connection, held_by(claim.job, claim.tasks))
    placements.resize(database, connection, claim, at, how)


def write_marks(connection: Connection, job: JobName, attempt: int, marks: Marks) -> None:
    """What is remembered of the attempt, instead of what was."""
    held = (claims.c.job == job) & (claims.c.attempt == attempt)
    connection.execute(update(claims).where(held).values(marks=encode(marks).decode()))


def _hold(connection: Connection, held: Iterable[DeviceHold]) -> None:
    """Write it, in one statement."""
    rows = [one._asdict() for one in held]
    if rows:
        connection.execute(insert(holdings), rows)


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
        "gpu_types": encode(claim.gpu_types).decode(),
    }


def _span_ms(row: Row[Any], at: Instant) -> int:
    """How long it has run at the size that it has."""
    sized_at: int = max(row.running_since, row.sized_at or 0)
    return max(0, at - sized_at)
