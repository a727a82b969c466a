"""The audit chain, in SQL: links are written by the very transactions that write records, and read back beside them.

Writers come one after the other (each locks the leader's row), so the link that one of them finds to be the newest is: whichever
process leads, there is one chain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, Row, Select, Table, and_, delete, func, insert, select, true

from reconciler.model.audit import (
    CHAINS,
    AuditAnchor,
    AuditEntry,
    AuditKeys,
    AuditLink,
    ChainHead,
    ChainName,
    LinkKind,
    LinkNote,
    content_of,
    digest_of,
    note_of,
)
from reconciler.protocols.audit import AuditPlace
from reconciler.store.database import Database
from reconciler.store.tables import audit_links, events, rounds
from solver.model.quantities import Instant

EVENT_COLUMNS: Final = ("time", "kind", "subject", "cause", "actor", "state", "attempt", "purpose", "beneficiary")
ROUND_COLUMNS: Final = (
    *("time", "revision", "starts", "waits", "inadmissible", "stage", "duration_ms", "verdicts", "keyframe", "base"),
    "record",
)
"""What of a record its digest covers, in this order. A column that comes later is not covered by links that were there before."""

_RECORDS: Final[dict[ChainName, tuple[Table, tuple[str, ...]]]] = {
    "events": (events, EVENT_COLUMNS),
    "rounds": (rounds, ROUND_COLUMNS),
}

_ROUNDS_AT_ONCE: Final = 20
"""Rounds are large."""


class Recorded(NamedTuple):
    """A record that was written: its number, its time, and what stands for it."""

    number: int
    time: Instant
    content: str


def content_of_row(values: Iterable[Any]) -> str:
    """What stands for a row: its values, and of packed bytes their digest."""
    return content_of([hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else value for value in values])


class AuditChain:
    """Writes links. `keys` gives the keys as they are now."""

    def __init__(self, keys: Callable[[], AuditKeys]) -> None:
        self._keys = keys

    def append(self, connection: Connection, chain: ChainName, written: Sequence[Recorded]) -> None:
        """Links for records that this transaction has written. The chain begins with what was there before."""
        if not written:
            return
        keys, head = self._keys(), _newest(connection, chain)
        links: list[AuditLink] = []
        if head is None:
            head = _begun(connection, keys, chain, written[0])
            links.append(head)
        for record in written:
            said = record.number, digest_of(record.content), head.mac
            head = keys.signed(chain, head.number + 1, record.time, "record", *said)
            links.append(head)
        connection.execute(insert(audit_links), list(map(_row, links)))

    def prune_rounds(self, connection: Connection) -> None:
        """Links of rounds that this transaction has deleted go too; a signed one says up to which, and how the last was signed."""
        head, first = _newest(connection, "rounds"), connection.execute(select(func.min(rounds.c.number))).scalar_one()
        if head is None or first is None:
            return
        of_rounds = audit_links.c.chain == "rounds"
        kept = select(func.min(audit_links.c.number)).where(of_rounds, audit_links.c.record >= first)
        last = (connection.execute(kept).scalar_one() or head.number) - 1
        found = connection.execute(select(audit_links.c.mac).where(of_rounds, audit_links.c.number == last)).scalar()
        if found is None:
            return
        connection.execute(delete(audit_links).where(of_rounds, audit_links.c.number <= last))
        note = LinkNote(records=first - 1, links=last, mac=found.hex())
        self._note(connection, head, "pruned", first - 1, note)

    def restored(self, connection: Connection, copied_at: Instant) -> None:
        """Say in each chain that the store was filled from a copy: what was recorded after that is not in it."""
        for chain in CHAINS:
            head = _newest(connection, chain)
            if head is not None:
                self._note(connection, head, "restored", head.record, LinkNote(copied_at=copied_at))

    def _note(self, connection: Connection, head: AuditLink, kind: LinkKind, record: int, note: LinkNote) -> None:
        link = self._keys().signed(head.chain, head.number + 1, head.time, kind, record, "", head.mac, note_of(note))
        connection.execute(insert(audit_links).values(_row(link)))


def _begun(connection: Connection, keys: AuditKeys, chain: ChainName, first: Recorded) -> AuditLink:
    """Events that were there before are covered as a whole; rounds are not, which would be gigabytes to read."""
    table, columns = _RECORDS[chain]
    before = table.c.number < first.number
    newest, count = connection.execute(select(func.max(table.c.number), func.count()).where(before)).one()
    digest = hashlib.sha256()
    if chain == "events":
        for row in connection.execute(
            select(table).where(before).order_by(table.c.number).execution_options(yield_per=1_000)
        ):
            digest.update(digest_of(content_of_row(getattr(row, name) for name in columns)).encode())
    covered = digest.hexdigest() if chain == "events" and count else ""
    note = note_of(LinkNote(records=newest or 0, count=count, digest=covered))
    return keys.signed(chain, 1, first.time, "begun", newest or 0, "", "", note)


def _newest(connection: Connection, chain: ChainName) -> AuditLink | None:
    found = select(audit_links).where(audit_links.c.chain == chain).order_by(audit_links.c.number.desc()).limit(1)
    row = connection.execute(found).one_or_none()
    return None if row is None else _link(row)


def _row(link: AuditLink) -> dict[str, Any]:
    row = msgspec.structs.asdict(link)
    for name in ("digest", "previous", "mac"):
        row[name] = bytes.fromhex(row[name])
    return row


def _link(row: Any) -> AuditLink:
    unpacked = (row.digest.hex(), row.previous.hex(), row.key, row.mac.hex(), row.note)
    return AuditLink(row.chain, row.number, Instant(row.time), row.kind, row.record, *unpacked)


class SqlAudit:
    """Implements AuditTrail."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(
        self, chain: ChainName, after: AuditPlace, limit: int = 500
    ) -> tuple[tuple[AuditEntry, ...], AuditPlace | None]:
        """What comes next, of one moment. Records without a link are looked for up to the newest that a link of the page has."""
        limit = min(limit, _ROUNDS_AT_ONCE) if chain == "rounds" else limit
        table, columns = _RECORDS[chain]
        with self._database.reading() as connection:
            links = [_entry(row, chain, columns) for row in connection.execute(_linked(chain, after.link, limit))]
            if after == AuditPlace() and links and links[0].link and links[0].link.kind != "record":
                # It says which records were there before, and so comes before them.
                return (links[0],), AuditPlace(links[0].link.number)
            are_last = len(links) < limit
            records = {each.record for each in links if each.link and each.link.kind == "record"}
            upto = None if are_last else max(records, default=after.record)
            numbers = [int(row[0]) for row in connection.execute(_numbers(table, after.record, upto, limit))]
            alone = [number for number in numbers if number not in records]
            rows = connection.execute(select(table).where(table.c.number.in_(alone)).order_by(table.c.number))
            lone = tuple(_alone(row, chain, columns) for row in rows)
        if len(numbers) == limit:
            return lone, AuditPlace(after.link, numbers[-1])
        if are_last:
            return (*lone, *links), None
        seen = max(each.link.number for each in links if each.link)
        return (*lone, *links), AuditPlace(seen, max([after.record, *records, *numbers]))

    def anchor(self, at: Instant) -> AuditAnchor:
        """How far both chains are."""
        with self._database.reading() as connection:
            heads = {chain: _newest(connection, chain) for chain in CHAINS}
        found = (ChainHead(head.number, head.mac) if head else None for head in heads.values())
        return AuditAnchor(at, *found)


