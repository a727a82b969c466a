"""Which job holds which device, in SQL. Every write but `lead` runs in a transaction that has checked the writer's epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, FromClause, Row, bindparam, delete, func, insert, select, update

from reconciler.model.clock import SystemClock
from reconciler.model.cluster_clock import KeptTime, boot_of_this_machine, continued
from reconciler.protocols.backend import Epoch
from reconciler.protocols.ledger import (
    Claim,
    ClaimRefusedError,
    JobHoldings,
    JobStanding,
    Marks,
    NotLeaderError,
    PastUse,
    stop_of,
)
from reconciler.store import placements
from reconciler.store.claims import (
    NextAttempts,
    change_size,
    claim_of,
    claim_rows,
    claim_to_grow,
    insert_intents,
    intent_named,
    ran,
    read_claim,
    write_claims,
    write_marks,
)
from reconciler.store.database import Database
from reconciler.store.occupancy import Occupancy, held_by
from reconciler.store.partitions import PartitionTable
from reconciler.store.rows import Unchanged, first_document, keep_document, kept_document, pieces
from reconciler.store.tables import (
    attempts,
    claims,
    evictions,
    failures,
    intents,
    jobs,
    leadership,
    nominations,
    reservations,
)
from solver.model.document import encode
from solver.model.inflight import ConvergenceClock, Ended, Intent, Reservation
from solver.model.quantities import MILLI_PER_GPU, Duration, Instant
from solver.model.workload import JobName, JobSpec, TaskPlacement
from solver.queueing.durations import HISTORY_JOBS

TIED_TO: Final = "tied-to"
CLUSTER_TIME: Final = "cluster-time"
_PAST_USE: Final = "past-use"
_CLOCKS: Final = "convergence"

# What each pass reads is stated once: building a statement costs SQLAlchemy as much as running it costs SQLite.
_OF_LIVE: Final = jobs.c.ended_at.is_(None)
_LEADERSHIP: Final = select(leadership)
_CLAIMS: Final = select(claims).order_by(claims.c.job)
_INTENTS: Final = select(intents.c.intent)
_NOMINATIONS: Final = select(nominations.c.intent)
_RESERVATIONS: Final = select(reservations.c.reservation)
_ATTEMPTS: Final = select(attempts.c.job, attempts.c.last).join(jobs).where(_OF_LIVE).order_by(attempts.c.job)
_SERVED: Final = select(attempts.c.job, attempts.c.served_gpu_ms).join(jobs).where(_OF_LIVE).order_by(attempts.c.job)
_EVICTIONS: Final = (
    select(evictions.c.job, evictions.c.at).join(jobs).where(_OF_LIVE).order_by(evictions.c.job, evictions.c.attempt)
)


class SqlLedger:
    """Implements Ledger."""

    def __init__(self, database: Database) -> None:
        self.partitionings = PartitionTable(database)
        self._database = database
        self._claims = Unchanged(_claim_rows, self._read_claims)
        self._standings: tuple[int, dict[JobStanding, int]] | None = None
        self._adopted = 0

    def lead(self, holder: str, now: Instant, lease: Duration) -> Epoch:
        """Take or renew leadership."""
        with self._database.writing(counted=False) as connection:
            leader, now = connection.execute(_LEADERSHIP).one(), self._database.now(connection, now)
            if leader.holder != holder and leader.until > now:
                raise NotLeaderError(leader.holder, Instant(leader.until))
            epoch = leader.epoch if leader.holder == holder else leader.epoch + 1
            connection.execute(update(leadership).values(holder=holder, epoch=epoch, until=now + lease))
            if epoch != self._adopted:
                placements.adopt(self._database, connection, lambda row: read_claim(self._database, row), now)
        self._adopted = epoch
        return Epoch(epoch)

    def renew(self, holder: str, now: Instant, lease: Duration) -> bool:
        """The epoch stays. A lease that is over is prolonged as well, as long as no other has taken the lead."""
        with self._database.writing(counted=False) as connection:
            until = self._database.now(connection, now).after(lease)
            own = update(leadership).where(leadership.c.holder == holder)
            return connection.execute(own.values(until=until)).rowcount == 1

    def leader(self) -> str:
        """The present leader; "": none, or one with a lease that is over."""
        with self._database.reading() as connection:
            leader = connection.execute(select(leadership)).one()
            own = SystemClock()
            stands = continued(self._time(connection), boot_of_this_machine(own)) or own.now()
            is_over = leader.until <= self._database.now(connection, stands)
        return "" if is_over else str(leader.holder)

    def epoch_of(self, holder: str) -> Epoch | None:
        """Under which it leads; None: another does, or none. A lease that is over counts until it is taken."""
        with self._database.reading() as connection:
            led = select(leadership.c.epoch).where(leadership.c.holder == holder)
            epoch = connection.execute(led).scalar_one_or_none()
        return None if epoch is None else Epoch(epoch)

    def resign(self, epoch: Epoch) -> None:
        """Give leadership up."""
        with self._database.writing() as connection:
            connection.execute(update(leadership).where(leadership.c.epoch == epoch).values(holder="", until=0))

    def claims(self) -> tuple[Claim, ...]:
        """Every hold, sorted by job."""
        with self._database.reading() as connection:
            return self._claims.read(connection)

    def _read_claims(self, _: Connection, rows: Mapping[str, Row[Any]]) -> dict[str, Claim]:
        return {job: read_claim(self._database, row) for job, row in rows.items()}

    def intents(self) -> tuple[Intent, ...]:
        """Every intent not yet confirmed, sorted by id."""
        with self._database.reading() as connection:
            asked = connection.execute(_INTENTS).scalars().all()
            promised = connection.execute(_NOMINATIONS).scalars().all()
        return tuple(
            sorted(
                (self._database.read_document(text, Intent) for text in (*asked, *promised)),
                key=lambda intent: intent.id,
            )
        )

    def reservations(self) -> tuple[Reservation, ...]:
        """Every reservation, sorted by holder."""
        with self._database.reading() as connection:
            stored = connection.execute(_RESERVATIONS).scalars().all()
        found = (self._database.read_document(text, Reservation) for text in stored)
        return tuple(sorted(found, key=lambda reservation: reservation.holder))

    def attempts(self) -> dict[JobName, int]:
        """The last attempt of every live job that was ever bound."""
        with self._database.reading() as connection:
            return {JobName(row.job): row.last for row in connection.execute(_ATTEMPTS)}

    def served(self) -> dict[JobName, int]:
        """What released attempts have run, by live job."""
        with self._database.reading() as connection:
            return {JobName(row.job): row.served_gpu_ms for row in connection.execute(_SERVED)}

    def evictions(self) -> dict[JobName, tuple[Instant, ...]]:
        """When each live job was evicted."""
        found: dict[JobName, tuple[Instant, ...]] = {}
        with self._database.reading() as connection:
            for row in connection.execute(_EVICTIONS):
                found[JobName(row.job)] = (*found.get(JobName(row.job), ()), Instant(row.at))
        return found

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

    def written(self) -> int:
        """Counted in the row that every writer locks."""
        with self._database.reading() as connection:
            return int(connection.execute(select(leadership.c.written)).scalar_one())

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

    def standings(self) -> dict[JobStanding, int]:
        """Counted by the database, which asks nothing of the interpreter meanwhile, and once until something is written."""
        written, known = self.written(), self._standings
        if known is None or known[0] != written:
            # What is written from here on is counted, too, or counted again: never less than was written by then.
            self._standings = known = written, self._counted_standings()
        return dict(known[1])

    def _counted_standings(self) -> dict[JobStanding, int]:
        columns = (
            (jobs.c.suspended_by != "").label("suspended"),
            (nominations.c.job.is_not(None) | reservations.c.holder.is_not(None)).label("promised"),
            failures.c.job.is_not(None).label("failed"),
            claims.c.job.is_not(None).label("holds"),
            claims.c.running_since.is_not(None).label("runs"),
        )
        last = (failures.c.job == jobs.c.name) & (failures.c.attempt == attempts.c.last) & (failures.c.outlived == 0)
        joined: FromClause = jobs
        for table, on in (
            (claims, claims.c.job == jobs.c.name),
            (nominations, nominations.c.job == jobs.c.name),
            (reservations, reservations.c.holder == jobs.c.name),
            (attempts, attempts.c.job == jobs.c.name),
            (failures, last),
        ):
            joined = joined.outerjoin(table, on)
        live = jobs.c.ended_at.is_(None)
        counted = (
            select(*columns, func.count())
            .select_from(joined)
            .where(live)
            .group_by(*(column.name for column in columns))
        )
        stops = select(intents.c.intent, claims.c.attempt, *columns).select_from(
            joined.join(intents, intents.c.job == claims.c.job)
        )
        with self._database.reading() as connection:
            found = Counter({_standing(row): row[-1] for row in connection.execute(counted).all()})
            asked = connection.execute(stops.where(live, intents.c.id.startswith("stop/"))).all()
        for row in asked:
            intent, before = self._database.read_document(row.intent, Intent), _standing(row)
            if intent.attempt == row.attempt:
                found[before] -= 1
                found[before._replace(stop=stop_of(intent))] += 1
        return {standing: number for standing, number in found.items() if number}

    def asked(self, intent: str) -> Intent | None:
        """By the key."""
        with self._database.reading() as connection:
            return intent_named(self._database, connection, intent)

    def claim(self, epoch: Epoch, claim: Claim, intent: Intent) -> None:
        """All devices of a gang, or none."""
        for refused in self.claim_all(epoch, [(claim, intent)]).values():
            raise refused

    def claim_all(self, epoch: Epoch, wanted: Sequence[tuple[Claim, Intent]]) -> dict[JobName, ClaimRefusedError]:
        """Each as if those before it were written; then all that may be are."""
        refused: dict[JobName, ClaimRefusedError] = {}
        granted: list[tuple[Claim, Intent]] = []
        with self._database.writing(epoch) as connection:
            next_attempts = NextAttempts(connection, [claim.job for claim, _ in wanted])
            occupancy = Occupancy(self._database, connection, (task for claim, _ in wanted for task in claim.tasks))
            for claim, intent in wanted:
                try:
                    next_attempts.refuse(claim)
                    occupancy.refuse_divided(claim.tasks)
                    occupancy.refuse_held(claim.job, claim.tasks)
                except ClaimRefusedError as why:
                    refused[claim.job] = why
                else:
                    next_attempts.holds[claim.job] = claim.attempt
                    occupancy.add(held_by(claim.job, claim.tasks))
                    granted.append((claim, intent))
            write_claims(self._database, connection, next_attempts, granted)
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

    def mark(self, epoch: Epoch, job: JobName, attempt: int, marks: Marks) -> None:
        """One column of the claim's row."""
        with self._database.writing(epoch) as connection:
            write_marks(connection, job, attempt, marks)

    def release(self, epoch: Epoch, job: JobName, attempt: int, at: Instant) -> None:
        """The claim goes, and with it its holdings and intents."""
        self.release_all(epoch, [(job, attempt)], at)

    def release_all(self, epoch: Epoch, over: Collection[tuple[JobName, int]], at: Instant) -> None:
        """What they have run is added up first, and their placements are over."""
        with self._database.writing(epoch) as connection:
            wanted = set(over)
            held = [row for row in claim_rows(connection, [job for job, _ in over]) if (row.job, row.attempt) in wanted]
            served = ran(connection, held, at)
            if served:
                added = attempts.c.served_gpu_ms + bindparam("ran")
                own = update(attempts).where(attempts.c.job == bindparam("of")).values(served_gpu_ms=added)
                connection.execute(own, [{"of": job, "ran": gpu_ms} for job, gpu_ms in served.items()])
            attempts_over = {JobName(row.job): row.attempt for row in held}
            placements.end(connection, placements.endings_of(self._database, connection, attempts_over), at)
            for some in pieces(attempts_over):
                connection.execute(delete(claims).where(claims.c.job.in_(some)))

    def ask(self, epoch: Epoch, intent: Intent) -> bool:
        """Record an intent; the first of an id stays."""
        with self._database.writing(epoch) as connection:
            held = select(claims.c.job).where(claims.c.job == intent.job, claims.c.attempt == intent.attempt)
            known = select(intents.c.id).where(intents.c.id == intent.id)
            if not connection.execute(held).first():
                return False
            if not connection.execute(known).first():
                insert_intents(connection, [intent])
                if intent.evicts:
                    evicted = {"job": intent.job, "attempt": intent.attempt, "at": intent.asked_at}
                    connection.execute(insert(evictions).values(evicted))
            return True

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

    def grow(self, epoch: Epoch, intent: Intent) -> Claim:
        """Devices for more tasks, the longer claim, and the intent; or nothing of it."""
        with self._database.writing(epoch) as connection:
            claim = claim_to_grow(self._database, connection, intent)
            _refuse_growth(Occupancy(self._database, connection, intent.tasks), claim, intent.tasks)
            grown = msgspec.structs.replace(claim, tasks=(*claim.tasks, *intent.tasks), growth=claim.growth + 1)
            change_size(self._database, connection, grown, intent.asked_at, "grew")
            insert_intents(connection, [intent])
            return grown

    def restart(self, epoch: Epoch, intent: Intent) -> Claim:
        """The intent, and the claim with its next growth; its devices stay as they are."""
        with self._database.writing(epoch) as connection:
            claim = claim_to_grow(self._database, connection, intent)
            strange = [task for task in intent.tasks if task not in claim.tasks]
            if strange:
                raise ClaimRefusedError(f"{intent.job} has no such task: {strange[0].group}/{strange[0].index}")
            marks = msgspec.structs.replace(claim.marks, restarted_at=intent.asked_at)
            grown = msgspec.structs.replace(claim, growth=claim.growth + 1, marks=marks)
            change_size(self._database, connection, grown, intent.asked_at, "restarted")
            write_marks(connection, claim.job, claim.attempt, marks)
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
            shrunk = msgspec.structs.replace(claim, tasks=_without(claim.tasks, shrink.tasks))
            change_size(self._database, connection, shrunk, at, "shrank")
            connection.execute(delete(intents).where(intents.c.id == shrink.id))
            grow = intent_named(self._database, connection, f"grow/{job}/{attempt}")
            if grow is not None:
                joining = _without(grow.tasks, shrink.tasks)
                connection.execute(delete(intents).where(intents.c.id == grow.id))
                if joining:
                    insert_intents(connection, [msgspec.structs.replace(grow, tasks=joining)])

    def keep_past_use(self, epoch: Epoch, past: PastUse) -> None:
        """One document, written anew."""
        with self._database.writing(epoch) as connection:
            keep_document(connection, _PAST_USE, encode(past).decode())

    def past_use(self) -> PastUse:
        """What was kept last."""
        with self._database.reading() as connection:
            stored = kept_document(connection, _PAST_USE)
        return PastUse() if stored is None else self._database.read_document(stored, PastUse)

    def keep_clocks(self, epoch: Epoch, clocks: tuple[ConvergenceClock, ...]) -> None:
        """One document, written anew."""
        with self._database.writing(epoch) as connection:
            keep_document(connection, _CLOCKS, encode(clocks).decode())

    def clocks(self) -> tuple[ConvergenceClock, ...]:
        """What was kept last."""
        with self._database.reading() as connection:
            stored = kept_document(connection, _CLOCKS)
        return () if stored is None else self._database.read_document(stored, tuple[ConvergenceClock, ...])

    def keep_time(self, epoch: Epoch, kept: KeptTime) -> None:
        """One document, which is nothing that a pass would look for."""
        with self._database.writing(epoch, counted=False) as connection:
            keep_document(connection, CLUSTER_TIME, encode(kept).decode())

    def kept_time(self) -> KeptTime | None:
        """What was kept last."""
        with self._database.reading() as connection:
            return self._time(connection)

    def _time(self, connection: Connection) -> KeptTime | None:
        stored = kept_document(connection, CLUSTER_TIME)
        return None if stored is None else self._database.read_document(stored, KeptTime)

    def tie(self, to: str) -> str:
        """To what the store is tied for good: the first that was ever named."""
        with self._database.writing() as connection:
            return first_document(connection, TIED_TO, to)


