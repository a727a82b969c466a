"""Whatever is done to a stored record or link, by anything but a control plane with the keys, is found and placed."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pytest

from reconciler.access.audit_keys import AuditKeyFile
from reconciler.analysis.audit.findings import AuditFinding
from reconciler.analysis.audit.verification import verified
from reconciler.model.audit import AuditAnchor, AuditKeys
from reconciler.protocols.audit import entries_of
from reconciler.protocols.history import Event
from reconciler.store.store import open_store
from solver.model.quantities import Instant
from tests.contracts.stores import LEASE, NOW
from tests.contracts.test_history import record_of
from tests.drawn import DRAWING
from tests.fresh_store import fresh_store

RECORDS: Final = 40
WORLDS: Final = 400 if DRAWING.everything else 20


class Kept(NamedTuple):
    """A store as it was in the end and half way, its keys, and the anchor of its end."""

    path: Path
    half: Path
    keys: AuditKeys
    anchor: AuditAnchor


class Forgery(NamedTuple):
    """What was done to which records, and whether the chain shows it without an anchor."""

    records: frozenset[int]
    shows: bool = True


Forge = Callable[[sqlite3.Connection, random.Random], Forgery]


def at(number: int) -> Instant:
    return NOW.after(number * 1_000)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    folder = tmp_path_factory.mktemp("kept")
    keys, path, half = AuditKeyFile(folder / "keys"), folder / "quorate.db", folder / "half.db"
    keys.begin()
    fresh_store(path).close()
    anchors = []
    for part, copied in (
        (range(1, RECORDS // 2 + 1), half),
        (range(RECORDS // 2 + 1, RECORDS + 1), folder / "whole.db"),
    ):
        store = open_store(path, audit_keys=keys)
        for number in part:
            store.history.record_event(Event(at(number), "cordoned", f"node-{number}", f"reason {number}", "ada"))
            if number % 5 == 0:
                epoch = store.ledger.lead(f"leader-{number}", at(number * 100), LEASE)
                store.history.record_round(epoch, msgspec.structs.replace(record_of(), time=at(number)))
        anchors.append(store.audit.anchor(at(RECORDS + 1)))
        store.close()
        shutil.copy(path, copied)
    return Kept(path, half, keys.keys(), anchors[-1])


def flip_a_value(database: sqlite3.Connection, chance: random.Random) -> Forgery:
    number = chance.randint(1, RECORDS)
    column, value = chance.choice((("actor", "eve"), ("cause", "none"), ("time", 1), ("kind", "held"), ("attempt", 7)))
    database.execute(f"UPDATE events SET {column} = ? WHERE number = ?", (value, number))
    return Forgery(frozenset({number}))


def flip_a_bit_of_a_round(database: sqlite3.Connection, chance: random.Random) -> Forgery:
    number = chance.randint(1, RECORDS // 5)
    (record,) = database.execute("SELECT record FROM rounds WHERE number = ?", (number,)).fetchone()
    place = chance.randrange(len(record))
    flipped = record[:place] + bytes((record[place] ^ 1 << chance.randrange(8),)) + record[place + 1 :]
    database.execute("UPDATE rounds SET record = ? WHERE number = ?", (flipped, number))
    return Forgery(frozenset({number}))


def repack_a_round(database: sqlite3.Connection, chance: random.Random) -> Forgery:
    """It says that it is packed against another."""
    number, column = chance.randint(1, RECORDS // 5), ("keyframe", "base")[chance.randrange(2)]
    database.execute(f"UPDATE rounds SET {column} = 77 WHERE number = ?", (number,))
    return Forgery(frozenset({number}))


def swap_two(database: sqlite3.Connection, chance: random.Random) -> Forgery:
    one, other = chance.sample(range(1, RECORDS + 1), 2)
    for number, becomes in ((one, -1), (other, one), (-1, other)):
        database.execute("UPDATE events SET number = ? WHERE number = ?", (becomes, number))
    return Forgery(frozenset({one, other}))


def delete_some(database: sqlite3.Connection, chance: random.Random) -> Forgery:
    numbers = chance.sample(range(1, RECORDS + 1), chance.randint(1, 3))
    database.executemany("DELETE FROM events WHERE number = ?", [(number,) for number in numbers])
    return Forgery(frozenset(numbers))


def delete_some_with_their_links(database: sqlite3.Connection, chance: random.Random) -> Forgery:
    """The newest is left: without it the chain is merely shorter."""
    numbers = chance.sample(range(1, RECORDS), chance.randint(1, 3))
    database.executemany("DELETE FROM events WHERE number = ?", [(number,) for number in numbers])
    of_events = "DELETE FROM audit_links WHERE chain = 'events' AND kind = 'record' AND record = ?"
    database.executemany(of_events, [(number,) for number in numbers])
    return Forgery(frozenset(numbers))


def insert_one(database: sqlite3.Connection, chance: random.Random) -> Forgery:
    number = chance.choice((RECORDS + 1, 10_000))
    copied = "kind, subject, cause, actor, state, attempt, purpose, beneficiary"
    chosen = f"SELECT ?, time, {copied} FROM events WHERE number = ?"
    database.execute(f"INSERT INTO events (number, time, {copied}) {chosen}", (number, chance.randint(1, RECORDS)))
    return Forgery(frozenset({number}))


def change_with_a_new_digest(database: sqlite3.Connection, chance: random.Random) -> Forgery:
    """What can be made without the key."""
    number = chance.randint(1, RECORDS)
    database.execute("UPDATE events SET actor = 'eve' WHERE number = ?", (number,))
    database.execute(
        "UPDATE audit_links SET digest = ? WHERE chain = 'events' AND record = ?", (chance.randbytes(32), number)
    )
    return Forgery(frozenset({number}))


def swap_two_with_their_links(database: sqlite3.Connection, chance: random.Random) -> Forgery:
    one, other = chance.sample(range(1, RECORDS + 1), 2)
    for table, column in (("events", "number"), ("audit_links", "record")):
        and_events = " AND chain = 'events'" if table == "audit_links" else ""
        for number, becomes in ((one, -1), (other, one), (-1, other)):
            database.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?{and_events}", (becomes, number))
    return Forgery(frozenset({one, other}))


def cut_the_end_off(database: sqlite3.Connection, chance: random.Random) -> Forgery:
    first = chance.randint(1, RECORDS)
    database.execute("DELETE FROM events WHERE number >= ?", (first,))
    database.execute("DELETE FROM audit_links WHERE chain = 'events' AND kind = 'record' AND record >= ?", (first,))
    return Forgery(frozenset({first}), shows=False)


FORGERIES: Final[tuple[Forge, ...]] = (
    flip_a_value,
    flip_a_bit_of_a_round,
    repack_a_round,
    swap_two,
    delete_some,
    delete_some_with_their_links,
    insert_one,
    change_with_a_new_digest,
    swap_two_with_their_links,
    cut_the_end_off,
)


def found_in(path: Path, kept: Kept, *anchors: AuditAnchor) -> tuple[AuditFinding, ...]:
    store = open_store(path, as_found=True)
    report = verified(entries_of(store.audit), kept.keys, anchors)
    store.close()
    return report.findings


def is_placed(finding: AuditFinding, number: int, per_record: int = 1) -> bool:
    """Whether it is about the record, its link or links that are gone, between times around it."""
    after, before = finding.after or Instant(0), finding.before or at(RECORDS + 1)
    around = after <= at(number * per_record) <= before or number > RECORDS
    # The first link of the chain is of no record.
    named = number in (finding.record, (finding.link or 0) - 1)
    return around and (named or finding.problem in ("removed", "truncated", "unlinked"))


def test_what_is_not_touched_is_whole(kept: Kept) -> None:
    assert found_in(kept.path, kept, kept.anchor) == ()


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_a_forgery_is_found_and_placed(forge: Forge, kept: Kept, tmp_path: Path) -> None:
    for seed in range(WORLDS // len(FORGERIES) + 1):
        path = tmp_path / f"{seed}.db"
        shutil.copy(kept.path, path)
        with sqlite3.connect(path) as database:
            database.execute("PRAGMA foreign_keys = OFF")
            done = forge(database, random.Random(f"{forge.__name__} {seed}"))
        database.close()
        alone = found_in(path, kept)
        assert bool(alone) == done.shows, seed
        findings, per_record = found_in(path, kept, kept.anchor), 5 if "round" in forge.__name__ else 1
        for number in done.records:
            assert any(is_placed(finding, number, per_record) for finding in findings), (seed, number, findings)
        path.unlink()


def test_an_older_database_in_its_place_is_found_by_the_anchor(kept: Kept) -> None:
    assert found_in(kept.half, kept) == ()
    findings = found_in(kept.half, kept, kept.anchor)
    assert [(each.problem, each.chain, each.after, each.before) for each in findings] == [
        ("truncated", "events", at(RECORDS // 2), at(RECORDS + 1)),
        ("truncated", "rounds", at(RECORDS // 2), at(RECORDS + 1)),
    ]


def test_another_past_with_the_same_keys_is_found_by_the_anchor(kept: Kept, tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    shutil.copy(kept.half, path)
    file = AuditKeyFile(tmp_path / "keys")
    file.path.write_bytes(b"".join(key.secret + b"\n" for key in kept.keys.keys))
    file.path.chmod(0o600)
    store = open_store(path, audit_keys=file)
    store.history.record_events(Event(at(number), "cordoned", "n", "another past", "eve") for number in range(20, 60))
    store.close()
    assert found_in(path, kept) == ()
    events, *_ = found_in(path, kept, kept.anchor)
    assert (events.problem, events.chain, events.link, events.before) == ("rewritten", "events", 41, at(RECORDS + 1))


def test_a_link_of_another_past_is_found_where_it_is_put(kept: Kept, tmp_path: Path) -> None:
    """It is signed with a key of ours, and follows another link."""
    path, other = tmp_path / "forged.db", tmp_path / "other.db"
    shutil.copy(kept.path, path)
    shutil.copy(kept.half, other)
    file = AuditKeyFile(tmp_path / "keys")
    file.path.write_bytes(b"".join(key.secret + b"\n" for key in kept.keys.keys))
    file.path.chmod(0o600)
    store, half = open_store(other, audit_keys=file), RECORDS // 2
    store.history.record_events(Event(at(half + each), "cordoned", "n", "another past", "eve") for each in (1, 2))
    store.close()
    with sqlite3.connect(path) as database:
        database.execute("ATTACH ? AS other", (str(other),))
        for table, where in (
            ("events", f"number = {half + 2}"),
            ("audit_links", f"chain = 'events' AND record = {half + 2}"),
        ):
            database.execute(f"DELETE FROM main.{table} WHERE {where}")
            database.execute(f"INSERT INTO main.{table} SELECT * FROM other.{table} WHERE {where}")
    database.close()
    found = [(each.problem, each.link) for each in found_in(path, kept)]
    assert found == [("detached", half + 3), ("detached", half + 4)]
