"""Who holds which device, in SQL. Every write but `lead` runs in a transaction that has checked the writer's epoch."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, delete, insert, select, update

from reconciler.model.clock import SystemClock
from reconciler.protocols.backend import Epoch
from reconciler.protocols.stores import Claim, ClaimRefusedError, NotLeaderError
from reconciler.store.attempts import SqlAttempts
from reconciler.store.database import Database
from reconciler.store.ledger_documents import SqlKept
from reconciler.store.marks import SqlMarks
from reconciler.store.occupancy import Occupancy
from reconciler.store.one_job import SqlOneJob
from reconciler.store.partitions import SqlPartitions
from reconciler.store.row_cache import Unchanged
from reconciler.store.rows import claim_of, insert_intents, intent_named, read_claim
from reconciler.store.sizes import change_size, claim_to_grow, refuse_growth, without
from reconciler.store.tables import (
    attempts,
    claims,
    evictions,
    intents,
    jobs,
    leadership,
    nominations,
    reservations,
)
from solver.model.document import encode
from solver.model.inflight import Ended, Intent, Reservation
from solver.model.quantities import MILLI_PER_GPU, Duration, Instant
from solver.model.workload import JobName, JobSpec
from solver.queueing.durations import HISTORY_JOBS


class SqlLedger(SqlPartitions, SqlAttempts, SqlKept, SqlMarks, SqlOneJob):
    """Implements Ledger."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._claims = Unchanged[Claim, None](lambda row, _: read_claim(database, row))

    def lead(self, holder: str, now: Instant, lease: Duration) -> Epoch:
        """Take or renew leadership."""
        with self._database.writing() as connection:
            leader, now = connection.execute(select(leadership)).one(), self._database.now(connection, now)
            if leader.holder != holder and leader.until > now:
                raise NotLeaderError(leader.holder, Instant(leader.until))
            epoch = leader.epoch if leader.holder == holder else leader.epoch + 1
            connection.execute(update(leadership).values(holder=holder, epoch=epoch, until=now + lease))
            return Epoch(epoch)

    def renew(self, holder: str, now: Instant, lease: Duration) -> bool:
        """The epoch stays. A lease that is over is prolonged as well, as long as nobody has taken the lead."""
        with self._database.writing() as connection:
            until = self._database.now(connection, now).after(lease)
            own = update(leadership).where(leadership.c.holder == holder)
            return connection.execute(own.values(until=until)).rowcount == 1

    def leader(self) -> str:
        """Who leads now; "": nobody, or one whose lease is over."""
        with self._database.reading() as connection:
            leader = connection.execute(select(leadership)).one()
            is_over = leader.until <= self._database.now(connection, SystemClock().now())
        return "" if is_over else str(leader.holder)

    def resign(self, epoch: Epoch) -> None:
        """Give leadership up."""
        with self._database.writing() as connection:
            connection.execute(update(leadership).where(leadership.c.epoch == epoch).values(holder="", until=0))

    def ask(self, epoch: Epoch, intent: Intent) -> None:
        """Record an intent; the first of an id stays."""
        with self._database.writing(epoch) as connection:
            held = select(claims.c.job).where(claims.c.job == intent.job, claims.c.attempt == intent.attempt)
            known = select(intents.c.id).where(intents.c.id == intent.id)
            if connection.execute(held).first() and not connection.execute(known).first():
                insert_intents(connection, [intent])
                if intent.evicts:
                    evicted = {"job": intent.job, "attempt": intent.attempt, "at": intent.asked_at}
                    connection.execute(insert(evictions).values(evicted))

    def stage(self, epoch: Epoch, intent: Intent) -> None:
        """A stop that is further takes the place of the one before."""
        with self._database.writing(epoch) as connection:
            connection.execute(update(intents).where(intents.c.id == intent.id).values(intent=encode(intent).decode()))

    def call_off(self, epoch: Epoch, job: JobName, attempt: int) -> None:
        """The stop goes, and the eviction that it counted as."""
        with self._database.writing(epoch) as connection:
            named = intents.c.id == f"stop/{job}/{attempt}"
            stored = connection.execute(select(intents.c.intent).where(named)).scalar()
            if stored is None or self._database.read_document(stored, Intent).stage == "ends":
                return
            connection.execute(delete(intents).where(named))
            counted = (evictions.c.job == job) & (evictions.c.attempt == attempt)
            connection.execute(delete(evictions).where(counted))

    def nominate(self, epoch: Epoch, intent: Intent) -> None:
        """Promise a job devices for an attempt to come, in place of what it was promised before."""
        with self._database.writing(epoch) as connection:
            connection.execute(delete(nominations).where(nominations.c.job == intent.job))
            connection.execute(delete(reservations).where(reservations.c.holder == intent.job))
            if _waits(connection, intent.job, intent.attempt):
                connection.execute(insert(nominations).values(job=intent.job, intent=encode(intent).decode()))

    def withdraw(self, epoch: Epoch, job: JobName) -> None:
        """What the job was promised is free for others."""
        with self._database.writing(epoch) as connection:
            connection.execute(delete(nominations).where(nominations.c.job == job))

    def reserve(self, epoch: Epoch, reservation: Reservation) -> None:
        """Keep devices for a waiting gang, or by a document, in place of what was kept."""
        with self._database.writing(epoch) as connection:
            holder, text = reservation.holder, encode(reservation).decode()
            connection.execute(delete(reservations).where(reservations.c.holder == holder))
            if reservation.is_declared or _waits(connection, holder):
                connection.execute(insert(reservations).values(holder=holder, reservation=text))

    def unreserve(self, epoch: Epoch, holder: JobName) -> None:
        """The reservation goes."""
        with self._database.writing(epoch) as connection:
            connection.execute(delete(reservations).where(reservations.c.holder == holder))

    def reservations(self) -> tuple[Reservation, ...]:
        """Every reservation, sorted by holder."""
        with self._database.reading() as connection:
            stored = connection.execute(select(reservations.c.reservation)).scalars().all()
        found = (self._database.read_document(text, Reservation) for text in stored)
        return tuple(sorted(found, key=lambda reservation: reservation.holder))

    def grow(self, epoch: Epoch, intent: Intent) -> Claim:
        """Devices for more tasks, the longer claim, and the intent; or nothing of it."""
        with self._database.writing(epoch) as connection:
            claim = claim_to_grow(self._database, connection, intent)
            refuse_growth(Occupancy(self._database, connection, intent.tasks), claim, intent.tasks)
            grown = msgspec.structs.replace(claim, tasks=(*claim.tasks, *intent.tasks), growth=claim.growth + 1)
            change_size(connection, grown, intent.asked_at)
            insert_intents(connection, [intent])
            return grown

    def restart(self, epoch: Epoch, intent: Intent) -> Claim:
        """The intent, and the claim with its next growth; its devices stay as they are."""
        with self._database.writing(epoch) as connection:
            claim = claim_to_grow(self._database, connection, intent)
            strange = [task for task in intent.tasks if task not in claim.tasks]
            if strange:
                raise ClaimRefusedError(f"{intent.job} has no such task: {strange[0].group}/{strange[0].index}")
            grown = msgspec.structs.replace(claim, growth=claim.growth + 1)
            change_size(connection, grown, intent.asked_at)
            insert_intents(connection, [intent])
            return grown

    def confirm_grown(self, epoch: Epoch, job: JobName, attempt: int) -> None:
        """All tasks that joined run: the intent is done."""
        with self._database.writing(epoch) as connection:
            connection.execute(delete(intents).where(intents.c.id == f"grow/{job}/{attempt}"))

    def confirm_shrunk(self, epoch: Epoch, job: JobName, attempt: int, at: Instant) -> None:
        """The tasks of the intent go, from the claim and from a growth that was still to be confirmed."""
        with self._database.writing(epoch) as connection:
            shrink = intent_named(self._database, connection, f"shrink/{job}/{attempt}")
            claim = claim_of(self._database, connection, shrink) if shrink else None
            if shrink is None or claim is None:
                return
            shrunk = msgspec.structs.replace(claim, tasks=without(claim.tasks, shrink.tasks))
            change_size(connection, shrunk, at)
            connection.execute(delete(intents).where(intents.c.id == shrink.id))
            grow = intent_named(self._database, connection, f"grow/{job}/{attempt}")
            if grow is not None:
                joining = without(grow.tasks, shrink.tasks)
                connection.execute(delete(intents).where(intents.c.id == grow.id))
                if joining:
                    insert_intents(connection, [msgspec.structs.replace(grow, tasks=joining)])

    def claims(self) -> tuple[Claim, ...]:
        """Every hold, sorted by job."""
        with self._database.reading() as connection:
            rows = connection.execute(select(claims).order_by(claims.c.job)).all()
        return self._claims.read((row.job, row, None) for row in rows)

    def intents(self) -> tuple[Intent, ...]:
        """Every intent not yet confirmed, sorted by id."""
        with self._database.reading() as connection:
            asked = connection.execute(select(intents.c.intent)).scalars().all()
            promised = connection.execute(select(nominations.c.intent)).scalars().all()
        return tuple(
            sorted(
                (self._database.read_document(text, Intent) for text in (*asked, *promised)),
                key=lambda intent: intent.id,
            )
        )

    def evictions(self) -> dict[JobName, tuple[Instant, ...]]:
        """When each live job was evicted."""
        query = select(evictions.c.job, evictions.c.at).join(jobs).where(jobs.c.ended_at.is_(None))
        found: dict[JobName, tuple[Instant, ...]] = {}
        with self._database.reading() as connection:
            for row in connection.execute(query.order_by(evictions.c.job, evictions.c.attempt)):
                found[JobName(row.job)] = (*found.get(JobName(row.job), ()), Instant(row.at))
        return found

    def attempts(self) -> dict[JobName, int]:
        """The last attempt of every live job that was ever bound."""
        query = select(attempts.c.job, attempts.c.last).join(jobs).where(jobs.c.ended_at.is_(None))
        with self._database.reading() as connection:
            return {JobName(row.job): row.last for row in connection.execute(query.order_by(attempts.c.job))}

    def served(self) -> dict[JobName, int]:
        """What released attempts have run, by live job."""
        query = select(attempts.c.job, attempts.c.served_gpu_ms).join(jobs).where(jobs.c.ended_at.is_(None))
        with self._database.reading() as connection:
            return {JobName(row.job): row.served_gpu_ms for row in connection.execute(query.order_by(attempts.c.job))}

    def history(self) -> tuple[Ended, ...]:
        """Read off the attempts of ended jobs."""
        columns = (jobs.c.name, jobs.c.spec, jobs.c.submitted_at, attempts.c.served_gpu_ms)
        query = select(*columns).join_from(jobs, attempts).outerjoin(claims, claims.c.job == jobs.c.name)
        done = jobs.c.ended_at.is_not(None) & claims.c.job.is_(None) & (attempts.c.served_gpu_ms > 0)
        with self._database.reading() as connection:
            rows = connection.execute(query.where(done).order_by(jobs.c.number.desc()).limit(HISTORY_JOBS)).all()
        found = ((row, self._database.read_document(row.spec, JobSpec)) for row in rows)
        return tuple(
            Ended(
                spec.queue,
                spec.gpus,
                Instant(row.submitted_at),
                JobName(row.name),
                Duration(row.served_gpu_ms * MILLI_PER_GPU // spec.gpus),
                spec.priority_class,
            )
            for row, spec in found
            if spec.gpus
        )


def _waits(connection: Connection, job: JobName, attempt: int = 0) -> bool:
    """Whether the job is live and holds nothing; with an attempt, nothing in that one or a later one."""
    live = select(jobs.c.name).where(jobs.c.name == job, jobs.c.ended_at.is_(None))
    holds = select(claims.c.job).where(claims.c.job == job, claims.c.attempt >= attempt)
    return bool(connection.execute(live).first()) and not connection.execute(holds).first()
