"""What wants to run, in SQL."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    bindparam,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)

from reconciler.model.failure import Failure
from reconciler.model.job_groups import Batch, GroupRecord, NewJob, Submission, Tally
from reconciler.model.job_record import ArrayElement, JobOutcome, JobRecord
from reconciler.model.job_runs import as_id, called, number_of, numbered
from reconciler.protocols.backend import Epoch
from reconciler.protocols.job_source import (
    ALL_JOBS,
    AcceptedJob,
    DuplicateJobError,
    JobOrder,
    JobQuery,
    UnknownJobError,
)
from reconciler.store.database import Database
from reconciler.store.job_names import NameHolder, name_holders, next_number, require_next
from reconciler.store.rows import NAMES_MAX, Alike, Unchanged, pieces
from reconciler.store.tables import claims, failures, groups, jobs, nominations, reservations
from solver.model.document import encode
from solver.model.quantities import Instant
from solver.model.workload import JobName, JobSpec, QueueName


class SqlJobSource:
    """Implements JobSource."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._live = Unchanged(_live_stamps, self._live_records)
        self._specs = Alike(lambda stored: database.read_document(stored, JobSpec))

    def accepts(self) -> None:
        """They are."""

    def submit(self, name: JobName, spec: JobSpec, user: str, at: Instant, idempotency_key: str) -> JobRecord:
        """Accept a job; an empty key matches nothing."""
        (found,) = self.submit_each([Submission(name, spec, user, at, idempotency_key)])
        if isinstance(found, DuplicateJobError):
            raise found
        return found.record

    def submit_each(self, asked: Sequence[Submission]) -> list[AcceptedJob | DuplicateJobError]:
        """Accept jobs; an empty key matches nothing. As many statements as for one."""
        new: dict[JobName, Submission] = {}
        with self._database.writing() as connection:
            holders = name_holders(connection, {each.name for each in asked})
            same = _of_keys(connection, ((each.name, each.idempotency_key) for each in asked))
            known = {each.name: each for each in self._named(connection, set(same.values()))}
            found = list[AcceptedJob | DuplicateJobError]()
            for each in asked:
                there = same.get((each.name, each.idempotency_key))
                if there is not None:
                    found.append(AcceptedJob(known[there], is_new=False))
                else:
                    found.append(_accepted(each, holders.get(each.name), new))
            if new:
                connection.execute(insert(jobs), [_row_of(each) for each in new.values()])
        return found

    def was_submitted(self, name: JobName, idempotency_key: str) -> bool:
        """By the same rules as `submit_each` and `submit_all`."""
        if not idempotency_key:
            return False
        with self._database.reading() as connection:
            job = _of_keys(connection, [(name, idempotency_key)])
            return bool(job) or _group_of_key(connection, name, idempotency_key) is not None

    def resolved(self, names: Collection[JobName]) -> dict[JobName, JobName]:
        """By a few queries for all of them."""
        found = {name: as_id(name) or name for name in names}
        asked = [name for name in names if as_id(name) is None]
        if asked:
            with self._database.reading() as connection:
                found |= {name: holder.id for name, holder in name_holders(connection, asked).items()}
        return found

    def next_number(self, names: Collection[JobName]) -> int:
        """As of now: only a write can hold it."""
        with self._database.reading() as connection:
            return next_number(name_holders(connection, names))

    def submit_all(self, batch: Batch, user: str, at: Instant, idempotency_key: str) -> GroupRecord:
        """Accept a whole group; an empty key matches nothing."""
        with self._database.writing() as connection:
            before = _group_of_key(connection, called(batch.name), idempotency_key) if idempotency_key else None
            if before is not None:
                return before
            require_next(connection, batch)
            _insert_batch(connection, batch, user, at, idempotency_key)
            return GroupRecord(batch.name, batch.groups[0].kind, user, at)

    def newest_group(self, name: JobName, seen_in: frozenset[QueueName] | None, seen_by: str) -> GroupRecord | None:
        """One after the other, from the newest: jobs are looked at of no more of them than need be."""
        with self._database.reading() as connection:
            rows = connection.execute(select(groups).where(_so_called(groups, name)).order_by(groups.c.number.desc()))
            for group in map(_group_of, rows.all()):
                if seen_in is None or group.user == seen_by or not _has_other(connection, group, seen_in):
                    return group
        return None

    def group(self, name: JobName) -> GroupRecord:
        """One array or pipeline."""
        with self._database.reading() as connection:
            return self._group(connection, name)

    def members(self, name: JobName) -> tuple[JobRecord, ...]:
        """The jobs of a group in the order of their submission."""
        with self._database.reading() as connection:
            group = self._group(connection, name)
            rows = connection.execute(select(jobs).where(_part_of(group)).order_by(jobs.c.number)).all()
            return self._records(connection, rows)

    def tallies(self, names: Collection[JobName]) -> dict[JobName, Tally]:
        """Counted in the database: an array may have thousands of jobs."""
        if not names:
            return {}
        with self._database.reading() as connection:
            return _tallied(connection, names)

    def request_cancel_all(self, name: JobName, actor: str) -> None:
        """In one transaction, so that nothing starts because something else of the group was cancelled a moment before."""
        with self._database.writing() as connection:
            unasked = jobs.c.ended_at.is_(None) & (jobs.c.cancel_requested_by == "")
            of_it = _part_of(self._group(connection, name))
            connection.execute(update(jobs).where(of_it & unasked).values(cancel_requested_by=actor))

    def job(self, name: JobName) -> JobRecord:
        """One job, live or ended."""
        with self._database.reading() as connection:
            return self._read(connection, name)

    def named(self, names: Collection[JobName]) -> dict[JobName, JobRecord]:
        """Those of these names."""
        if not names:
            return {}
        with self._database.reading() as connection:
            return {record.name: record for record in self._named(connection, names)}

    def live_jobs(self) -> tuple[JobRecord, ...]:
        """Jobs without an outcome, sorted by name."""
        with self._database.reading() as connection:
            return self._live.read(connection)

    def jobs(
        self, limit: int = 1000, after: JobName | None = None, query: JobQuery = ALL_JOBS
    ) -> tuple[JobRecord, ...]:
        """In the order that is asked for, found and sorted in the database."""
        wanted = select(jobs).where(*_conditions(query)).order_by(*_ORDERS[query.order]).limit(limit)
        with self._database.reading() as connection:
            if after is not None:
                place = select(jobs.c.number, jobs.c.gpus).where(jobs.c.name == after)
                last = connection.execute(place).one_or_none()
                if last is None:
                    raise UnknownJobError(f"there is no job {after}")
                wanted = wanted.where(_behind(last.number, last.gpus, query.order))
            rows = connection.execute(wanted).all()
            return self._records(connection, rows)

    def count(self, query: JobQuery, most: int) -> int | None:
        """No row is read; of jobs of the release before the database can't tell."""
        found = select(jobs.c.number).where(*_conditions(query)).limit(most).subquery()
        with self._database.reading() as connection:
            return int(connection.execute(select(func.count()).select_from(found)).scalar_one())

    def request_cancel(self, name: JobName, actor: str) -> JobRecord:
        """Note that the job shall end; the first user that asks is remembered."""
        return self._note(name, jobs.c.cancel_requested_by == "", cancel_requested_by=actor)

    def request_suspend(self, name: JobName, actor: str) -> JobRecord:
        """Note that the job shall wait; the first user that asks is remembered."""
        return self._note(name, jobs.c.suspended_by == "", suspended_by=actor)

    def resume(self, name: JobName) -> JobRecord:
        """Let a suspended job go on."""
        return self._note(name, jobs.c.suspended_by != "", suspended_by="")

    def request_requeue(self, name: JobName, attempt: int, actor: str) -> JobRecord:
        """Note that an attempt shall stop; the first user that asks is remembered."""
        return self._note(name, jobs.c.requeue_attempt < attempt, requeue_attempt=attempt, requeued_by=actor)

    def retry(self, epoch: Epoch, name: JobName, failure: Failure) -> None:
        """Record how an attempt failed; the first record of an attempt stays."""
        with self._database.writing(epoch) as connection:
            self._read(connection, name)
            same = (failures.c.job == name) & (failures.c.attempt == failure.attempt)
            same &= failures.c.outlived == failure.outlived
            if connection.execute(select(failures.c.job).where(same)).first() is None:
                values = {"attempt": failure.attempt, "outlived": failure.outlived, "failure": encode(failure).decode()}
                connection.execute(insert(failures).values(job=name, **values))

    def finish(self, epoch: Epoch, name: JobName, outcome: JobOutcome) -> None:
        """Record how a job ended; the first outcome stays."""
        self.finish_all(epoch, {name: outcome})

    def finish_all(self, epoch: Epoch, ended: Mapping[JobName, JobOutcome]) -> None:
        """Record how jobs ended, in a few statements."""
        if not ended:
            return
        with self._database.writing(epoch) as connection:
            known: set[str] = set()
            for some in pieces(ended):
                known |= set(connection.execute(select(jobs.c.name).where(jobs.c.name.in_(some))).scalars())
            for unknown in sorted(set(ended) - known):
                raise UnknownJobError(f"there is no job {unknown}")
            rows = [
                {"of": name, "at": outcome.at, "as": outcome.state, "how": encode(outcome).decode()}
                for name, outcome in ended.items()
            ]
            live = (jobs.c.name == bindparam("of")) & jobs.c.ended_at.is_(None)
            end = update(jobs).where(live)
            end = end.values(ended_at=bindparam("at"), ended_as=bindparam("as"), outcome=bindparam("how"))
            connection.execute(end, rows)
            for some in pieces(ended):
                connection.execute(delete(nominations).where(nominations.c.job.in_(some)))
                connection.execute(delete(reservations).where(reservations.c.holder.in_(some)))

    def _group(self, connection: Connection, name: JobName) -> GroupRecord:
        row = connection.execute(select(groups).where(groups.c.name == name)).one_or_none()
        if row is None:
            raise UnknownJobError(f"there is no array or pipeline {name}")
        return _group_of(row)

    def _read(self, connection: Connection, name: JobName) -> JobRecord:
        row = connection.execute(select(jobs).where(jobs.c.name == name)).one_or_none()
        if row is None:
            raise UnknownJobError(f"there is no job {name}")
        return self._records(connection, [row])[0]

    def _note(self, name: JobName, unless_done: ColumnElement[bool], **what: str | int) -> JobRecord:
        """Note something that was asked of a live job, where it was not before."""
        with self._database.writing() as connection:
            live = (jobs.c.name == name) & jobs.c.ended_at.is_(None)
            connection.execute(update(jobs).where(live & unless_done).values(**what))
            return self._read(connection, name)

    def _named(self, connection: Connection, names: Collection[str]) -> Iterator[JobRecord]:
        for some in pieces(names):
            yield from self._records(connection, connection.execute(select(jobs).where(jobs.c.name.in_(some))).all())

    def _live_records(self, connection: Connection, names: Collection[str]) -> dict[str, JobRecord]:
        """Those of these names. Of many all live ones are read: a database takes only so many parameters."""
        if len(names) <= NAMES_MAX:
            return {record.name: record for record in self._named(connection, names)}
        rows = connection.execute(select(*_OF_A_RECORD).where(_LIVE)).all()
        # Those of jobs that have ended are many more, in time.
        failed = self._failures(connection, select(jobs.c.name).where(_LIVE))
        return {row.name: self._record(row, failed.get(row.name, ())) for row in rows if row.name in names}

    def _records(self, connection: Connection, rows: Sequence[Row[tuple[object, ...]]]) -> tuple[JobRecord, ...]:
        failed: dict[str, tuple[Failure, ...]] = {}
        for some in pieces([row.name for row in rows]):
            failed |= self._failures(connection, some)
        return tuple(self._record(row, failed.get(row.name, ())) for row in rows)

    def _failures(
        self, connection: Connection, of: Sequence[str] | Select[tuple[str]]
    ) -> dict[str, tuple[Failure, ...]]:
        """The failures of some jobs, in the order of their attempts."""
        query = select(failures).where(failures.c.job.in_(of))
        in_order = query.order_by(failures.c.job, failures.c.attempt, failures.c.outlived == 0, failures.c.outlived)
        found: defaultdict[str, tuple[Failure, ...]] = defaultdict(tuple)
        for row in connection.execute(in_order):
            found[row.job] += (self._database.read_document(row.failure, Failure),)
        return found

    def _record(self, row: Row[tuple[object, ...]], failed: tuple[Failure, ...]) -> JobRecord:
        return JobRecord(
            name=JobName(row.name),
            spec=self._specs.read(row.spec),
            user=row.user,
            submitted_at=Instant(row.submitted_at),
            cancel_requested_by=row.cancel_requested_by,
            outcome=self._database.read_document(row.outcome, JobOutcome) if row.outcome is not None else None,
            suspended_by=row.suspended_by,
            requeue_attempt=row.requeue_attempt,
            requeued_by=row.requeued_by,
            failures=failed,
            array=self._database.read_document(row.array, ArrayElement) if row.array is not None else None,
            pipeline=row.pipeline or "",
        )


