"""What happened, in SQL: rounds packed one against the other, events one row each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Row, Select, delete, func, insert, select, update

from reconciler.protocols.backend import Epoch
from reconciler.protocols.history import Event, EventQuery, KeptEvent
from reconciler.protocols.rounds import NarrowRecord, RoundRecord, RoundSummary
from reconciler.store.audit import EVENT_COLUMNS, ROUND_COLUMNS, AuditChain, Recorded, content_of_row
from reconciler.store.database import Database
from reconciler.store.round_records import BadPackingError, Keyframe, pack, unpack
from reconciler.store.tables import events, rounds
from solver.model.document import encode
from solver.model.quantities import Instant

_FIELDS = Event.__struct_fields__

Record = TypeVar("Record", RoundRecord, NarrowRecord)


_NEWEST_EVENT = select(func.max(events.c.number))

_KEYFRAME = func.coalesce(func.nullif(rounds.c.keyframe, 0), rounds.c.number)
"""The round that has to be there for one to be read: its keyframe, or itself."""


def _columns(record: RoundRecord | NarrowRecord) -> dict[str, Any]:
    """What its line says."""
    summary = msgspec.structs.asdict(record.summary)
    del summary["number"]
    return summary


def _inserted(connection: Connection, rows: list[dict[str, Any]]) -> Sequence[int]:
    """Keep events; returns their numbers."""
    if len(rows) == 1:
        added = connection.execute(insert(events).values(rows[0]))
        return [int(added.inserted_primary_key[0]) if added.inserted_primary_key else 0]
    before = connection.execute(_NEWEST_EVENT).scalar_one() or 0
    connection.execute(insert(events), rows)
    # They were numbered in this order, and no other was written meanwhile.
    following = select(events.c.number).where(events.c.number > before).order_by(events.c.number)
    return connection.execute(following).scalars().all()


class SqlHistory:
    """Implements History. `audit`: the chain that what is written is linked into; None: into none."""

    def __init__(self, database: Database, audit: AuditChain | None = None) -> None:
        self._database = database
        self._audit = audit
        self._keyframe: Keyframe | None = None

    def record_round(self, epoch: Epoch, record: RoundRecord) -> int:
        """Keep a round under the next number."""
        stored, of, text = self._packed(epoch, record)
        with self._database.writing(epoch) as connection:
            number = self._insert(connection, {"record": stored, "keyframe": of, **_columns(record)})
        if of and self._keyframe:
            self._keyframe.patches += 1
        elif record.is_whole:
            self._keyframe = Keyframe(epoch, number, text, len(stored))
        return number

    def conclude_round(self, epoch: Epoch, record: RoundRecord) -> None:
        """Replace what is kept of a round. No other is packed against one that was only begun."""
        stored, of, text = self._packed(epoch, record)
        with self._database.writing(epoch) as connection:
            values = {"record": stored, "keyframe": of, **_columns(record)}
            changed = update(rounds).where(rounds.c.number == record.number)
            if not connection.execute(changed.values(values)).rowcount:
                raise KeyError(f"there is no round {record.number}")
            self._link(connection, record.number, values)
        if not of:
            self._keyframe = Keyframe(epoch, record.number, text, len(stored))

    def record_narrow(self, epoch: Epoch, record: NarrowRecord) -> int:
        """Packed by itself. It goes with what its base needs to be read."""
        with self._database.writing(epoch) as connection:
            found = connection.execute(select(_KEYFRAME).where(rounds.c.number == record.base)).scalar_one_or_none()
            if found is None:
                raise KeyError(f"there is no round {record.base}")
            values = {"record": pack(encode(record)), "keyframe": found, "base": record.base, **_columns(record)}
            return self._insert(connection, values)

    def _insert(self, connection: Connection, values: dict[str, Any]) -> int:
        added = connection.execute(insert(rounds).values(values))
        number = int(added.inserted_primary_key[0]) if added.inserted_primary_key else 0
        self._link(connection, number, values)
        return number

    def _link(self, connection: Connection, number: int, values: dict[str, Any]) -> None:
        if self._audit is not None:
            content = content_of_row([values.get(name) for name in ROUND_COLUMNS])
            self._audit.append(connection, "rounds", (Recorded(number, values["time"], content),))

    def _packed(self, epoch: Epoch, record: RoundRecord) -> tuple[bytes, int, bytes]:
        """How it is stored, the round that it is packed against (0: none), and its text."""
        text, keyframe = encode(record), self._keyframe
        patch = keyframe.patch(text) if keyframe and keyframe.epoch == epoch else None
        return (patch, keyframe.number, text) if patch and keyframe else (pack(text), 0, text)

    def round(self, number: int) -> RoundRecord:
        """One round."""
        with self._database.reading() as connection:
            base = connection.execute(select(rounds.c.base).where(rounds.c.number == number)).scalar_one_or_none()
            of_base = (rounds.c.base == base) & (rounds.c.number <= number)
            alone = select(rounds.c.number, rounds.c.record).where(of_base).order_by(rounds.c.number)
            narrow = connection.execute(alone).all() if base else ()
            row = self._row(connection, base or number)
            of = select(rounds.c.record).where(rounds.c.number == row.keyframe)
            keyframe = connection.execute(of).scalar_one_or_none() if row.keyframe else None
        record = self._read(RoundRecord, row.record, keyframe)
        alone_records = (
            msgspec.structs.replace(self._read(NarrowRecord, one.record), number=one.number) for one in narrow
        )
        return msgspec.structs.replace(record, number=number, narrow=tuple(alone_records))

    @staticmethod
    def _row(connection: Connection, number: int) -> Row[bytes, int]:
        found = connection.execute(select(rounds.c.record, rounds.c.keyframe).where(rounds.c.number == number))
        if (row := found.one_or_none()) is None:
            raise KeyError(f"there is no round {number}")
        return row

    def _read(self, kind: type[Record], stored: bytes, keyframe: bytes | None = None) -> Record:
        try:
            text = unpack(stored, unpack(keyframe) if keyframe else b"")
        except BadPackingError as error:
            raise self._database.unreadable(kind, error) from error
        return self._database.read_document(text, kind)

    def rounds(self, limit: int = 20, before: int | None = None) -> tuple[RoundSummary, ...]:
        """The newest rounds, newest first."""
        columns = [rounds.c[name] for name in RoundSummary.__struct_fields__]
        wanted = select(*columns).order_by(rounds.c.number.desc()).limit(limit)
        with self._database.reading() as connection:
            rows = connection.execute(wanted if before is None else wanted.where(rounds.c.number < before)).all()
        return tuple(RoundSummary(**{**row._asdict(), "time": Instant(row.time)}) for row in rows)

    def prune_rounds(self, epoch: Epoch, before: Instant, limit: int = 500) -> int:
        """The oldest go first, so that what a crash leaves is a history without gaps. No keyframe goes before what follows it."""
        newest = select(func.max(rounds.c.number)).scalar_subquery()
        kept = (
            select(func.min(_KEYFRAME)).where((rounds.c.time >= before) | (rounds.c.number == newest)).scalar_subquery()
        )
        chosen = select(rounds.c.number).where(rounds.c.number < kept).order_by(rounds.c.number).limit(limit)
        with self._database.writing(epoch) as connection:
            old = connection.execute(select(func.max(chosen.subquery().c.number))).scalar_one()
            # Rounds that follow a keyframe go with it.
            gone = connection.execute(delete(rounds).where(_KEYFRAME.between(1, old or 0))).rowcount
            if gone and self._audit is not None:
                self._audit.prune_rounds(connection)
            return gone

    def record_event(self, event: Event) -> None:
        """Append an event."""
        self.record_events((event,))

    def record_events(self, told: Iterable[Event]) -> None:
        """One row for each."""
        rows = [msgspec.structs.asdict(event) for event in told]
        if not rows:
            return
        with self._database.writing() as connection:
            if self._audit is None:
                connection.execute(insert(events), rows)
                return
            numbers = _inserted(connection, rows)
            contents = (content_of_row([row[name] for name in EVENT_COLUMNS]) for row in rows)
            linked = (Recorded(*each) for each in zip(numbers, (row["time"] for row in rows), contents, strict=True))
            self._audit.append(connection, "events", tuple(linked))

    def events(self, subject: str, limit: int = 100) -> tuple[Event, ...]:
        """The newest events of a subject, oldest first."""
        return tuple(kept.event for kept in self.events_before(subject, limit=limit))

    def events_before(self, subject: str, before: int | None = None, limit: int = 100) -> tuple[KeptEvent, ...]:
        """The newest events of a subject, oldest first."""
        newest = select(events).where(events.c.subject == subject).order_by(events.c.number.desc()).limit(limit)
        found = self._kept(newest if before is None else newest.where(events.c.number < before))
        return tuple(reversed(found))

    def events_since(self, number: int, subject: str = "", limit: int = 1000) -> tuple[KeptEvent, ...]:
        """The oldest events with a larger number, oldest first."""
        oldest = select(events).where(events.c.number > number).order_by(events.c.number).limit(limit)
        return self._kept(oldest.where(events.c.subject == subject) if subject else oldest)

    def find_events(self, query: EventQuery, before: int | None = None, limit: int = 100) -> tuple[KeptEvent, ...]:
        """The newest that the query asks for, newest first."""
        asked = [events.c.number < before] if before is not None else []
        asked += [events.c.actor == query.actor] if query.actor else []
        asked += [events.c.kind.in_(query.kinds)] if query.kinds else []
        asked += [events.c.subject == query.subject] if query.subject else []
        asked += [events.c.time >= query.since] if query.since is not None else []
        asked += [events.c.time < query.until] if query.until is not None else []
        return self._kept(select(events).where(*asked).order_by(events.c.number.desc()).limit(limit))

    def newest_event(self) -> int:
        """The number of the newest event; 0 before the first."""
        with self._database.reading() as connection:
            return connection.execute(_NEWEST_EVENT).scalar_one() or 0

    def _kept(self, wanted: Select[Any]) -> tuple[KeptEvent, ...]:
        with self._database.reading() as connection:
            rows = connection.execute(wanted).all()
        return tuple(
            KeptEvent(row.number, Event(**{name: getattr(row, name) for name in _FIELDS} | {"time": Instant(row.time)}))
            for row in rows
        )
