"""Alerts about waiting: what is short, a forecast that was missed, a guarantee that is not met; each told once, as policies ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from reconciler.alerts.alert import Alert, alert_of, wants
from reconciler.alerts.kinds import ABOUT_WAITS
from reconciler.alerts.policy import AlertPolicy, AlertThresholds, Webhook
from reconciler.control.passes import Pass
from reconciler.server.wait_watch import WaitWatch
from solver.model.quantities import Duration
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from solver.policy.policy import Queue, policy_of
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.control.plane import Site, site_at
from tests.solver.worlds import quota_of

HOUR = 3_600
GPUS = sum(len(node.gpus) for node in NODES)
TYPE = NODES[0].gpu_type
HOOK = (Webhook("hook", "https://alerts.example.com/"),)
CLOSED = tuple(msgspec.structs.replace(node, cordoned=True) for node in NODES)


class Watched:
    """A site whose waiting jobs are looked at after every pass."""

    def __init__(self, site: Site) -> None:
        self.site, self.last = site, None
        self.leads = True
        self.watch = self.another()
        self.allow(AlertPolicy("all", HOOK, on=ABOUT_WAITS))

    last: Pass | None

    def another(self) -> WaitWatch:
        """As after a restart."""
        site = self.site
        return WaitWatch(site.store.history, site, site.clock, lambda: self.leads, lambda: self.last, "holder")

    def allow(self, *policies: AlertPolicy) -> None:
        self.site.operations = msgspec.structs.replace(self.site.operations, alerts=policies)

    def after(self, seconds: int) -> None:
        self.last = self.site.one_pass(seconds)
        self.watch.look()

    def told(self, policy: AlertPolicy | None = None) -> list[Alert]:
        """What a policy has told, by default the first."""
        policy = policy or self.site.operations.alerts[0]
        kept = self.site.store.history.events_since(0)
        found = [alert_of(one, self.site.store.jobs.job) for one in kept]
        return [alert for alert in found if alert and alert.kind in ABOUT_WAITS and wants(policy, alert, {})]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with site_at(tmp_path / "store.db") as site:
        yield Watched(site)


def test_what_is_short_for_an_hour_is_told_once(watched: Watched) -> None:
    watched.site.submit("holder", ("sleep", "forever"), gpus=GPUS // len(NODES), tasks=len(NODES))
    watched.after(1)
    watched.site.submit("waiter", ("sleep", "forever"))
    watched.after(HOUR - 60)
    assert watched.told() == []
    watched.after(120)
    (told,) = [alert for alert in watched.told() if alert.kind == "capacity"]
    assert (told.subject, told.job, told.after) == (f"capacity:{TYPE}", "", "1h")
    assert told.cause == f"1 job of 1 GPU waits 1h or longer for {TYPE}: waiter for 1h1m"
    watched.after(60)
    watched.watch = watched.another()
    watched.after(60)
    assert [alert.kind for alert in watched.told()].count("capacity") == 1


def test_a_job_that_waits_beyond_its_first_forecast_is_told(watched: Watched) -> None:
    watched.site.submit("holder", ("sleep", "forever"), gpus=GPUS // len(NODES), tasks=len(NODES), limit_s=600)
    watched.after(1)
    watched.site.submit("waiter", ("sleep", "forever"))
    watched.after(1)
    watched.site.declared = CLOSED
    watched.after(600 + 29 * 60)
    assert watched.told() == []
    watched.after(120)
    (told,) = watched.told()
    assert (told.kind, told.job, told.queue, told.user) == ("forecast-missed", "waiter", "q", "ada")
    assert told.cause.startswith("it was to start at ")
    assert told.cause.endswith("; now: unknown")


def test_a_job_inside_its_guarantee_that_waits_is_told_and_one_beyond_it_is_not(watched: Watched) -> None:
    queues = (Queue(QueueName("q"), quota=(quota_of(TYPE, 2),)), Queue(QueueName("p"), quota=(quota_of(TYPE, 0),)))
    watched.site.policy = policy_of(queues)
    watched.site.declared = CLOSED
    for name, queue in (("first", "q"), ("second", "q"), ("third", "q"), ("other", "p")):
        watched.site.submit(name, ("sleep", "forever"), queue=queue)
        watched.after(1)
    watched.after(HOUR)
    told = {alert.job: alert.cause for alert in watched.told() if alert.kind == "guarantee-not-met-for"}
    assert set(told) == {"first", "second"}
    assert told["first"] == f"it waits 1h for 1 {TYPE}, inside the guarantee of queue q"


def test_a_job_that_may_not_be_in_time_is_told_once(watched: Watched) -> None:
    watched.allow(AlertPolicy("late", HOOK, on=("finish-by-at-risk",)))
    watched.site.submit("holder", ("sleep", "forever"), gpus=GPUS // len(NODES), tasks=len(NODES), limit_s=HOUR)
    watched.after(1)
    for name, left in (("in-time", 3 * HOUR), ("late", HOUR)):
        group = TaskGroup("worker", 1, Shape(gpus=1), command=("sleep", "forever"))
        by = watched.site.clock.now().after(left * 1_000)
        spec = JobSpec(QueueName("q"), (group,), time_limit=Duration(600_000), finish_by=by)
        watched.site.store.jobs.submit(JobName(name), spec, "ada", watched.site.clock.now(), name)
    watched.after(60)
    (told,) = watched.told()
    assert (told.kind, told.job) == ("finish-by-at-risk", "late")
    assert told.cause.startswith("it may end after its finishBy, ")
    assert told.cause.endswith(", and may run for 10m")
    watched.after(60)
    assert len(watched.told()) == 1


def test_each_policy_is_told_at_its_own_threshold_and_of_its_own_queues(watched: Watched) -> None:
    soon = AlertPolicy(
        "soon", HOOK, on=("guarantee-not-met-for",), after=AlertThresholds(guarantee_not_met_for=Duration(60_000))
    )
    late = msgspec.structs.replace(soon, name="late", after=AlertThresholds())
    elsewhere = msgspec.structs.replace(soon, name="elsewhere", queues=(QueueName("other"),))
    watched.allow(soon, late, elsewhere)
    watched.site.policy = policy_of((Queue(QueueName("q"), quota=(quota_of(TYPE, 2),)),))
    watched.site.declared = CLOSED
    watched.site.submit("waiter", ("sleep", "forever"))
    watched.after(120)
    assert [len(watched.told(policy)) for policy in (soon, late, elsewhere)] == [1, 0, 0]
    watched.after(HOUR)
    assert [len(watched.told(policy)) for policy in (soon, late, elsewhere)] == [1, 1, 0]


def test_who_does_not_lead_and_what_nobody_asked_for_tells_nothing(watched: Watched) -> None:
    watched.site.declared = CLOSED
    watched.site.submit("waiter", ("sleep", "forever"))
    watched.leads = False
    watched.after(2 * HOUR)
    watched.leads = True
    watched.allow(AlertPolicy("usual", HOOK), AlertPolicy("off", HOOK, on=ABOUT_WAITS, enabled=False))
    watched.after(HOUR)
    kinds = [event.kind for event in watched.site.store.history.events(JobName("waiter"))]
    assert set(kinds).isdisjoint(ABOUT_WAITS)