_LIVE: Final = jobs.c.ended_at.is_(None)

# What each pass reads is stated once (store/ledger).
_FAILED: Final = (
    select(failures.c.job, func.count()).join(jobs, failures.c.job == jobs.c.name).where(_LIVE).group_by(failures.c.job)
)
_ASKED: Final = (
    select(jobs.c.name, jobs.c.cancel_requested_by, jobs.c.suspended_by, jobs.c.requeue_attempt, jobs.c.requeued_by)
    .where(_LIVE)
    .order_by(jobs.c.name)
)
_OF_A_RECORD: Final[tuple[ColumnElement[Any], ...]] = (
    *(jobs.c.name, jobs.c.spec, jobs.c.user, jobs.c.submitted_at, jobs.c.cancel_requested_by, jobs.c.outcome),
    *(jobs.c.suspended_by, jobs.c.requeue_attempt, jobs.c.requeued_by, jobs.c.array, jobs.c.pipeline),
)
"""What is read of 30,000 jobs at once."""


_ORDERS: Final[Mapping[JobOrder, tuple[ColumnElement[Any], ...]]] = {
    "newest": (jobs.c.number.desc(),),
    "waiting": (jobs.c.number,),
    "biggest": (jobs.c.gpus.desc(), jobs.c.number.desc()),
}


