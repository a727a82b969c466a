"""What people ask of a job while it waits or runs: to be suspended, resumed, requeued, cancelled; and what is on record of it."""

from __future__ import annotations

from typing import get_args

import pytest

from reconciler.control.settler import Settler
from reconciler.lifecycle.jobs.settlements import Retry
from reconciler.lifecycle.jobs.states import FOLLOWERS
from reconciler.model.failure import Failure
from reconciler.model.job_record import JobState
from solver.model.workload import JobName
from tests.reconciler.control.plane import Site

JOB = JobName("job")


@pytest.fixture
def running(site: Site) -> Site:
    site.submit(JOB, ("sleep", "forever"), tasks=2)
    site.until(JOB, "running")
    return site


def test_a_suspended_job_gives_back_what_it_holds_and_goes_on_when_it_is_resumed(running: Site) -> None:
    running.store.jobs.request_suspend(JOB, "ada")
    running.passes(1)
    assert running.state(JOB) == "evicting"
    running.until(JOB, "suspended")
    assert running.store.ledger.claims() == ()
    running.passes(5)
    assert running.state(JOB) == "suspended", "no round is asked about it"
    assert running.store.ledger.evictions() == {}, "nobody has evicted it"
    running.store.jobs.resume(JOB)
    running.until(JOB, "running")
    assert running.store.ledger.attempts()[JOB] == 2
    assert running.states(JOB) == ["starting", "running", "evicting", "suspended", "starting", "running"]


def test_a_waiting_job_that_is_suspended_does_not_begin(site: Site) -> None:
    site.submit(JOB, ("sleep", "forever"))
    site.store.jobs.request_suspend(JOB, "ada")
    site.passes(3)
    assert (site.state(JOB), site.store.ledger.attempts()) == ("suspended", {})


def test_a_job_that_is_suspended_between_the_round_and_its_bind_does_not_begin(site: Site) -> None:
    site.submit(JOB, ("sleep", "forever"))
    solve = site.only_plane.solve

    def suspended_meanwhile(*world: object) -> object:
        site.store.jobs.request_suspend(JOB, "ada")
        return solve(*world)  # type: ignore[arg-type]

    object.__setattr__(site.only_plane, "solve", suspended_meanwhile)
    assert site.one_pass().refused == 1
    assert site.state(JOB) == "suspended"


def test_a_requeued_job_begins_anew_once(running: Site) -> None:
    running.store.jobs.request_requeue(JOB, 1, "ada")
    running.until(JOB, "starting")
    running.until(JOB, "running")
    assert running.store.ledger.attempts()[JOB] == 2
    running.store.jobs.request_requeue(JOB, 1, "bob")
    running.passes(5)
    assert running.store.ledger.attempts()[JOB] == 2, "that attempt is over"


def test_a_suspended_job_can_be_cancelled(running: Site) -> None:
    running.store.jobs.request_suspend(JOB, "ada")
    running.until(JOB, "suspended")
    running.store.jobs.request_cancel(JOB, "ada")
    running.passes(2)
    assert running.state(JOB) == "cancelled"


def test_who_ends_well_before_the_order_to_leave_arrives_has_succeeded(site: Site) -> None:
    site.submit(JOB, ("sleep", "3s"))
    site.passes(2)
    site.store.jobs.request_suspend(JOB, "ada")
    site.clock.advance(60_000)
    site.passes(3)
    assert site.state(JOB) == "succeeded"


def test_a_job_whose_attempt_failed_waits_until_its_time_has_come(site: Site) -> None:
    site.submit(JOB, ("sleep", "forever"))
    site.passes(3)
    plane = site.only_plane
    epoch = plane.ledger.lead(plane.holder, site.clock.now(), plane.lease)
    failure = Failure(1, "node", site.clock.now(), site.clock.now().after(30_000), message="node n0 is gone")
    Settler(plane, epoch).apply_all([Retry(JOB, failure)])
    site.store.ledger.release(epoch, JOB, 1, site.clock.now())
    assert site.state(JOB) == "retrying"
    site.passes(5)
    assert site.state(JOB) == "retrying"
    site.clock.advance(30_000)
    site.until(JOB, "running")
    assert site.store.ledger.attempts()[JOB] == 2
    assert site.store.jobs.job(JOB).failures == (failure,)


def test_the_table_knows_every_state_and_can_be_left_and_reached() -> None:
    states = set(get_args(JobState))
    assert set(FOLLOWERS) == states
    reached = {"queued"}.union(*FOLLOWERS.values())
    assert reached == states
