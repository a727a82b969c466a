"""Copies of a store, restored into the same kind of database and into the other."""

from __future__ import annotations

import gzip
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text

from reconciler.protocols.history import Event
from reconciler.store.backup import ATTEMPTS_AHEAD, EPOCHS_AHEAD, CopyError, back_up, restore
from reconciler.store.integrity import problems_of
from reconciler.store.schema import SCHEMA_VERSION, metadata
from reconciler.store.store import SqlStore, open_store
from reconciler.store.tables import kept
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import Repartitioning
from solver.model.workload import JobName
from tests.contracts.stores import LEASE, NOW, SPEC, claim_of, intent_of, postgresql_schema
from tests.contracts.test_history import record_of

OWN = {"leadership", "schema_version", "attempts"}


@pytest.fixture
def full(tmp_path: Path) -> Iterator[SqlStore]:
    """An SQLite store with a row in many tables."""
    store = open_store(tmp_path / "full.db")
    fill(store)
    yield store
    store.close()


def fill(store: SqlStore) -> None:
    for name in ("a", "b"):
        store.jobs.submit(JobName(name), SPEC, "ada", NOW, "key\0with a NUL")
    epoch = store.ledger.lead("first", NOW, LEASE)
    claim = claim_of("a", "n1/0", "n1/1")
    store.ledger.claim(epoch, claim, intent_of(claim))
    store.history.record_round(epoch, record_of())
    store.history.record_round(epoch, record_of("def"))
    store.history.record_event(Event(NOW, "submitted", "a", "ü", "ada"))
    store.ledger.tie("host:/tasks identity")


def rows_of(store: SqlStore) -> dict[str, list[Any]]:
    with store.database.reading() as connection:
        return {
            table.name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]
            for table in metadata.sorted_tables
            if table.name not in OWN
        }


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    if request.param == "sqlite":
        store = open_store(tmp_path / "empty.db")
        yield store
        store.close()
        return
    with postgresql_schema() as url:
        store = open_store(url, lease_clock="caller")
        yield store
        store.close()


def test_what_was_copied_is_there_again(full: SqlStore, empty: SqlStore, tmp_path: Path) -> None:
    path = tmp_path / "copy.gz"
    tail = back_up(full.database, path, NOW)
    assert path.stat().st_mode & 0o777 == 0o600
    assert restore(empty.database, path).at == NOW
    was, found = rows_of(full), rows_of(empty)
    was["kept"] = []
    if empty.database.engine.dialect.name == "postgresql":
        was["jobs"] = [
            tuple("key\ufffdwith a NUL" if v == "key\0with a NUL" else v for v in row) for row in was["jobs"]
        ]
    assert found == was
    assert tail.rows > 8
    assert list(problems_of(empty.database)) == []


def test_what_comes_next_is_numbered_above_what_came_since(full: SqlStore, empty: SqlStore, tmp_path: Path) -> None:
    back_up(full.database, tmp_path / "copy.gz", NOW)
    restore(empty.database, tmp_path / "copy.gz")
    epoch = empty.ledger.lead("second", NOW, LEASE)
    assert epoch == 1 + EPOCHS_AHEAD + 1
    assert empty.ledger.attempts() == {"a": 1 + ATTEMPTS_AHEAD, "b": ATTEMPTS_AHEAD}
    assert empty.history.record_round(epoch, record_of()) == 3
    empty.jobs.submit(JobName("c"), SPEC, "ada", NOW, "")
    assert [job.name for job in empty.jobs.jobs()] == ["c", "b", "a"]
    claim = claim_of("b", "n1/2", "n1/3", attempt=1 + ATTEMPTS_AHEAD)
    empty.ledger.claim(epoch, claim, intent_of(claim))
    assert list(problems_of(empty.database)) == []


def test_a_copy_of_postgresql_goes_back_to_sqlite(empty: SqlStore, tmp_path: Path) -> None:
    fill(empty)
    back_up(empty.database, tmp_path / "copy.gz", NOW)
    other = open_store(tmp_path / "other.db")
    restore(other.database, tmp_path / "copy.gz")
    assert rows_of(other) == rows_of(empty) | {"kept": []}
    other.close()


