"""Where nothing has changed no pass is taken; whatever changes, the next one is, and time alone is never waited for too long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from reconciler.control.control import Solved
from reconciler.control.ledger_site import one_pass
from reconciler.control.quietness import REST_PER_PASS, REST_S_MAX, Quietness
from reconciler.control.runner import LoopStatus, Pace, Runner
from reconciler.model.clock import SystemClock
from reconciler.protocols.backend import Epoch
from reconciler.protocols.history import Event
from reconciler.store.ledger import SqlLedger
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.policy.policy import Policy
from tests.reconciler.control.plane import Site
from tests.reconciler.control.test_runner import running, until


class Looks:
    """Looks at a site a second apart, as a loop does that nothing wakes."""

    def __init__(self, site: Site, pass_s: float = 1.0) -> None:
        self.site = site
        self.quietness = Quietness(site.only_plane)
        self.pass_s = pass_s

    def look(self) -> bool:
        """Whether a pass was taken, which takes its time."""
        self.site.clock.advance(1_000)
        if self.quietness.holds():
            return False
        self.take()
        return True

    def take(self) -> None:
        """A pass."""
        self.quietness.begin()
        self.site.clock.advance(int(self.pass_s * 1_000))
        self.quietness.end(one_pass(self.site.only_plane))

    def settle(self) -> None:
        """Until it is quiet."""
        for _ in range(50):
            if not self.look():
                return
        raise AssertionError("it does not become quiet")


@pytest.fixture
def looks(site: Site) -> Looks:
    """One job runs for ever, one for half a minute, and one waits."""
    site.submit("runs", ("sleep", "forever"), gpus=4)
    site.submit("ends", ("sleep", "30s"), gpus=4)
    site.submit("waits", ("sleep", "forever"), gpus=4, tasks=9)
    found = Looks(site)
    found.settle()
    return found


CHANGES: dict[str, Callable[[Site], object]] = {
    "a submission": lambda site: site.submit("new", ("true",)),
    "a cancellation": lambda site: site.store.jobs.request_cancel(JobName("waits"), "ada"),
    "a task that ends": lambda site: site.clock.advance(30_000),
    "an event, whichever process tells it": lambda site: site.store.history.record_event(
        Event(site.clock.now(), "kind", "n1", "why", "another")
    ),
    "a node that is lost": lambda site: site.cluster.put_node(
        msgspec.structs.replace(site.declared[0], ready=False), site.clock.now()
    ),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_whatever_changes_is_seen_by_the_next_look(looks: Looks, changed: str) -> None:
    assert not looks.look()
    CHANGES[changed](looks.site)
    assert looks.look()


def test_another_revision_is_seen(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    in_force = looks.site.current()
    monkeypatch.setattr(looks.site, "current", lambda: in_force._replace(revision="another"))
    assert looks.look()


@pytest.mark.parametrize(("pass_s", "rests_s"), [(0.5, 5), (4.0, REST_S_MAX), (0.05, 0)])
def test_a_pass_is_taken_again_after_a_rest_in_proportion_to_what_it_took(
    site: Site, pass_s: float, rests_s: float
) -> None:
    looks = Looks(site, pass_s)
    assert looks.look()
    found = 0
    while not looks.look():
        found += 1
    assert rests_s - 2 <= found <= rests_s <= REST_PER_PASS * pass_s + 1


def test_what_time_brings_is_not_waited_for_longer_where_it_is_known(site: Site) -> None:
    site.submit("limited", ("sleep", "forever"), limit_s=300)
    looks = Looks(site, pass_s=5)
    looks.settle()
    claim = site.store.ledger.held_by(JobName("limited"))
    assert claim is not None
    assert claim.limit_reached_at is not None
    site.clock.advance(claim.limit_reached_at - site.clock.now() - 15_000)
    looks.take()
    while site.clock.now() < claim.limit_reached_at.after(-1_000):
        assert not looks.look()
    assert looks.look()
    assert "asked-to-stop" in site.events("limited")


def test_a_loop_that_rests_keeps_the_lead_and_solves_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.control.quietness.REST_PER_PASS", 1e9)
    monkeypatch.setattr("reconciler.control.quietness.REST_S_MAX", 1e9)
    solved, led, lead = list[str](), list[str](), SqlLedger.lead

    def solve(snapshot: Snapshot, policy: Policy) -> Solved:
        solved.append(snapshot.digest)
        return site.only_plane.solve(snapshot, policy)

    def led_on(ledger: SqlLedger, holder: str, now: Instant, lease: Duration) -> Epoch:
        led.append(holder)
        return lead(ledger, holder, now, lease)

    monkeypatch.setattr(SqlLedger, "lead", led_on)
    plane = replace(site.only_plane, clock=SystemClock(), solve=solve)
    reported: list[LoopStatus] = []
    runner = Runner(plane, Pace(debounce_s=0.01, apart_s=0.0, poll_s=0.01), reported.append)
    with running(runner):
        until(lambda: len(led) > len(solved) + 5)
        rounds = len(solved)
        assert rounds == len(reported)
        until(lambda: len(led) > rounds + 30)
        assert len(solved) == len(reported) == rounds
        site.submit("new", ("sleep", "forever"))  # by another process, which does not wake this one
        until(lambda: len(solved) > rounds)
        assert runner.status.condition == "leading"
