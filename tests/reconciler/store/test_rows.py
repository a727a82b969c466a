"""What every pass reads whole is made anew only where it changed; what it says is what the tables say."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.model.job_record import JobOutcome
from reconciler.store.jobs import SqlJobSource
from reconciler.store.store import SqlStore, open_store
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName
from tests.reconciler.api.conftest import spec

NOW = Instant(1_000)
A, B, C = JobName("a"), JobName("b"), JobName("c")


@pytest.fixture
def store(tmp_path: Path) -> SqlStore:
    made = open_store(tmp_path / "quorate.db")
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
