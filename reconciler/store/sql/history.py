"""What happened, in SQL: rounds kept whole and compressed, events one row each."""

from __future__ import annotations

import zlib

import msgspec
from sqlalchemy import insert, select

from reconciler.backend import Epoch
from reconciler.store.protocols import Event, RoundRecord, RoundSummary, summarise
from reconciler.store.sql.database import Database
from reconciler.store.sql.tables import events, rounds
from solver.world.document import encode
from solver.world.quantities import Instant


class SqlHistory:
    """Implements History."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record_round(self, epoch: Epoch, record: RoundRecord) -> int:
        """Keep a round under the next number."""
        summary = msgspec.structs.asdict(summarise(record))
        del summary["number"]
        with self._database.writing(epoch) as connection:
            added = connection.execute(insert(rounds).values(record=zlib.compress(encode(record)), **summary))
            return int(added.inserted_primary_key[0]) if added.inserted_primary_key else 0

    def round(self, number: int) -> RoundRecord:
        """One round, whole."""
        with self._database.reading() as connection:
            stored = connection.execute(select(rounds.c.record).where(rounds.c.number == number)).scalar_one_or_none()
        if stored is None:
            raise KeyError(f"there is no round {number}")
        return msgspec.structs.replace(self._database.read_document(stored, RoundRecord), number=number)

    def rounds(self, limit: int = 20) -> tuple[RoundSummary, ...]:
        """The newest rounds, newest first."""
        columns = [rounds.c[name] for name in RoundSummary.__struct_fields__]
        with self._database.reading() as connection:
            rows = connection.execute(select(*columns).order_by(rounds.c.number.desc()).limit(limit)).all()
        return tuple(RoundSummary(**{**row._asdict(), "time": Instant(row.time)}) for row in rows)

    def record_event(self, event: Event) -> None:
        """Append an event."""
        with self._database.writing() as connection:
            connection.execute(insert(events).values(**msgspec.structs.asdict(event)))

    def events(self, subject: str, limit: int = 100) -> tuple[Event, ...]:
        """The newest events of a subject, oldest first."""
        newest = select(events).where(events.c.subject == subject).order_by(events.c.number.desc()).limit(limit)
        with self._database.reading() as connection:
            rows = connection.execute(newest).all()
        return tuple(
            Event(Instant(row.time), row.kind, row.subject, row.cause, row.actor, row.state) for row in reversed(rows)
        )
