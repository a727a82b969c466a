"""What SQLite alone promises: durable settings, a private file, and clear words when the disk or the file is bad."""

from __future__ import annotations

import random
import sqlite3
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from reconciler.protocols.store_errors import StoreFullError, StoreUnusableError
from reconciler.store.database import Database
from reconciler.store.reserve import DiskReserve
from reconciler.store.schema import metadata
from reconciler.store.store import SqlStore, open_store
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from tests.contracts.stores import LEASE, NOW, SPEC

PAGE_BYTES = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database is."""
    return tmp_path / "quorate.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    """An open, empty store."""
    opened = open_store(path)
    yield opened
    opened.close()


def accept(store: SqlStore, *names: str) -> None:
    for name in names:
        store.jobs.submit(JobName(name), SPEC, "ada", NOW, name)


def test_commits_are_flushed_to_disk_before_they_return(store: SqlStore) -> None:
    with store.database.reading() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 10_000}


def test_what_is_read_together_is_of_one_moment_until_something_is_written_there(store: SqlStore) -> None:
    def live() -> list[str]:
        return [record.name for record in store.jobs.live_jobs()]

    begun = list[str]()
    event.listen(store.database.engine, "begin", lambda _: begun.append("one"))
    with ThreadPoolExecutor(1) as other:
        with store.database.reading_together():
            assert live() == live() == []
            assert len(begun) == 1
            other.submit(accept, store, "theirs").result()
            assert other.submit(live).result() == ["theirs"]
            assert live() == []
            accept(store, "mine")
            assert sorted(live()) == ["mine", "theirs"]
        assert sorted(live()) == ["mine", "theirs"]


def test_a_read_that_fails_inside_says_so_as_any_other(store: SqlStore) -> None:
    with store.database.reading_together():
        with pytest.raises(StoreUnusableError), store.database.reading() as connection:
            connection.exec_driver_sql("SELECT nothing FROM nowhere")
        assert store.jobs.live_jobs() == ()


def test_nobody_else_may_read_the_file(store: SqlStore, path: Path) -> None:
    accept(store, "a")
    modes = {found.name: stat.S_IMODE(found.stat().st_mode) for found in path.parent.iterdir()}
    assert modes == {"quorate.db": 0o600, "quorate.db-wal": 0o600, "quorate.db-shm": 0o600}


def test_threads_share_a_store(store: SqlStore) -> None:
    epoch = store.ledger.lead("first", NOW, LEASE)

    def submit_and_read(number: int) -> int:
        accept(store, f"job-{number}")
        store.ledger.lead("first", NOW, LEASE)
        return len(store.jobs.live_jobs())

    with ThreadPoolExecutor(8) as threads:
        seen = list(threads.map(submit_and_read, range(40)))
    assert len(store.jobs.jobs()) == 40
    assert max(seen) == 40
    assert store.ledger.lead("first", NOW, LEASE) == epoch


def test_two_stores_on_one_file_see_each_other(store: SqlStore, path: Path) -> None:
    accept(store, "a")
    other = open_store(path)
    accept(other, "b")
    assert [job.name for job in store.jobs.live_jobs()] == ["a", "b"]
    other.close()


def test_a_full_disk_is_said_and_loses_nothing_committed(store: SqlStore, path: Path) -> None:
    accept(store, "before")
    with store.database.reading() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 4}")
    large = JobSpec(QueueName("q"), (TaskGroup("worker", 1, Shape()),), command=("x" * 10 * PAGE_BYTES,))
    with pytest.raises(StoreUnusableError, match=r"quorate\.db: the disk is full .*Free some space"):
        store.jobs.submit(JobName("large"), large, "ada", NOW, "key")
    assert [job.name for job in store.jobs.live_jobs()] == ["before"]
    with store.database.reading() as connection:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 1_000}")
    store.jobs.submit(JobName("large"), large, "ada", NOW, "key")


def test_a_full_disk_is_told_apart_and_costs_the_reserve(
    store: SqlStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = DiskReserve(path.with_name("reserve"))
    reserve.refill()
    size = reserve.path.stat().st_blocks * 512
    assert 0 < size <= 16 * 2**20
    store.database.reserve = reserve
    accept(store, "before")
    with store.database.reading() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    large = JobSpec(QueueName("q"), (TaskGroup("worker", 1, Shape()),), command=("x" * 10 * PAGE_BYTES,))
    with pytest.raises(StoreFullError, match=r"The room that is held in reserve is in use now\."):
        store.jobs.submit(JobName("large"), large, "ada", NOW, "key")
    assert not reserve.path.exists()
    assert store.database.failure is None
    with monkeypatch.context() as full:
        full.setattr("reconciler.store.reserve.is_nearly_full", lambda _: True)
        accept(store, "while it is full")
        assert not reserve.path.exists()
    accept(store, "after")
    assert reserve.path.stat().st_blocks * 512 == size


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"to whom it may concern\n" * 500)
    with pytest.raises(StoreUnusableError, match=r"quorate\.db: the file is not a database .*restore"):
        open_store(path)
    assert path.read_bytes().startswith(b"to whom"), "what was there is kept"


def test_a_damaged_file_is_said(path: Path) -> None:
    store = open_store(path)
    accept(store, *(f"job-{number:03}" for number in range(200)))
    store.close()
    damaged = bytearray(path.read_bytes())
    damaged[PAGE_BYTES:] = random.Random(1).randbytes(len(damaged) - PAGE_BYTES)
    path.write_bytes(damaged)
    with pytest.raises(StoreUnusableError, match=r"quorate\.db: the file is damaged .*from a backup"):
        open_store(path).jobs.live_jobs()


def test_a_document_that_does_not_decode_is_said(store: SqlStore, path: Path) -> None:
    accept(store, "a")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE jobs SET spec = '{\"queue\": 7}'")
    connection.close()
    with pytest.raises(StoreUnusableError, match=r"quorate\.db: a stored JobSpec can't be read"):
        store.jobs.job(JobName("a"))


def test_a_database_locked_by_another_is_said(store: SqlStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.store.engines.BUSY_TIMEOUT_S", 0.05)
    impatient = open_store(path)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnusableError, match=r"quorate\.db: another process keeps it locked"):
        accept(impatient, "a")
    blocker.execute("ROLLBACK")
    blocker.close()
    accept(impatient, "a")
    impatient.close()


def test_a_folder_that_does_not_exist_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusableError, match=r"absent/quorate\.db: can't be opened .*folder exists"):
        open_store(tmp_path / "absent" / "quorate.db")


def test_an_unreachable_server_is_said_without_its_password() -> None:
    with pytest.raises(StoreUnusableError, match=r"127\.0\.0\.1:1") as refused:
        Database("postgresql+psycopg://quorate:canary@127.0.0.1:1/quorate?connect_timeout=1")
    assert "canary" not in str(refused.value)


def test_the_tables_are_sql_that_postgresql_takes() -> None:
    for table in metadata.sorted_tables:
        assert f"CREATE TABLE {table.name}" in str(CreateTable(table).compile(dialect=postgresql.dialect()))  # type: ignore[no-untyped-call]