def _claim_rows(connection: Connection) -> Iterator[tuple[str, Row[Any]]]:
    return ((row.job, row) for row in connection.execute(_CLAIMS).all())


def _standing(row: Any) -> JobStanding:
    """Of a row with what says so."""
    return JobStanding(bool(row.suspended), bool(row.promised), bool(row.failed), bool(row.holds), bool(row.runs))


def _refuse_growth(occupancy: Occupancy, claim: Claim, joining: tuple[TaskPlacement, ...]) -> None:
    """Raises ClaimRefusedError for tasks or devices that are held already, and for GPUs that are divided otherwise."""
    occupancy.refuse_divided(joining)
    for (group, index), count in Counter((task.group, task.index) for task in (*claim.tasks, *joining)).items():
        if count > 1:
            raise ClaimRefusedError(f"attempt {claim.attempt} of {claim.job} has a task {group}/{index} already")
    occupancy.refuse_held(claim.job, joining)


def _without(tasks: tuple[TaskPlacement, ...], gone: tuple[TaskPlacement, ...]) -> tuple[TaskPlacement, ...]:
    """The tasks but those, wherever they are."""
    keys = {(task.group, task.index) for task in gone}
    return tuple(task for task in tasks if (task.group, task.index) not in keys)


def _waits(connection: Connection, job: JobName, attempt: int = 0) -> bool:
    """Whether the job is live and holds nothing; with an attempt, nothing in that one or a later one."""
    live = select(jobs.c.name).where(jobs.c.name == job, jobs.c.ended_at.is_(None))
    holds = select(claims.c.job).where(claims.c.job == job, claims.c.attempt >= attempt)
    return bool(connection.execute(live).first()) and not connection.execute(holds).first()
