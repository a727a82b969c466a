"""Evictions acted on: who is asked to leave waits again, and who was promised its devices gets exactly those."""

from __future__ import annotations

import msgspec
import pytest

from reconciler.alerts.alert import alert_of
from reconciler.analysis.backtest.history_file import recorded
from solver.model.cluster import GpuType
from solver.model.quantities import Duration, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.policy.harm import Protection
from solver.policy.policy import Policy, PriorityClass, Queue, Quota, SchedulingPolicy, policy_of
from tests.reconciler.control.plane import START_DEADLINE, Site


@pytest.fixture
def contended(site: Site) -> Site:
    """The lender is guaranteed half of the cluster, and the borrower holds all of it."""
    site.policy = policy_of(
        (
            Queue(QueueName("lender"), quota=(Quota(GpuType("H100"), guaranteed=MilliGpu.gpus(4)),)),
            Queue(QueueName("borrower"), quota=(Quota(GpuType("H100"), guaranteed=MilliGpu.gpus(4)),)),
        ),
        (PriorityClass("plain", protection=Protection(min_runtime=Duration(0))),),
        SchedulingPolicy(default_priority_class="plain", start_deadline=START_DEADLINE),
    )
    for name in ("first", "second"):
        site.submit(name, ("sleep", "forever"), gpus=4, queue="borrower")
        site.rest()
    return site


def devices_of(site: Site, name: str) -> list[str]:
    """What a job holds."""
    return [
        device for claim in site.store.ledger.claims() if claim.job == name for t in claim.tasks for device in t.devices
    ]


def test_borrowed_work_leaves_waits_again_and_the_owner_gets_its_devices(contended: Site) -> None:
    site = contended
    given_up = devices_of(site, "second")
    site.submit("owner", ("sleep", "forever"), gpus=4, queue="lender")
    site.one_pass()
    assert (site.state("second"), site.state("owner")) == ("evicting", "reserved")
    assert [intent.job for intent in site.store.ledger.intents() if intent.kind == "nominate"] == ["owner"]
    site.one_pass(after_s=60)
    site.rest()
    assert devices_of(site, "owner") == given_up
    assert (site.state("owner"), site.state("second"), site.state("first")) == ("running", "queued", "running")
    assert len(site.store.ledger.evictions()[JobName("second")]) == 1
    assert "promised" in site.events("owner")


def test_its_event_says_which_attempt_leaves_for_whom_and_is_told(contended: Site) -> None:
    site = contended
    site.submit("owner", ("sleep", "forever"), gpus=4, queue="lender")
    site.one_pass()
    (asked,) = [kept for kept in site.store.history.events_since(0) if kept.event.kind == "asked-to-stop"]
    assert (asked.event.attempt, asked.event.purpose, asked.event.beneficiary) == (1, "evict", "owner")
    alert = alert_of(asked, site.store.jobs.job)
    assert alert is not None
    assert (alert.kind, alert.job, alert.queue, alert.beneficiary) == ("evicted", "second", "borrower", "owner")


def test_the_history_has_the_attempt_that_was_evicted_and_the_one_that_runs(contended: Site) -> None:
    site = contended
    site.submit("owner", ("sleep", "5s"), gpus=4, queue="lender")
    site.one_pass()
    site.one_pass(after_s=60)
    site.rest()
    site.one_pass(after_s=120)  # The owner has ended, and the back-off of who was evicted is over.
    site.rest()
    found = {}
    for name in ("second", "owner"):
        record = site.store.jobs.job(JobName(name))
        found[name] = recorded(record, record.spec, site.store.history.events(name))
    (first, second), (only,) = found["second"].attempts, found["owner"].attempts
    assert (first.stopped_for, second.ended_at, only.stopped_for) == ("evict", None, None)
    assert first.ended_at is not None
    assert first.started_at < first.ended_at <= only.started_at <= second.started_at
    assert (found["owner"].ended_as, only.ended_at) == ("succeeded", found["owner"].ended_at)