_LINK_COLUMNS: Final = tuple(audit_links.c[name].label(f"link_{name}") for name in AuditLink.__struct_fields__)


def _linked(chain: ChainName, after: int, limit: int) -> Select[Any]:
    """The next links, each with its record, or with nothing in place of one that is not there."""
    table, columns = _RECORDS[chain]
    its_record = and_(table.c.number == audit_links.c.record, audit_links.c.kind == "record")
    chosen = select(*_LINK_COLUMNS, table.c.number, *(table.c[name] for name in columns))
    following = audit_links.c.chain == chain, audit_links.c.number > after
    return (
        chosen.select_from(audit_links.outerjoin(table, its_record))
        .where(*following)
        .order_by(audit_links.c.number)
        .limit(limit)
    )


def _numbers(table: Table, after: int, upto: int | None, limit: int) -> Select[Any]:
    ended = true() if upto is None else table.c.number <= upto
    return select(table.c.number).where(table.c.number > after, ended).order_by(table.c.number).limit(limit)


def _entry(row: Row[Any], chain: ChainName, columns: Sequence[str]) -> AuditEntry:
    told = {name: getattr(row, f"link_{name}") for name in AuditLink.__struct_fields__}
    packed = {name: told[name].hex() for name in ("digest", "previous", "mac")}
    link = AuditLink(**told | packed | {"time": Instant(told["time"])})
    content = None if row.number is None else content_of_row(getattr(row, name) for name in columns)
    return AuditEntry(chain, link.record, link.time, content, link)


def _alone(row: Row[Any], chain: ChainName, columns: Sequence[str]) -> AuditEntry:
    return AuditEntry(chain, row.number, Instant(row.time), content_of_row(getattr(row, name) for name in columns))
