"""Hours of quota in the loop: their begin and end are seen without any event, limits heal, and guarantees are taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.control.queue_use import queue_uses
from reconciler.control.replay import replay
from solver.milp.highs import optimise
from solver.model.quantities import Duration
from solver.model.workload import QueueName
from solver.plan.plan import Bind
from solver.policy.harm import Convergence, Protection
from solver.policy.policy import Policy, PriorityClass, Queue, Quota, SchedulingPolicy, policy_of
from tests.reconciler.control.plane import START_DEADLINE, Site, site_at
from tests.reconciler.control.test_narrow_rounds import NarrowSite
from tests.reconciler.control.test_quietness import Looks
from tests.solver.quota.test_hours import hours_of
from tests.solver.worlds import quota_of

FOREVER = ("sleep", "forever")


def policy_with(site: Site, night: Quota, day: Quota, other: Quota | None = None) -> Policy:
    """Queue `q`, with another quota in a night that begins in two hours and lasts for two."""
    hour = int(site.clock.now()) // 3_600_000
    nights = hours_of("nights", [(hour + 2, hour + 4)], night)
    queues = (
        Queue(QueueName("q"), quota=(day,), hours=(nights,), convergence=Convergence(Duration(3_600_000))),
        Queue(QueueName("other"), quota=(other,) if other else ()),
    )
    classes = (PriorityClass("plain", protection=Protection(min_runtime=Duration(0))),)
    return policy_of(queues, classes, SchedulingPolicy(default_priority_class="plain", start_deadline=START_DEADLINE))


def at_edge(site: Site, number: int, before_ms: int = 0) -> None:
    """Let time pass until the night begins (0), or ends (1)."""
    site.clock.advance(site.policy.quota_edges[number] - site.clock.now() - before_ms)


def test_the_night_begins_and_ends_without_an_event(site: Site) -> None:
    site.policy = policy_with(site, quota_of("H100", 4, 8), quota_of("H100", 4, 4))
    for name in ("first", "second"):
        site.submit(name, FOREVER, gpus=4, queue="q")
    looks = Looks(site, pass_s=5)
    looks.settle()
    assert (site.state("first"), site.state("second")) == ("running", "reserved")
    looks_at_edge(looks, 0)
    site.rest()
    assert site.state("second") == "running"
    looks.settle()  # No job waits, and nothing tells of the end but the hours.
    (own,) = [use.hours for queue, use in queue_uses(site.one_pass().snapshot, site.policy) if queue.name == "q"]
    assert str(own) == f"hours nights until {site.policy.quota_edges[1]}, then none"
    looks_at_edge(looks, 1)
    assert [clock.queue for clock in site.store.ledger.clocks()] == ["q"]


def looks_at_edge(looks: Looks, number: int) -> None:
    """No look before the night begins (0), or ends (1), sees anything new, and the first one after does."""
    at_edge(looks.site, number, before_ms=15_000)
    looks.take()
    while looks.site.clock.now() < looks.site.policy.quota_edges[number].after(-1_000):
        assert not looks.look()
    assert looks.look()


def test_a_max_that_falls_heals_by_its_rule_across_restarts_from_the_end_of_the_window(site: Site) -> None:
    site.policy = policy_with(site, quota_of("H100", 4, 8), quota_of("H100", 4, 4))
    at_edge(site, 0)
    for name in ("first", "second"):
        site.submit(name, FOREVER, gpus=4, queue="q")
        site.rest()
    assert site.store.ledger.clocks() == ()
    at_edge(site, 1)
    site.one_pass(after_s=0)
    (clock,) = site.store.ledger.clocks()
    assert (clock.queue, str(clock.limit), clock.deadline) == ("q", "4", site.policy.quota_edges[1].after(3_600_000))
    cause = next(event.cause for event in site.store.history.events("q") if event.kind == "limit-broken")
    assert f"since its hours changed at {site.policy.quota_edges[1]}" in cause
    site.only_plane = site.plane("restarted")
    site.one_pass(after_s=3_500)
    assert [site.state(name) for name in ("first", "second")] == ["running", "running"]
    assert site.store.ledger.clocks() == (clock,)
    site.one_pass(after_s=101)
    site.one_pass(after_s=60)
    site.rest()
    assert sorted(site.state(name) for name in ("first", "second")) == ["queued", "running"]
    assert site.store.ledger.clocks() == ()


def test_a_guarantee_that_rises_is_taken_back_from_others(site: Site) -> None:
    site.policy = policy_with(site, quota_of("H100", 8), quota_of("H100", 4), quota_of("H100", 0))
    for name in ("first", "second"):
        site.submit(name, FOREVER, gpus=4, queue="other")
        site.rest()
    site.submit("mine", FOREVER, gpus=4, queue="q")
    site.rest()
    site.submit("night", FOREVER, gpus=4, queue="q")
    site.rest()
    running = {"first": site.state("first"), "second": site.state("second"), "mine": site.state("mine")}
    assert sorted(running.values()) == ["queued", "running", "running"]
    assert site.state("night") == "queued"
    at_edge(site, 0)
    site.one_pass(after_s=0)
    site.one_pass(after_s=60)
    site.rest()
    assert [site.state(name) for name in ("mine", "night", "first", "second")] == [
        "running",
        "running",
        "queued",
        "queued",
    ]


def test_a_round_of_the_night_replays_by_day(site: Site) -> None:
    site.policy = policy_with(site, quota_of("H100", 4, 8), quota_of("H100", 4, 4))
    at_edge(site, 0)
    site.submit("a", FOREVER, gpus=4, tasks=2, queue="q")
    done = site.one_pass(after_s=0)
    assert done.round is not None
    at_edge(site, 1)
    record = site.store.history.round(done.round)
    assert record is not None
    assert [step.job for step in done.plan.steps if isinstance(step, Bind)] == ["a"]
    assert replay(record, optimise).identical


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[NarrowSite]:
    with site_at(tmp_path / "quorate.db") as made:
        made.policy = policy_with(made, quota_of("H100", 8, 8), quota_of("H100", 4, 4))
        yield NarrowSite(made)


def test_no_job_starts_alone_by_the_quota_of_a_window_that_has_ended(narrow: NarrowSite) -> None:
    site = narrow.site
    at_edge(site, 0)
    narrow.rest()
    narrow.comes("in-time", gpus=4, queue="q")
    assert narrow.holds("in-time")
    at_edge(site, 1)
    narrow.comes("late", gpus=4, queue="q")
    assert not narrow.holds("late")
    narrow.rest()
    assert site.state("late") == "queued"
    assert (narrow.narrow.fault, narrow.told) == ("", [])