def test_it_is_restored_only_where_nothing_is(full: SqlStore, tmp_path: Path) -> None:
    back_up(full.database, tmp_path / "copy.gz", NOW)
    before = rows_of(full)
    with pytest.raises(CopyError, match=r"full\.db: it has jobs already.*new database"):
        restore(full.database, tmp_path / "copy.gz")
    assert rows_of(full) == before


@pytest.mark.parametrize("kept_part", [0.3, 0.95])
def test_part_of_a_copy_is_refused(full: SqlStore, empty: SqlStore, tmp_path: Path, kept_part: float) -> None:
    path = tmp_path / "copy.gz"
    back_up(full.database, path, NOW)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept_part)])
    with pytest.raises(CopyError, match="no whole copy"):
        restore(empty.database, path)


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (b'"ada"', b'"eve"', "changed or damaged"),
        (f'"schemaVersion":{SCHEMA_VERSION}'.encode(), b'"schemaVersion":99', "changed or damaged"),
        (b"StoreCopy", b"\xff", "no whole copy"),
    ],
)
def test_a_copy_that_was_changed_is_refused(
    full: SqlStore, tmp_path: Path, before: bytes, after: bytes, problem: str
) -> None:
    path = tmp_path / "copy.gz"
    back_up(full.database, path, NOW)
    lines = gzip.decompress(path.read_bytes())
    assert before in lines
    path.write_bytes(gzip.compress(lines.replace(before, after)))
    other = open_store(tmp_path / "other.db")
    with pytest.raises(CopyError, match=problem):
        restore(other.database, path)
    assert other.jobs.jobs() == ()
    other.close()


def test_the_name_of_a_copy_is_on_the_disk_too(full: SqlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written comes first, then the name, then the folder that has the name."""
    deeds: list[str] = []
    real_sync, real_rename = os.fsync, os.rename

    def sync(handle: int) -> None:
        deeds.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        real_sync(handle)

    def rename(source: Path, target: Path) -> None:
        deeds.append("name")
        real_rename(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    back_up(full.database, tmp_path / "copy.gz", NOW)
    assert deeds == ["file", "name", "folder"]


def test_a_copy_that_can_not_be_written_leaves_nothing(full: SqlStore, tmp_path: Path) -> None:
    with pytest.raises(CopyError, match="can't be written"):
        back_up(full.database, tmp_path / "absent" / "copy.gz", NOW)
    (tmp_path / "folder").mkdir()
    with pytest.raises(CopyError, match="can't be written"):
        back_up(full.database, tmp_path / "folder", NOW)
    assert {path.name for path in tmp_path.iterdir()} - {"folder"} == {"full.db", "full.db-wal", "full.db-shm"}


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("UPDATE jobs SET spec = '{\"queue\": 7}' WHERE name = 'b'", "jobs 2: its spec can't be read"),
        ("UPDATE rounds SET record = x'00' WHERE number = 1", "rounds 1: its record can't be read"),
        ("UPDATE holdings SET device = 'n9/9' WHERE device = 'n1/0'", "claims a: its tasks are on"),
        ("UPDATE attempts SET last = 0", "attempts a: attempt 1 is held, and the last was 0"),
        ("UPDATE holdings SET gpu = 'n1/1' WHERE device = 'n1/0'", "holdings n1/1: it is held as a whole"),
        ("UPDATE holdings SET milli = 1001", "holdings n1/0: 1001 thousandths"),
    ],
)
def test_each_kind_of_contradiction_is_found(full: SqlStore, damage: str, found: str) -> None:
    assert list(problems_of(full.database)) == []
    with full.database.engine.begin() as connection:
        connection.execute(text(damage))
    assert [problem for problem in problems_of(full.database) if problem.startswith(found)]


def test_gpus_that_are_partitioned_are_checked_too(full: SqlStore) -> None:
    epoch = full.ledger.lead("first", NOW, LEASE)
    full.ledger.partitionings.begin(epoch, Repartitioning(NodeName("n1"), DeviceId("n1/3"), 1, NOW, NOW.after(1)))
    assert list(problems_of(full.database)) == []


def test_a_store_is_told_apart_from_another(full: SqlStore) -> None:
    assert full.ledger.tie("other:/tasks other") == "host:/tasks identity"
    with full.database.engine.begin() as connection:
        assert connection.execute(select(kept.c.what)).scalars().all() == ["tied-to"]
