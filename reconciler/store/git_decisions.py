"""What people decide about following Git, in SQL."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, delete, insert, select, update

from reconciler.model.envelope import AcceptedPlan, Envelope
from reconciler.model.git_record import Approval, Suspension
from reconciler.protocols.backend import Epoch
from reconciler.store.database import Database
from reconciler.store.rows import keep_document, kept_document
from reconciler.store.tables import accepted_plans, approvals, suspensions
from solver.model.document import encode
from solver.model.quantities import Instant

_IN_FORCE: Final = "policy-in-force"


class SqlFollowing:
    """Implements FollowingDecisions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def approve(self, asked: Approval) -> Approval:
        """Keep it under the next number, unless it is there."""
        with self._database.writing() as connection:
            there = _unused(connection, asked.commit, asked.reason, asked.in_place_of)
            if there is not None:
                return there
            number = _inserted(connection, approvals, asked)
        return msgspec.structs.replace(asked, number=number)

    def approval(self, commit: str, reason: str, in_place_of: str) -> Approval | None:
        """The one of just that, if it is not used."""
        with self._database.reading() as connection:
            return _unused(connection, commit, reason, in_place_of)

    def use(self, commit: str, at: Instant) -> None:
        """Every approval of the commit is used."""
        unused = approvals.c.commit == commit, approvals.c.used_at.is_(None)
        with self._database.writing() as connection:
            connection.execute(update(approvals).where(*unused).values(used_at=at))

    def put_in_force(self, epoch: Epoch, revision: str) -> None:
        """In place of the one before."""
        with self._database.writing(epoch) as connection:
            keep_document(connection, _IN_FORCE, revision)

    def in_force(self) -> str:
        """As the leader said last."""
        with self._database.reading() as connection:
            return kept_document(connection, _IN_FORCE) or ""

    def suspend(self, asked: Suspension) -> Suspension:
        """Keep it under the next number, unless it is there."""
        with self._database.writing() as connection:
            there = _suspension(connection, asked.at)
            if there is not None and (there.author, there.why, there.until) == (asked.author, asked.why, asked.until):
                return there
            _end(connection, asked.at, asked.author)
            number = _inserted(connection, suspensions, asked)
        return msgspec.structs.replace(asked, number=number)

    def resume(self, at: Instant, by: str) -> Suspension | None:
        """What is in force of it ends."""
        with self._database.writing() as connection:
            there = _suspension(connection, at)
            if there is None:
                return None
            _end(connection, at, by)
        return msgspec.structs.replace(there, ended_at=at, ended_by=by)

    def suspension(self, now: Instant) -> Suspension | None:
        """The one that is in force."""
        with self._database.reading() as connection:
            return _suspension(connection, now)

    def approvals(self, limit: int = 100) -> tuple[Approval, ...]:
        """The newest, newest first."""
        newest = select(approvals).order_by(approvals.c.number.desc()).limit(limit)
        with self._database.reading() as connection:
            return tuple(map(_approval, connection.execute(newest)))


def _unused(connection: Connection, commit: str, reason: str, in_place_of: str) -> Approval | None:
    named = approvals.c.commit == commit, approvals.c.reason == reason, approvals.c.in_place_of == in_place_of
    row = connection.execute(select(approvals).where(*named, approvals.c.used_at.is_(None))).one_or_none()
    return None if row is None else _approval(row)


def _suspension(connection: Connection, now: Instant) -> Suspension | None:
    row = connection.execute(select(suspensions).where(suspensions.c.ended_at.is_(None))).one_or_none()
    found = None if row is None else _suspended(row)
    return found if found is not None and found.holds(now) else None


def _end(connection: Connection, at: Instant, by: str) -> None:
    ended = {"ended_at": at, "ended_by": by}
    connection.execute(update(suspensions).where(suspensions.c.ended_at.is_(None)).values(ended))


def _inserted(connection: Connection, table: Any, asked: Approval | Suspension) -> int:
    row = msgspec.structs.asdict(asked)
    del row["number"]
    added = connection.execute(insert(table).values(row))
    return int(added.inserted_primary_key[0]) if added.inserted_primary_key else 0


def _approval(row: Row[Any]) -> Approval:
    return Approval(**row._asdict() | {"at": Instant(row.at), "used_at": _instant(row.used_at)})


def _suspended(row: Row[Any]) -> Suspension:
    times = {"at": Instant(row.at), "until": _instant(row.until), "ended_at": _instant(row.ended_at)}
    return Suspension(**row._asdict() | times)


def _instant(stored: int | None) -> Instant | None:
    return None if stored is None else Instant(stored)


class SqlAcceptedPlans:
    """Implements AcceptedPlans."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def accept(self, plan: AcceptedPlan) -> None:
        """The newest replaces what there was."""
        meaning, kept = plan.envelope.meaning, encode(plan.envelope).decode()
        row = {"meaning": meaning, "envelope": kept, "author": plan.author, "why": plan.why, "at": plan.at}
        with self._database.writing() as connection:
            connection.execute(delete(accepted_plans).where(accepted_plans.c.meaning == meaning))
            connection.execute(insert(accepted_plans).values(row))

    def use(self, meaning: str) -> None:
        """Forgotten."""
        with self._database.writing() as connection:
            connection.execute(delete(accepted_plans).where(accepted_plans.c.meaning == meaning))

    def accepted(self, meaning: str) -> AcceptedPlan | None:
        """None: none was accepted."""
        with self._database.reading() as connection:
            row = connection.execute(select(accepted_plans).where(accepted_plans.c.meaning == meaning)).one_or_none()
        if row is None:
            return None
        envelope = self._database.read_document(row.envelope, Envelope)
        return AcceptedPlan(envelope, row.author, row.why, Instant(row.at))
