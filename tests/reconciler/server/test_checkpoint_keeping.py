"""The thread that keeps checkpoints: under the loop's epoch, from policy and stores to events and the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from reconciler.control.control import PolicyInForce
from reconciler.control.ledger_site import one_pass
from reconciler.documents.operations import Operations
from reconciler.lifecycle.checkpoints.keeper import Keeper
from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.model.job_record import JobOutcome, JobRecord
from reconciler.protocols.backend import Epoch
from reconciler.protocols.job_source import ALL_JOBS, JobQuery
from reconciler.server.checkpoints import LATE_PARTS, LONG_ENDED_EVERY_S, CheckpointKeeping
from reconciler.store.jobs import SqlJobSource
from solver.model.quantities import Duration
from solver.model.workload import Checkpoint, JobName
from tests.contracts.stores import SPEC
from tests.reconciler.control.plane import Site
from tests.reconciler.lifecycle.checkpoints.storages import JOB, hand_in


class Saving(Site):
    """With a place for checkpoints in force, and one job that uses it."""

    storage = ""

    def current(self) -> PolicyInForce:
        known = CheckpointPolicy("default", self.storage)
        return super().current()._replace(operations=Operations(checkpoints=(known,)))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Saving]:
    made = Saving(tmp_path / "quorate.db")
    made.storage = f"file://{tmp_path}/storage"
    saves = msgspec.structs.replace(SPEC, checkpoint=Checkpoint(Duration(60_000)))
    made.store.jobs.submit(JOB, saves, "ada", made.clock.now(), "key")
    yield made
    made.store.close()


def keeping_of(site: Saving, epoch: Epoch | None) -> CheckpointKeeping:
    keeper = Keeper(site.store.checkpoints, "control-plane")
    return CheckpointKeeping(site.only_plane, keeper, lambda: epoch, structlog.get_logger())


def records_of(keeping: CheckpointKeeping, site: Saving) -> tuple[JobRecord, ...]:
    return keeping._records(keeping._look_again(), site.clock.now())


def test_the_stores_are_read_once_in_a_look_and_of_jobs_that_wait_or_ended_no_more_than_matters(
    site: Saving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While jobs pour in something is written at any time."""
    epoch = one_pass(site.only_plane).epoch
    site.store.jobs.submit(JobName("waits"), site.store.jobs.job(JOB).spec, "ada", site.clock.now(), "")
    read: list[JobQuery] = []
    jobs = SqlJobSource.jobs

    def noted(source: SqlJobSource, limit: int = 1000, after: JobName | None = None, query: JobQuery = ALL_JOBS) -> Any:
        read.append(query)
        found = jobs(source, limit, after, query)
        source.request_suspend(JobName("waits"), "ada")
        return found

    monkeypatch.setattr(SqlJobSource, "jobs", noted)
    keeping_of(site, epoch).look()
    assert read == [JobQuery(live=False)]


def test_what_a_job_saves_is_recorded_with_its_events(site: Saving, tmp_path: Path) -> None:
    hand_in(f"{site.storage}/{JOB}", tmp_path, 100, {"weights": b"w"})
    keeping_of(site, None).look()
    assert site.store.checkpoints.of(JOB) == ()
    keeping_of(site, one_pass(site.only_plane).epoch).look()
    assert [(known.step, known.state) for known in site.store.checkpoints.of(JOB)] == [(100, "verified")]
    kinds = [event.kind for event in site.store.history.events(JOB)]
    assert kinds[-2:] == ["checkpoint-published", "checkpoint-verified"]


def test_folders_of_jobs_that_have_never_begun_are_not_looked_at(site: Saving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands may wait, and a look at a folder takes its time, which those need that save."""
    epoch = one_pass(site.only_plane).epoch
    spec = site.store.jobs.job(JOB).spec
    site.store.jobs.submit(JobName("waits"), spec, "ada", site.clock.now(), "")
    looked_at: list[JobName] = []

    def look(_: Keeper, __: Epoch, ___: CheckpointPolicy, job: JobRecord, *____: object) -> tuple[()]:
        looked_at.append(job.name)
        return ()

    monkeypatch.setattr(Keeper, "_look", look)
    keeping_of(site, epoch).look()
    assert looked_at == [JOB]


def test_who_leads_no_more_keeps_nothing_and_goes_on(site: Saving, tmp_path: Path) -> None:
    hand_in(f"{site.storage}/{JOB}", tmp_path, 100, {"weights": b"w"})
    epoch = one_pass(site.only_plane).epoch
    site.store.ledger.resign(epoch)
    site.store.ledger.lead("other", site.clock.now(), Duration(60_000))
    with capture_logs() as lines:
        keeping_of(site, epoch).look()
    assert site.store.checkpoints.of(JOB) == ()
    assert [line["event"] for line in lines] == ["checkpoints-not-kept"]


def test_a_storage_that_can_not_be_used_is_told_once(site: Saving) -> None:
    site.storage = "nothing-speaks-this://x"
    keeping = keeping_of(site, one_pass(site.only_plane).epoch)
    with capture_logs() as lines:
        keeping.look()
        keeping.look()
    assert [(line["event"], line["policy"]) for line in lines] == [("checkpoint-storage", "default")]
    assert "Check that it is there" in lines[0]["message"]


def test_a_job_that_has_ended_is_looked_at_while_it_may_have_saved_something(site: Saving, tmp_path: Path) -> None:
    epoch = one_pass(site.only_plane).epoch
    site.store.jobs.finish(epoch, JOB, JobOutcome("failed", site.clock.now(), 1))
    hand_in(f"{site.storage}/{JOB}", tmp_path, 100, {"weights": b"w"})
    keeping_of(site, epoch).look()
    assert len(site.store.checkpoints.of(JOB)) == 1
    site.clock.advance(int(LATE_PARTS) + 1)
    assert [record.name for record in records_of(keeping_of(site, epoch), site)] == [JOB]
    site.store.checkpoints.delete(epoch, site.store.checkpoints.of(JOB)[0].key)
    assert records_of(keeping_of(site, epoch), site) == ()


def test_a_job_that_ended_long_ago_is_looked_at_seldom(site: Saving, tmp_path: Path) -> None:
    epoch = one_pass(site.only_plane).epoch
    hand_in(f"{site.storage}/{JOB}", tmp_path, 100, {"weights": b"w"})
    keeping = keeping_of(site, epoch)
    keeping.look()
    site.store.jobs.finish(epoch, JOB, JobOutcome("failed", site.clock.now(), 1))
    site.clock.advance(int(LATE_PARTS) + 1)
    looked_at = []
    for _ in range(3):
        looked_at.append(len(records_of(keeping, site)))
        site.clock.advance(int(LONG_ENDED_EVERY_S * 1_000) // 2)
    assert looked_at == [1, 0, 1]