def test_nobody_else_is_asked_to_leave_meanwhile(contended: Site) -> None:
    site = contended
    site.submit("owner", ("sleep", "forever"), gpus=4, queue="lender")
    site.one_pass()
    asked = {intent.id for intent in site.store.ledger.intents()}
    plan = site.one_pass(after_s=0).plan
    assert plan.steps == ()
    assert {intent.id for intent in site.store.ledger.intents()} == asked


def test_a_promise_ends_with_the_job_it_was_made_to(contended: Site) -> None:
    site = contended
    name = site.submit("owner", ("sleep", "forever"), gpus=4, queue="lender")
    site.one_pass()
    site.store.jobs.request_cancel(name, "ada")
    site.one_pass(after_s=60)
    site.rest()
    assert [intent for intent in site.store.ledger.intents() if intent.kind == "nominate"] == []
    site.one_pass(after_s=120)  # once its back-off is over
    site.rest()
    assert site.state("second") == "running"


def test_who_finishes_before_the_order_to_leave_arrives_has_succeeded(contended: Site) -> None:
    site = contended
    site.store.jobs.request_cancel(JobName("second"), "ada")
    site.one_pass()
    site.one_pass(after_s=60)
    site.submit("short", ("sleep", "5s"), gpus=4, queue="borrower")
    site.rest()
    site.faults(lost=1.0)
    site.submit("owner", ("sleep", "forever"), gpus=4, queue="lender")
    site.one_pass()
    assert site.state("short") == "evicting"
    site.one_pass(after_s=30)
    assert site.state("short") == "succeeded"


def test_a_limit_lowered_under_what_runs_heals_in_its_time_across_restarts(contended: Site) -> None:
    site = contended
    site.policy = lowered(site.policy, gpus_max=4)
    site.rest()
    (clock,) = site.store.ledger.clocks()
    assert (clock.queue, str(clock.limit)) == ("borrower", "4")
    assert "limit-broken" in site.events("borrower")
    site.only_plane = site.plane("restarted")
    site.one_pass(after_s=86_300)
    assert [site.state(name) for name in ("first", "second")] == ["running", "running"]
    assert site.store.ledger.clocks() == (clock,)
    site.one_pass(after_s=200)
    site.one_pass(after_s=60)
    site.rest()
    assert sorted(site.state(name) for name in ("first", "second")) == ["queued", "running"]
    assert site.store.ledger.clocks() == ()
    assert "limit-kept" in site.events("borrower")


def test_a_revert_before_its_time_lets_everybody_stay(contended: Site) -> None:
    site, before = contended, contended.policy
    site.policy = lowered(before, gpus_max=4)
    site.rest()
    site.policy = before
    site.one_pass(after_s=86_500)
    assert site.store.ledger.clocks() == ()
    assert [site.state(name) for name in ("first", "second")] == ["running", "running"]


def test_a_queue_that_drains_sends_its_jobs_back_to_wait(contended: Site) -> None:
    site = contended
    site.policy = msgspec.structs.replace(
        site.policy,
        queues=tuple(msgspec.structs.replace(queue, stop_policy="HoldAndDrain") for queue in site.policy.queues),
    )
    site.one_pass()
    site.one_pass(after_s=60)
    site.rest()
    assert [site.state(name) for name in ("first", "second")] == ["queued", "queued"]
    assert set(site.ran("first")) == {"stopped"}


def lowered(policy: Policy, gpus_max: int) -> Policy:
    """The borrower may hold no more than so much."""
    entry = Quota(GpuType("H100"), guaranteed=MilliGpu.gpus(4), max=MilliGpu.gpus(gpus_max))
    queues = (
        msgspec.structs.replace(queue, quota=(entry,)) if queue.name == "borrower" else queue for queue in policy.queues
    )
    return msgspec.structs.replace(policy, queues=tuple(queues))
