"""What people do by hand, in SQL."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Row, Select, and_, insert, select, update

from reconciler.model.intervention_record import Ending, Intervention, InterventionKind, Subject
from reconciler.protocols.backend import Epoch
from reconciler.store.database import Database
from reconciler.store.tables import interventions
from solver.model.quantities import Instant

_IN_FORCE = interventions.c.ended_at.is_(None)


class SqlInterventions:
    """Implements Interventions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, asked: Intervention) -> Intervention:
        """Keep it under the next number, unless it is there."""
        with self._database.writing() as connection:
            same = _about(asked.kind, asked.subject)
            there = connection.execute(select(interventions).where(same)).one_or_none()
            if there is not None:
                found = _read(there)
                if found.is_repeated_by(asked):
                    return found
            ended = {"ended_at": asked.at, "ended_as": "replaced", "ended_by": asked.author}
            connection.execute(update(interventions).where(same).values(ended))
            added = connection.execute(insert(interventions).values(_row(asked)))
            number = int(added.inserted_primary_key[0]) if added.inserted_primary_key else 0
        return msgspec.structs.replace(asked, number=number)

    def release(self, kind: InterventionKind, subject: Subject, at: Instant, by: str) -> Intervention | None:
        """What is in force of it ends."""
        with self._database.writing() as connection:
            there = connection.execute(select(interventions).where(_about(kind, subject))).one_or_none()
            if there is None:
                return None
            ended = {"ended_at": at, "ended_as": "released", "ended_by": by}
            connection.execute(update(interventions).where(interventions.c.number == there.number).values(ended))
        return msgspec.structs.replace(_read(there), ended_at=at, ended_as="released", ended_by=by)

    def end(self, epoch: Epoch, number: int, at: Instant, ending: Ending, by: str) -> bool:
        """One is over; whether it was not before."""
        ended = {"ended_at": at, "ended_as": ending, "ended_by": by}
        with self._database.writing(epoch) as connection:
            named = interventions.c.number == number, _IN_FORCE
            return connection.execute(update(interventions).where(*named).values(ended)).rowcount > 0

    def in_force(self) -> tuple[Intervention, ...]:
        """All that have not ended, the oldest first."""
        return self._all(select(interventions).where(_IN_FORCE).order_by(interventions.c.number))

    def newest(self, limit: int = 100, before: int | None = None) -> tuple[Intervention, ...]:
        """The newest, newest first."""
        wanted = select(interventions).order_by(interventions.c.number.desc()).limit(limit)
        return self._all(wanted if before is None else wanted.where(interventions.c.number < before))

    def _all(self, wanted: Select[Any]) -> tuple[Intervention, ...]:
        with self._database.reading() as connection:
            return tuple(map(_read, connection.execute(wanted).all()))


def _about(kind: InterventionKind, subject: Subject) -> ColumnElement[bool]:
    named = interventions.c.subject_kind == subject.kind, interventions.c.subject == subject.name
    return and_(_IN_FORCE, interventions.c.kind == kind, *named)


def _row(asked: Intervention) -> dict[str, object]:
    row = msgspec.structs.asdict(asked) | {"subject": asked.subject.name, "subject_kind": asked.subject.kind}
    del row["number"]
    return row


def _read(row: Row[Any]) -> Intervention:
    columns = row._asdict()
    subject = Subject(columns.pop("subject_kind"), columns.pop("subject"))
    ended_at = None if row.ended_at is None else Instant(row.ended_at)
    times = {"at": Instant(row.at), "until": Instant(row.until), "ended_at": ended_at}
    return Intervention(**columns | times | {"subject": subject})