def _behind(number: int, gpus: int, order: JobOrder) -> ColumnElement[bool]:
    """Which jobs follow one in an order."""
    is_behind: ColumnElement[bool]
    match order:
        case "newest":
            is_behind = jobs.c.number < number
        case "waiting":
            is_behind = jobs.c.number > number
        case "biggest":
            is_behind = tuple_(jobs.c.gpus, jobs.c.number) < tuple_(gpus, number)
    return is_behind


def _live_stamps(connection: Connection) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Of each live job, by name, what may change of it: how many failures it has had, and what was asked of it."""
    counts = {row.job: row[1] for row in connection.execute(_FAILED)}
    rows = connection.execute(_ASKED).all()
    return ((name, (*asked_of_it, counts.get(name, 0))) for name, *asked_of_it in rows)


def _so_called(table: Table, *names: str) -> ColumnElement[bool]:
    """Rows of all that has one of these names, or had it."""
    return table.c.name.in_(names) | table.c.called.in_(names)


def _of_keys(connection: Connection, asked: Iterable[tuple[JobName, str]]) -> dict[tuple[JobName, str], JobName]:
    """The job that each submission, made before, has become, by name and key: also where others were called so since."""
    keys = defaultdict[str, set[JobName]](set)
    for name, key in asked:
        if key:
            keys[key].add(name)
    found: dict[tuple[JobName, str], JobName] = {}
    columns = jobs.c.name, jobs.c.idempotency_key
    for some in pieces(keys):
        names = set[JobName]().union(*(keys[key] for key in some))
        wanted = select(*columns).where(_so_called(jobs, *sorted(names)), jobs.c.idempotency_key.in_(some))
        for name, key in connection.execute(wanted.order_by(jobs.c.number)):
            found[called(JobName(name)), key] = JobName(name)
    return found


def _accepted(
    asked: Submission, holder: NameHolder | None, new: dict[JobName, Submission]
) -> AcceptedJob | DuplicateJobError:
    """A new job, which is added to `new` by what it is called; refused while what is called so has not ended."""
    name, before = asked.name, new.get(asked.name)
    if before is not None and asked.idempotency_key and before.idempotency_key == asked.idempotency_key:
        return AcceptedJob(JobRecord(before.name, before.spec, before.user, before.at), is_new=False)
    refusal = holder.refusal if holder else ""
    if before is not None or refusal:
        return DuplicateJobError(refusal or f"a job {name} exists already, and has not ended")
    new[name] = asked._replace(name=numbered(name, number_of(holder.id) + 1 if holder else 1))
    job = new[name]
    return AcceptedJob(JobRecord(job.name, job.spec, job.user, job.at), is_new=True)


def _conditions(query: JobQuery) -> Iterator[ColumnElement[bool]]:
    if query.queues is not None:
        # Which queue a job of the release before is of, its spec alone says.
        yield jobs.c.queue.in_(sorted(query.queues)) | jobs.c.queue.is_(None)
    if query.user:
        yield jobs.c.user == query.user
    if query.called:
        yield _so_called(jobs, query.called)
    if query.group:
        yield (jobs.c.array_id == query.group) | (jobs.c.pipeline == query.group)
    if query.prefix:
        # By code point, as names are sorted: LIKE would take letters of both cases for one another.
        yield jobs.c.name >= query.prefix
        yield jobs.c.name <= query.prefix + chr(sys.maxunicode)
    live_only = query.ended is not None and query.live and not query.ended
    if live_only or query.order == "waiting":
        # Bare: databases find a way by an index for it, and none for an alternative.
        yield _LIVE
    elif query.ended is not None:
        ended = jobs.c.ended_as.in_(sorted(query.ended))
        yield ended | jobs.c.ended_at.is_(None) if query.live else ended
    elif not query.live:
        yield jobs.c.ended_at.is_not(None)
    if query.seen_in is not None:
        seen = jobs.c.queue.in_(sorted(query.seen_in)) | jobs.c.queue.is_(None)
        yield seen | (jobs.c.user == query.seen_by) if query.seen_by else seen
    yield from _wishes(query)


def _wishes(query: JobQuery) -> Iterator[ColumnElement[bool]]:
    """What pages narrow lists down by."""
    if query.holds is not None or query.order == "waiting":
        held = select(claims.c.job).where(claims.c.job == jobs.c.name).exists()
        yield held if query.holds and query.order != "waiting" else ~held
    if query.since is not None:
        yield jobs.c.ended_at.is_(None) | (jobs.c.ended_at > query.since)
    if query.to is not None:
        yield jobs.c.submitted_at < query.to
    if query.text:
        yield func.lower(jobs.c.name).contains(query.text.lower(), autoescape=True)
    if query.classes is not None:
        yield jobs.c.priority_class.in_(sorted(query.classes)) | jobs.c.priority_class.is_(None)
    if query.gpu_type:
        named, any_type = (jobs.c.gpu_types.contains(f" {each} ", autoescape=True) for each in (query.gpu_type, "*"))
        yield named | any_type | jobs.c.gpu_types.is_(None)


def columns_of(spec: JobSpec) -> dict[str, object]:
    """A spec, and what of it jobs are found and sorted by."""
    with_gpus = [group.shape.gpu_types for group in spec.task_groups if group.shape.cost]
    types = sorted({gpu_type for named in with_gpus for gpu_type in named or ("*",)})
    return {
        "queue": spec.queue,
        "priority_class": spec.priority_class,
        "gpu_types": "".join(f" {gpu_type} " for gpu_type in types),
        "gpus": int(spec.gpus),
        "spec": encode(spec).decode(),
    }


def _row_of(asked: Submission) -> dict[str, object]:
    return {
        **_names_of(asked.name),
        **columns_of(asked.spec),
        "user": asked.user,
        "submitted_at": asked.at,
        "idempotency_key": asked.idempotency_key,
    }


def _names_of(job: JobName) -> dict[str, str | None]:
    """The id, and what it is called where that is another."""
    return {"name": job, "called": None if called(job) == job else called(job)}


def _group_of_key(connection: Connection, name: JobName, key: str) -> GroupRecord | None:
    """What a submission of an array or a pipeline, made before, has become; also where others were called so since."""
    same = select(groups).where(_so_called(groups, name), groups.c.idempotency_key == key)
    row = connection.execute(same.order_by(groups.c.number.desc()).limit(1)).one_or_none()
    return None if row is None else _group_of(row)


def _group_of(row: Row[Any]) -> GroupRecord:
    """A group from its row."""
    return GroupRecord(JobName(row.name), row.kind, row.user, Instant(row.submitted_at), row.pipeline or "")


def _part_of(group: GroupRecord) -> ColumnElement[bool]:
    """Which jobs belong to a group."""
    return (jobs.c.array_id if group.kind == "array" else jobs.c.pipeline) == group.name


def _has_other(connection: Connection, group: GroupRecord, queues: Collection[QueueName]) -> bool:
    """A job of it is known to be in another queue than these: of those of the release before the database can't tell."""
    other = select(jobs.c.name).where(_part_of(group), jobs.c.queue.not_in(sorted(queues)))
    return connection.execute(other.limit(1)).first() is not None


