"""What every pass reads whole is made anew only where it changed; what it says is what the tables say."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import pytest
from sqlalchemy import event

from reconciler.model.failure import Failure
from reconciler.model.job_groups import Submission
from reconciler.model.job_record import JobOutcome
from reconciler.store.database import Database
from reconciler.store.jobs import SqlJobSource
from reconciler.store.rows import ALIKE_CHARACTERS_MAX, NAMES_MAX
from reconciler.store.store import SqlStore
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, JobSpec
from tests.fresh_store import fresh_store
from tests.reconciler.api.conftest import spec

NOW = Instant(1_000)
T = TypeVar("T")
A, B, C = JobName("a"), JobName("b"), JobName("c")


@pytest.fixture
def store(tmp_path: Path) -> SqlStore:
    made = fresh_store(tmp_path / "quorate.db")
    for name in (A, B, C):
        made.jobs.submit(name, spec(), "ada", NOW, "")
    return made


def test_a_job_that_is_as_it_was_is_the_same_object(store: SqlStore) -> None:
    before = {record.name: record for record in store.jobs.live_jobs()}
    store.jobs.request_cancel(B, "ada")
    after = {record.name: record for record in store.jobs.live_jobs()}
    assert after[A] is before[A]
    assert (before[B].cancel_requested_by, after[B].cancel_requested_by) == ("", "ada")
    assert list(after.values()) == list(SqlJobSource(store.jobs._database).live_jobs())


def test_what_is_gone_is_forgotten(store: SqlStore) -> None:
    store.jobs.live_jobs()
    epoch = store.ledger.lead("me", NOW, Duration(10_000))
    store.jobs.finish(epoch, C, JobOutcome("cancelled", NOW))
    assert [record.name for record in store.jobs.live_jobs()] == [A, B]
    assert sorted(store.jobs._live._latest) == [A, B]


def test_specs_that_are_alike_are_read_once(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30,000 jobs with which a control plane begins most are asked for in the same words as others."""
    read: list[type] = []
    as_before = Database.read_document

    def noted(database: Database, stored: str | bytes, kind: type[T]) -> T:
        read.append(kind)
        return as_before(database, stored, kind)

    monkeypatch.setattr(Database, "read_document", noted)
    began = SqlJobSource(store.jobs._database)
    assert [record.spec for record in began.live_jobs()] == [spec()] * 3
    assert read == [JobSpec]
    store.jobs.submit(JobName("d"), spec(command=("false",)), "ada", NOW, "")
    assert began.job(JobName("d")).spec == spec(command=("false",))
    assert read == [JobSpec, JobSpec]


def test_what_is_too_large_to_be_remembered_is_read_all_the_same(store: SqlStore) -> None:
    large = spec(command=("a" * ALIKE_CHARACTERS_MAX,))
    store.jobs.submit(JobName("d"), large, "ada", NOW, "")
    assert [store.jobs.job(JobName("d")).spec for _ in range(2)] == [large, large]
    assert store.jobs._specs.remembered == 0


@pytest.fixture
def statements(store: SqlStore) -> list[str]:
    """Those that have been asked of the database since."""
    asked: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        asked.append(statement)

    event.listen(store.database.engine, "before_cursor_execute", note)
    return asked


def test_rows_are_read_once_until_something_is_written_or_the_lease_is_renewed(
    store: SqlStore, statements: list[str]
) -> None:
    """A pass settles by what it decides on later: between the two nothing has changed as a rule."""

    def readings() -> list[int]:
        return [sum(f"ORDER BY {column}" in one for one in statements) for column in ("jobs.name", "claims.job")]

    store.ledger.lead("me", NOW, Duration(10_000))
    jobs = store.jobs.live_jobs()
    store.ledger.claims()
    assert readings() == [1, 1]
    assert [store.jobs.live_jobs() for _ in range(3)] == [jobs] * 3
    assert store.ledger.claims() == ()
    assert readings() == [1, 1]
    store.jobs.request_suspend(A, "ada")
    statements.clear()
    assert {record.name: record.suspended_by for record in store.jobs.live_jobs()} == {A: "ada", B: "", C: ""}
    store.ledger.lead("me", Instant(NOW + 1), Duration(10_000))
    store.jobs.live_jobs()
    store.ledger.claims()
    assert readings() == [2, 1]


def test_of_failures_only_those_of_live_jobs_are_read(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = store.ledger.lead("me", NOW, Duration(10_000))
    for name in (A, B):
        store.jobs.retry(epoch, name, Failure(1, "node", NOW, NOW))
    store.jobs.finish(epoch, B, JobOutcome("cancelled", NOW))
    read: list[type] = []
    as_before = Database.read_document

    def noted(database: Database, stored: str | bytes, kind: type[T]) -> T:
        read.append(kind)
        return as_before(database, stored, kind)

    monkeypatch.setattr(Database, "read_document", noted)
    assert [len(record.failures) for record in store.jobs.live_jobs()] == [1, 0]
    assert read.count(Failure) == 1


def test_standings_are_counted_once_until_something_is_written(store: SqlStore) -> None:
    counted: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        counted.extend([statement] if "count(*)" in statement else ())

    event.listen(store.database.engine, "before_cursor_execute", note)
    first = store.ledger.standings()
    assert [store.ledger.standings() for _ in range(5)] == [first] * 5
    assert len(counted) == 1
    store.jobs.request_suspend(A, "ada")
    assert sorted(store.ledger.standings().values()) == [1, 2]
    assert len(counted) == 2


def test_only_what_may_change_of_a_job_is_read_again(store: SqlStore, statements: list[str]) -> None:
    """What was asked for stays as it is, and is most of a row: of 30,000 jobs it is neither read nor kept as text."""
    before = {record.name: record for record in store.jobs.live_jobs()}
    statements.clear()
    store.jobs.request_suspend(B, "ada")
    store.jobs.submit(JobName("d"), spec(), "ada", NOW, "")
    statements.clear()
    after = {record.name: record for record in store.jobs.live_jobs()}
    whole = [one for one in statements if "jobs.spec" in one]
    assert len(whole) == 1
    assert "jobs.name IN" in whole[0]
    assert after[A] is before[A]
    assert after[B] == store.jobs.job(B) != before[B]
    assert list(after) == [A, B, C, "d"]


@pytest.mark.parametrize("more", [0, NAMES_MAX])
def test_each_change_of_a_job_is_seen(store: SqlStore, more: int) -> None:
    epoch = store.ledger.lead("me", NOW, Duration(10_000))
    asked = [Submission(JobName(f"more-{number}"), spec(), "ada", NOW, "") for number in range(more)]
    store.jobs.submit_each(asked)
    for change in (
        lambda: store.jobs.request_cancel(A, "ada"),
        lambda: store.jobs.request_suspend(A, "ada"),
        lambda: store.jobs.resume(A),
        lambda: store.jobs.request_requeue(A, 1, "ada"),
        lambda: store.jobs.request_requeue(A, 2, "ada"),
        lambda: store.jobs.retry(epoch, A, Failure(1, "node", NOW, NOW)),
        lambda: store.jobs.retry(epoch, A, Failure(2, "node", NOW, NOW, outlived=1)),
        lambda: store.jobs.finish(epoch, A, JobOutcome("cancelled", NOW)),
    ):
        change()
        assert list(store.jobs.live_jobs()) == list(SqlJobSource(store.database).live_jobs())
        assert all(store.jobs.job(record.name) == record for record in store.jobs.live_jobs()[:3])
