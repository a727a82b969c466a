"""Which checkpoints there are, in SQL."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, and_, func, insert, select, update

from reconciler.model.checkpoint_findings import AnyFinding
from reconciler.model.checkpoint_record import CheckpointKey, CheckpointRecord
from reconciler.protocols.backend import Epoch
from reconciler.protocols.checkpoints import CheckpointGoneError
from reconciler.store.database import Database
from reconciler.store.rows import pieces
from reconciler.store.tables import checkpoints
from solver.model.document import encode
from solver.model.quantities import Instant, Memory
from solver.model.workload import JobName


class SqlCheckpoints:
    """Implements CheckpointRegistry."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, epoch: Epoch, checkpoint: CheckpointRecord) -> None:
        """Keep a new one."""
        row = msgspec.structs.asdict(checkpoint) | {"findings": encode(checkpoint.findings).decode()}
        with self._database.writing(epoch) as connection:
            if _state(connection, checkpoint.key) is None:
                connection.execute(insert(checkpoints).values(row))

    def judge(self, epoch: Epoch, key: CheckpointKey, findings: tuple[AnyFinding, ...]) -> None:
        """What reading it has shown."""
        judged = {"state": "corrupt" if findings else "verified", "findings": encode(findings).decode()}
        open_to_it = checkpoints.c.state.in_(("published", "verified"))
        with self._database.writing(epoch) as connection:
            connection.execute(update(checkpoints).where(_named(key), open_to_it).values(judged))

    def doubt(self, epoch: Epoch, job: JobName) -> None:
        """What was verified is published again, and no more."""
        verified = (checkpoints.c.job == job) & (checkpoints.c.state == "verified")
        with self._database.writing(epoch) as connection:
            connection.execute(update(checkpoints).where(verified).values(state="published"))

    def resume(self, epoch: Epoch, key: CheckpointKey, attempt: int) -> None:
        """An attempt begins from it."""
        with self._database.writing(epoch) as connection:
            if _state(connection, key) in (None, "deleted"):
                raise CheckpointGoneError(f"{key.job} has no checkpoint of step {key.step} any more")
            connection.execute(update(checkpoints).where(_named(key)).values(resumed_by=attempt))

    def delete(self, epoch: Epoch, key: CheckpointKey) -> None:
        """It goes; its row stays."""
        with self._database.writing(epoch) as connection:
            connection.execute(update(checkpoints).where(_named(key)).values(state="deleted"))

    def of(self, job: JobName) -> tuple[CheckpointRecord, ...]:
        """Every one of a job, newest first."""
        newest_first = checkpoints.c.attempt.desc(), checkpoints.c.step.desc()
        with self._database.reading() as connection:
            rows = connection.execute(select(checkpoints).where(checkpoints.c.job == job).order_by(*newest_first)).all()
        return tuple(self._read(row) for row in rows)

    def saved(self) -> dict[tuple[JobName, int], Instant]:
        """The newest of each attempt."""
        named = checkpoints.c.job, checkpoints.c.attempt
        good = checkpoints.c.state.in_(("published", "verified"))
        query = select(*named, func.max(checkpoints.c.at).label("at")).where(good).group_by(*named)
        with self._database.reading() as connection:
            return {(JobName(row.job), row.attempt): Instant(row.at) for row in connection.execute(query)}

    def unjudged(
        self, storages: Collection[str], waiting: Collection[JobName] = (), limit: int = 100
    ) -> tuple[CheckpointRecord, ...]:
        """Those to be read again."""
        unread = and_(checkpoints.c.state == "published", checkpoints.c.storage.in_(sorted(storages)))
        oldest_first = checkpoints.c.at, checkpoints.c.job, checkpoints.c.attempt, checkpoints.c.step
        newest_first = checkpoints.c.job, checkpoints.c.attempt.desc(), checkpoints.c.step.desc()
        urgent: list[CheckpointRecord] = []
        with self._database.reading() as connection:
            for some in pieces(waiting):
                of_some = select(checkpoints).where(unread, checkpoints.c.job.in_(some)).order_by(*newest_first)
                urgent += map(self._read, connection.execute(of_some.limit(limit)))
            rows = connection.execute(select(checkpoints).where(unread).order_by(*oldest_first).limit(limit)).all()
        return tuple(dict.fromkeys((*urgent[:limit], *(self._read(row) for row in rows))))[:limit]

    def holders(self) -> tuple[JobName, ...]:
        """Jobs that have one."""
        query = select(checkpoints.c.job).where(checkpoints.c.state != "deleted").distinct()
        with self._database.reading() as connection:
            return tuple(sorted(JobName(job) for job in connection.execute(query).scalars()))

    def _read(self, row: Row[Any]) -> CheckpointRecord:
        columns = row._asdict()
        columns["findings"] = self._database.read_document(row.findings, tuple[AnyFinding, ...])
        return CheckpointRecord(**columns | {"size": Memory(row.size), "at": Instant(row.at)})


def _named(key: CheckpointKey) -> ColumnElement[bool]:
    return and_(checkpoints.c.job == key.job, checkpoints.c.attempt == key.attempt, checkpoints.c.step == key.step)


def _state(connection: Connection, key: CheckpointKey) -> str | None:
    found: str | None = connection.execute(select(checkpoints.c.state).where(_named(key))).scalar()
    return found