def _insert_batch(connection: Connection, batch: Batch, user: str, at: Instant, idempotency_key: str) -> None:
    """Write every group and job."""
    common = {"user": user, "submitted_at": at, "idempotency_key": idempotency_key}
    connection.execute(
        insert(groups),
        [
            {**_names_of(each.name), "kind": each.kind, "pipeline": each.pipeline or None, **common}
            for each in batch.groups
        ],
    )
    connection.execute(insert(jobs), [{**_columns(job), **common} for job in batch.jobs])


def _tallied(connection: Connection, names: Collection[JobName]) -> dict[JobName, Tally]:
    """How the jobs stand that are named, or belong to a group that is."""
    counts: dict[JobName, dict[str, int]] = {}
    for some in pieces(names):
        for column in (jobs.c.name, jobs.c.array_id, jobs.c.pipeline):
            asked = select(column, jobs.c.ended_as, func.count()).where(column.in_(some))
            for name, ended_as, number in connection.execute(asked.group_by(column, jobs.c.ended_as)):
                counts.setdefault(JobName(name), {})[ended_as or "live"] = number
    return {name: Tally(**each) for name, each in counts.items()}


def _columns(job: NewJob) -> dict[str, object]:
    return {
        **_names_of(job.name),
        **columns_of(job.spec),
        "array": None if job.array is None else encode(job.array).decode(),
        "array_id": None if job.array is None else job.array.id,
        "pipeline": job.pipeline or None,
    }
