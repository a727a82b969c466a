"""Databases of earlier schemas are brought up to date and can be taken back, with what lives in them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine, inspect, text

from reconciler.model.expansion import expand_array
from reconciler.model.job_record import JobOutcome
from reconciler.protocols.job_source import DuplicateJobError
from reconciler.protocols.store_errors import StoreUnusableError
from reconciler.store import migrations
from reconciler.store.integrity import problems_of
from reconciler.store.migrations import BASELINE, DowngradeRefusedError, downgrade, is_in
from reconciler.store.schema import SCHEMA_VERSION, metadata
from reconciler.store.store import SqlStore, open_store
from solver.model.document import encode
from solver.model.workload import JobArray, JobName
from tests.contracts.stores import LEASE, NOW, SPEC, claim_of, intent_of, postgresql_schema
from tests.contracts.test_history import record_of
from tests.contracts.test_pod_placements import BEGUN, FIRST, SECOND
from tests.reconciler.store.earlier_schemas import EARLIER, MADE, take_back

OLD_JOB = "INSERT INTO jobs (name, spec, user, submitted_at, idempotency_key) VALUES ('a', ?, 'ada', ?, 'key')"


@contextmanager
def file_of(folder: Path) -> Iterator[Path | str]:
    yield folder / "quorate.db"


@contextmanager
def schema_of(_: Path) -> Iterator[Path | str]:
    with postgresql_schema() as url:
        yield url


@pytest.fixture(params=[file_of, pytest.param(schema_of, marks=pytest.mark.postgresql)], ids=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | str]:
    with request.param(tmp_path) as made:
        yield made


def shape_of(engine: Engine) -> dict[str, Any]:
    """Every table as the database describes it."""
    found = inspect(engine)
    return {
        name: {
            "columns": {
                column["name"]: (str(column["type"]), column["nullable"], str(column["default"]))
                for column in found.get_columns(name)
            },
            "keys": found.get_pk_constraint(name)["constrained_columns"],
            "indexes": sorted((index["name"] or "", str(index["column_names"])) for index in found.get_indexes(name)),
            "foreign": sorted(str(key["referred_table"]) for key in found.get_foreign_keys(name)),
        }
        for name in found.get_table_names()
    }


def with_live_job(store: SqlStore) -> None:
    store.jobs.submit(JobName("a"), SPEC, "ada", NOW, "key")
    epoch = store.ledger.lead("first", NOW, LEASE)
    claim = claim_of("a", "n1/0", "n1/1")
    store.ledger.claim(epoch, claim, intent_of(claim))


def taken_back(where: Path | str, version: int = SCHEMA_VERSION - 1) -> None:
    store = open_store(where)
    with store.database.engine.begin() as connection:
        take_back(connection, version)
    store.close()


def made_by_its_release(path: Path, version: int) -> sqlite3.Connection:
    old = sqlite3.connect(path)
    old.executescript(MADE[version])
    return old


@pytest.mark.parametrize("version", EARLIER)
def test_an_earlier_schema_is_what_the_marks_say(tmp_path: Path, version: int) -> None:
    """Whoever changes a table without marking the change (`info=since(VERSION)`) leaves databases behind that lack it."""
    old = made_by_its_release(tmp_path / "old.db", version)
    was = {
        name: {row[1] for row in old.execute(f"PRAGMA table_info({name})")}
        for (name,) in old.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    old.close()
    marked = {
        table.name: {column.name for column in table.columns if is_in(column, version)}
        for table in metadata.sorted_tables
        if any(is_in(column, version) for column in table.columns)
    }
    assert marked == was


def test_what_was_added_lets_the_release_before_go_on_writing() -> None:
    added = [
        column
        for table in metadata.sorted_tables
        for column in table.columns
        if column.info.get("since", BASELINE) > table.info.get("since", BASELINE)
    ]
    assert [str(column) for column in added if not column.nullable and column.server_default is None] == []
    assert {column.info["since"] for column in added} <= set(range(BASELINE + 1, SCHEMA_VERSION + 1))


@pytest.mark.parametrize("version", EARLIER)
def test_a_database_of_an_earlier_release_is_brought_up_to_date_with_its_jobs(tmp_path: Path, version: int) -> None:
    path = tmp_path / "quorate.db"
    old = made_by_its_release(path, version)
    old.execute(OLD_JOB, (encode(SPEC).decode(), NOW))
    old.commit()
    old.close()
    store, fresh = open_store(path), open_store(tmp_path / "fresh.db")
    assert shape_of(store.database.engine) == shape_of(fresh.database.engine)
    assert [job.spec for job in store.jobs.live_jobs()] == [SPEC]
    store.close()
    fresh.close()


@pytest.mark.parametrize("version", EARLIER)
def test_names_of_a_database_of_an_earlier_release_are_those_of_firsts(where: Path | str, version: int) -> None:
    """Its arrays and jobs keep their ids; once they have ended, the next of their names is the second."""
    store, array = open_store(where), msgspec.structs.replace(SPEC, array=JobArray("0-1"))
    first = expand_array(JobName("sweep"), array)
    store.jobs.submit_all(first, "ada", NOW, "key")
    store.close()
    taken_back(where, version)
    again = open_store(where)
    second = expand_array(JobName("sweep#2"), array)
    with pytest.raises(DuplicateJobError, match="has not ended whole"):
        again.jobs.submit_all(second, "ada", NOW, "")
    epoch = again.ledger.lead("one", NOW, LEASE)
    again.jobs.finish_all(epoch, {job.name: JobOutcome("succeeded", NOW, 0) for job in first.jobs})
    assert again.jobs.submit_all(second, "ada", NOW, "key").name == "sweep"
    assert again.jobs.submit_all(second, "ada", NOW, "").name == "sweep#2"
    again.close()
    taken_back(where, version)
    last = open_store(where)
    assert last.jobs.resolved([JobName("sweep-1")]) == {"sweep-1": "sweep#2-1"}
    assert last.jobs.next_number([JobName("sweep")]) == 3
    last.close()


@pytest.mark.parametrize("version", EARLIER)
def test_back_and_up_again_keeps_what_lives(where: Path | str, version: int) -> None:
    store = open_store(where)
    with_live_job(store)
    before, claims = shape_of(store.database.engine), store.ledger.claims()
    store.close()
    taken_back(where, version)
    again = open_store(where)
    assert shape_of(again.database.engine) == before
    assert again.ledger.claims() == claims
    assert [job.name for job in again.jobs.live_jobs()] == ["a"]
    again.close()


def test_a_store_of_0_2_0_is_brought_up_to_date_and_works(where: Path | str) -> None:
    """It had placements and second jobs of a name, no second arrays, and nothing of pods."""
    store, train = open_store(where, lease_clock="caller"), JobName("train")
    epoch = store.ledger.lead("first", NOW, LEASE)
    store.jobs.submit(train, SPEC, "ada", NOW, "first")
    store.jobs.finish_all(epoch, {train: JobOutcome("succeeded", NOW, 0)})
    second = store.jobs.submit(train, SPEC, "ada", NOW, "second").name
    claim = claim_of(second, "n1/0", "n1/1")
    store.ledger.claim(epoch, claim, intent_of(claim))
    sweep = msgspec.structs.replace(SPEC, array=JobArray("0-1"))
    elements = [job.name for job in expand_array(JobName("sweep"), sweep).jobs]
    store.jobs.submit_all(expand_array(JobName("sweep"), sweep), "ada", NOW, "key")
    held = store.placements.of_job(second)
    assert held
    store.close()
    taken_back(where, 14)

    again = open_store(where, lease_clock="caller")
    assert list(problems_of(again.database)) == []
    epoch = again.ledger.lead("second", NOW.after(LEASE), LEASE)
    assert again.placements.of_job(second) == held
    assert again.jobs.resolved([train, JobName("sweep")]) == {"train": "train#2", "sweep": "sweep"}
    again.jobs.finish_all(epoch, {name: JobOutcome("succeeded", NOW, 0) for name in (second, *elements)})
    again.ledger.release(epoch, second, 1, NOW)
    assert again.jobs.submit(train, SPEC, "ada", NOW, "third").name == "train#3"
    assert again.jobs.submit_all(expand_array(JobName("sweep#2"), sweep), "ada", NOW, "").name == "sweep#2"
    again.pod_placements.keep(epoch, BEGUN)
    assert again.pod_placements.held() == {"uid-0": FIRST, "uid-1": SECOND}
    again.close()


def test_pods_that_0_2_0_took_for_lost_go_on(where: Path | str) -> None:
    """It works on this schema, and ends the placements of which no claim tells."""
    store = open_store(where, lease_clock="caller")
    epoch = store.ledger.lead("first", NOW, LEASE)
    store.pod_placements.keep(epoch, BEGUN)
    with store.database.engine.begin() as connection:
        for table in ("placements", "placement_nodes"):
            connection.execute(text(f"UPDATE {table} SET until = :now"), {"now": NOW.after(100)})
        connection.execute(text("UPDATE placements SET ended = 'lost'"))
    assert store.pod_placements.held() == {}
    store.pod_placements.keep(epoch, BEGUN._replace(at=NOW.after(500)))
    assert {uid: pod.since for uid, pod in store.pod_placements.held().items()} == {
        FIRST.uid: NOW.after(500),
        SECOND.uid: NOW.after(500),
    }
    store.close()


def test_rounds_that_an_earlier_release_can_not_read_go_on_the_way_back_to_it(where: Path | str) -> None:
    store = open_store(where)
    epoch = store.ledger.lead("first", NOW, LEASE)
    for revision in ("x", "y"):
        store.history.record_round(epoch, record_of(revision))
    store.close()
    taken_back(where, 14)
    between = open_store(where, as_found=True)
    assert len(between.history.rounds()) == 2
    between.close()
    taken_back(where, 13)
    again = open_store(where)
    assert again.history.rounds() == ()
    assert again.history.record_round(again.ledger.lead("first", NOW, LEASE), record_of()) > 0
    again.close()


@pytest.mark.parametrize("version", EARLIER)
def test_a_store_that_is_read_as_found_keeps_its_schema(where: Path | str, version: int) -> None:
    taken_back(where, version)
    found = open_store(where, as_found=True)
    before = shape_of(found.database.engine)
    assert ("agents" in before, "past_gangs" in before) == (version >= 14, False)
    assert list(problems_of(found.database)) == []
    assert shape_of(found.database.engine) == before
    found.close()


def test_what_has_no_store_is_not_given_one_by_reading(where: Path | str) -> None:
    if isinstance(where, Path):
        where.touch()
    with pytest.raises(StoreUnusableError, match="there is no store in it"):
        open_store(where, as_found=True)
    made = open_store(where)  # nothing stands in the way
    made.close()


@pytest.mark.parametrize("version", EARLIER)
def test_taken_back_it_is_what_the_earlier_release_made(tmp_path: Path, version: int) -> None:
    path = tmp_path / "quorate.db"
    taken_back(path, version)
    old = made_by_its_release(tmp_path / "old.db", version)

    def described(database: sqlite3.Connection) -> dict[str, list[Any]]:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: sorted(database.execute(f"PRAGMA table_info({name})")) for name in tables}

    found = sqlite3.connect(path)
    assert described(found) == described(old)
    assert found.execute("SELECT version FROM schema_version").fetchall() == [(version,)]
    found.close()
    old.close()


def test_many_that_start_at_once_change_the_schema_once(where: Path | str) -> None:
    taken_back(where, BASELINE)
    with ThreadPoolExecutor(4) as threads:
        for store in list(threads.map(open_store, [where] * 4)):
            assert store.jobs.live_jobs() == ()
            store.close()


def set_version(where: Path | str, version: int, readable_from: int) -> None:
    store = open_store(where)
    with store.database.engine.begin() as connection:
        connection.execute(
            text("UPDATE schema_version SET version = :v, readable_from = :r"), {"v": version, "r": readable_from}
        )
    store.close()


def test_a_newer_schema_is_used_where_its_program_said_so(where: Path | str) -> None:
    """One that it wrote with a table and a column more."""
    set_version(where, SCHEMA_VERSION + 1, SCHEMA_VERSION)
    store = open_store(where)
    with store.database.engine.begin() as connection:
        connection.execute(text("CREATE TABLE later (x INTEGER)"))
        connection.execute(text("ALTER TABLE jobs ADD COLUMN later TEXT NOT NULL DEFAULT ''"))
    with_live_job(store)
    store.close()
    again = open_store(where)
    assert [claim.job for claim in again.ledger.claims()] == ["a"]
    with again.database.engine.begin() as connection, pytest.raises(DowngradeRefusedError, match="takes back only"):
        downgrade(connection)
    again.close()


def test_a_newer_schema_that_this_program_can_not_read_is_refused(where: Path | str) -> None:
    set_version(where, SCHEMA_VERSION + 1, SCHEMA_VERSION + 1)
    with pytest.raises(StoreUnusableError, match=f"version {SCHEMA_VERSION + 1}, this program knows .*store downgrade"):
        open_store(where)


def test_one_that_is_too_old_is_refused(where: Path | str) -> None:
    set_version(where, BASELINE - 1, 0)
    with pytest.raises(StoreUnusableError, match=r"too old.*release that knows version 13"):
        open_store(where)


def test_an_upgrade_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "quorate.db"
    taken_back(path, BASELINE)

    def fail(*_: object) -> None:
        raise RuntimeError("the power goes")

    with monkeypatch.context() as patched:
        patched.setattr(migrations, "update", fail)
        with pytest.raises(RuntimeError):
            open_store(path)
    with sqlite3.connect(path) as found:
        assert found.execute("SELECT version FROM schema_version").fetchall() == [(13,)]
        assert "readable_from" not in {row[1] for row in found.execute("PRAGMA table_info(schema_version)")}
    found.close()
    store = open_store(path)
    store.close()
