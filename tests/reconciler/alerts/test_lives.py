"""What receivers hear of jobs that the loop takes through their lives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.alerts.alert import alert_of
from reconciler.documents.operations import Operations
from reconciler.model.retry_policy import Backoff, RetryPolicy
from solver.model.quantities import Duration
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from tests.reconciler.control.plane import Site, site_at


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_at(tmp_path / "quorate.db") as made:
        made.operations = Operations(retry=(RetryPolicy("twice", 1, Backoff(Duration(1_000))),))
        yield made


def told(site: Site) -> list[tuple[str, int]]:
    """Kinds and attempts."""
    alerts = (alert_of(kept, site.store.jobs.job) for kept in site.store.history.events_since(0))
    return [(alert.kind, alert.attempt) for alert in alerts if alert is not None]


def test_one_that_ends_well(site: Site) -> None:
    site.submit("job", ("sleep", "10s"))
    site.until("job", "succeeded")
    assert told(site) == [("started", 1), ("succeeded", 1)]


def test_one_that_fails_is_told_as_retried_until_it_has_failed_for_good(site: Site) -> None:
    spec = JobSpec(
        QueueName("q"), (TaskGroup("w", 1, Shape(gpus=1)),), command=("fail", "3", "10s"), retry_policy="twice"
    )
    site.store.jobs.submit(JobName("job"), spec, "ada", site.clock.now(), "key")
    site.until("job", "failed")
    assert told(site) == [("started", 1), ("retried", 1), ("started", 2), ("failed", 2)]


def test_one_that_is_suspended_while_it_runs_is_told_once_it_holds_nothing(site: Site) -> None:
    site.submit("job", ("sleep", "forever"))
    site.until("job", "running")
    site.store.jobs.request_suspend(JobName("job"), "ada")
    site.one_pass()
    assert told(site) == [("started", 1)]
    site.until("job", "suspended")
    assert told(site) == [("started", 1), ("suspended", 1)]


def test_one_that_is_cancelled(site: Site) -> None:
    site.submit("job", ("sleep", "forever"))
    site.until("job", "running")
    site.store.jobs.request_cancel(JobName("job"), "ada")
    site.until("job", "cancelled")
    assert told(site) == [("started", 1), ("cancelled", 1)]
