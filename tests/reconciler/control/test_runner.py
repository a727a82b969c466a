"""The loop in a thread: woken, paced, standing by, and stopped by a store that can't be used."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from reconciler.control.control import Concluded, ControlPlane, NoPolicyError, PolicyInForce, Solved
from reconciler.control.passes import PlanRefusedError
from reconciler.control.recording import solver_with
from reconciler.control.runner import LoopStatus, Pace, Runner
from reconciler.model.clock import SystemClock
from reconciler.protocols.store_errors import StoreUnreachableError
from reconciler.store.history import SqlHistory
from reconciler.store.ledger import SqlLedger
from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot
from solver.policy.policy import Policy
from solver.round.solve import solve
from tests.reconciler.control.plane import Site

PATIENCE_S = 60
ONLY_WHEN_WOKEN = Pace(debounce_s=0.01, apart_s=0.0, poll_s=3_600)


@pytest.mark.parametrize(
    ("last", "last_woken", "woken", "due"),
    [
        (10.0, 0.0, None, 11.0),  # nobody woke: the poll
        (10.0, 0.0, 10.2, 10.3),  # woken after a quiet time: the debounce
        (10.0, 10.0, 10.2, 11.0),  # woken again and again: one a second
        (10.0, 9.5, 10.2, 10.5),
        (10.0, 9.9, 10.95, 11.0),  # the poll comes first
    ],
)
def test_the_pace(last: float, last_woken: float, woken: float | None, due: float) -> None:
    assert Pace().next_pass_s(last, last_woken, woken) == pytest.approx(due)


def plane_of(site: Site, holder: str = "only") -> ControlPlane:
    """In real time: the runner sleeps for real."""
    return replace(site.plane(holder), clock=SystemClock())


@contextmanager
def running(runner: Runner) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        yield thread
    finally:
        runner.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, "never came about"
        time.sleep(0.005)


def test_it_acts_when_woken_and_reports_each_pass(site: Site) -> None:
    reported: list[LoopStatus] = []
    runner = Runner(plane_of(site), ONLY_WHEN_WOKEN, reported.append)
    with running(runner):
        until(lambda: len(reported) == 1)  # the first pass needs nobody to wake it
        site.submit("job", ("sleep", "forever"))
        runner.wake()
        until(lambda: len(reported) == 2)
        assert site.state("job") == "starting"
        assert runner.status.condition == "leading"
        assert runner.status is reported[-1]
    ended: str = runner.status.condition
    assert ended == "ended"


def test_many_wake_ups_at_once_are_one_pass(site: Site) -> None:
    reported: list[LoopStatus] = []
    woken = threading.Event()

    def report(status: LoopStatus) -> None:
        reported.append(status)
        assert woken.wait(PATIENCE_S)

    runner = Runner(plane_of(site), ONLY_WHEN_WOKEN, report)
    with running(runner):
        until(lambda: len(reported) == 1)
        for _ in range(100):
            runner.wake()
        woken.set()
        until(lambda: len(reported) == 2)
    assert len(reported) == 2


def test_it_polls_when_nobody_wakes_it(site: Site) -> None:
    reported: list[LoopStatus] = []
    with running(Runner(plane_of(site), Pace(poll_s=0.01), reported.append)):
        until(lambda: len(reported) >= 3)


def test_a_first_pass_is_told_of_once_it_was_acted_on_and_later_ones_with_their_reasons(site: Site) -> None:
    """A control plane that leads has decided: why others wait takes as long again, and nobody has to wait for that."""
    told: list[tuple[bool, bool] | None] = []

    def noting(snapshot: Snapshot, policy: Policy) -> Solved:
        solved = solver_with(None)(snapshot, policy)

        def conclude() -> Concluded:
            last = runner.status.last
            told.append(None if last is None else (last.snapshot is snapshot, last.is_whole))
            return solved.conclude()

        return solved._replace(conclude=conclude)

    runner = Runner(replace(site.only_plane, solve=noting))
    site.submit("job", ("sleep", "forever"))
    for _ in range(2):
        runner.status = runner._one_pass()
        assert runner.status.last is not None
        assert runner.status.last.is_whole
        site.clock.advance(1_000)
    assert told == [(True, False), (False, True)]


class SlowRounds:
    """A solver that takes three leases by the virtual clock, of which no quarter passes without a renewal in the thread beside it.

    `meanwhile`: what others do after each. The first `quick` rounds take no time.
    """

    def __init__(
        self,
        site: Site,
        lease: Duration,
        patch: pytest.MonkeyPatch,
        quick: int = 0,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        self._site, self._lease, self._quick, self._meanwhile = site, lease, quick, meanwhile
        self.rounds = self._renewals = 0
        renew = SqlLedger.renew

        def counted(ledger: SqlLedger, *asked: Any) -> bool:
            done = renew(ledger, *asked)
            self._renewals += 1
            return done

        patch.setattr(SqlLedger, "renew", counted)

    def __call__(self, snapshot: Snapshot, policy: Policy) -> Solved:
        self.rounds += 1
        for _ in range(12 if self.rounds > self._quick else 0):
            self._site.clock.advance(self._lease // 4)
            before = self._renewals
            until(lambda: self._renewals >= before + 2)  # noqa: B023  (the first may have begun before the clock moved)
            self._meanwhile()
        return solver_with(None)(snapshot, policy)


def test_who_decides_for_longer_than_a_lease_goes_on_leading_and_acts(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another would take as long, and be followed in turn: no plan would ever be acted on."""
    lease, met = Duration(100), list[str]()
    second = Runner(replace(site.plane("second"), lease=lease))
    slowly = SlowRounds(site, lease, monkeypatch, meanwhile=lambda: met.append(second._one_pass().condition))
    first = Runner(replace(site.plane("first"), lease=lease, solve=slowly))
    site.submit("job", ("sleep", "forever"))
    assert first._one_pass().condition == "leading"
    assert met == ["standing-by"] * 12
    assert site.state("job") != "queued"


@pytest.mark.parametrize("when", ["in it", "after it"])
def test_who_has_kept_its_lease_in_a_long_pass_leads_when_the_store_is_away_for_a_moment(
    site: Site, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Else all agents were sent away by one lost connection, whenever a pass had taken longer than a lease lasts."""
    lease = Duration(100)
    slowly = SlowRounds(site, lease, monkeypatch, quick=1)

    def away(*_: object) -> None:
        raise StoreUnreachableError("it can't be reached")

    runner = Runner(replace(site.only_plane, lease=lease, solve=slowly))
    runner.status = runner._one_pass()
    site.submit("job", ("sleep", "forever"))
    if when == "after it":
        runner.status = runner._one_pass()
        assert runner.status.condition == "leading"
    owner, name = (SqlHistory, "record_round") if when == "in it" else (SqlLedger, "lead")
    monkeypatch.setattr(owner, name, away)
    runner.status = runner._one_pass()
    assert (runner.status.condition, runner.leads(), slowly.rounds) == ("store-unreachable", True, 2)
    site.clock.advance(lease)
    assert not runner.leads()


def test_who_hangs_in_a_pass_is_followed_in_the_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.control.runner.PASS_S_MAX", 0.5)
    lease, over = Duration(200), threading.Event()

    def never(snapshot: Snapshot, policy: Policy) -> Solved:
        assert over.wait(PATIENCE_S)
        return solver_with(None)(snapshot, policy)

    first = Runner(replace(plane_of(site, "first"), lease=lease, solve=never), Pace(poll_s=0.01))
    second = Runner(replace(plane_of(site, "second"), lease=lease), Pace(poll_s=0.01))
    with running(first), running(second):
        until(lambda: second.status.condition == "leading")
        second.stop()
        over.set()


def test_it_resigns_so_that_another_can_lead_at_once(site: Site) -> None:
    first, second = (
        Runner(plane_of(site, "first"), Pace(poll_s=0.01)),
        Runner(plane_of(site, "second"), Pace(poll_s=0.01)),
    )
    with running(first):
        until(lambda: first.status.condition == "leading")
        with running(second):
            until(lambda: second.status.condition == "standing-by")
            assert "first leads until" in second.status.message
            first.stop()
            until(lambda: second.status.condition == "leading")


def test_who_leads_and_can_not_act_resigns_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PlanRefusedError(())

    runner = Runner(plane_of(site), Pace(poll_s=0.01))
    with running(runner):
        until(lambda: runner.status.condition == "leading")
        monkeypatch.setattr("reconciler.control.runner.one_pass", refused)
        until(lambda: runner.status.condition == "plan-refused")
        assert site.store.ledger.leader() == "only"
    assert site.store.ledger.leader() == ""


def test_it_waits_for_a_backend_that_is_away(site: Site) -> None:
    site.faults(blind=1.0)
    runner = Runner(plane_of(site), Pace(poll_s=0.01))
    with running(runner):
        until(lambda: runner.status.condition == "backend-unreachable")
        site.faults(blind=0.0)
        until(lambda: runner.status.condition == "leading")


def test_it_waits_for_a_policy(site: Site) -> None:
    class Source:
        found = False

        def current(self) -> PolicyInForce:
            if not self.found:
                raise NoPolicyError("no revision has been fetched yet")
            return site.current()

    source = Source()
    runner = Runner(replace(plane_of(site), policies=source), Pace(poll_s=0.01))
    with running(runner):
        until(lambda: runner.status.condition == "no-policy")
        assert runner.status.message == "no revision has been fetched yet"
        source.found = True
        until(lambda: runner.status.condition == "leading")


def test_it_says_that_a_plan_was_refused_and_goes_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = threading.Event()

    def solve_or_break(snapshot: Snapshot, policy: Policy) -> Solved:
        plan = solve(snapshot, policy, None)
        return Solved.at_once(msgspec.structs.replace(plan, snapshot="sha256:other") if broken.is_set() else plan)

    monkeypatch.setattr("reconciler.control.fallback.without_program", solve_or_break)
    runner = Runner(replace(plane_of(site), solve=solve_or_break), Pace(poll_s=0.01))
    broken.set()
    with running(runner):
        until(lambda: runner.status.condition == "plan-refused")
        assert "stale" in runner.status.message
        broken.clear()
        until(lambda: runner.status.condition == "leading")


def test_a_full_store_is_said_and_the_pass_is_taken_again(site: Site) -> None:
    for number in range(200):
        site.submit(f"job-{number}", ("sleep", "1s"))
    with site.store.database.reading() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")  # SQLite makes that the pages there are: a full disk
    heard: list[LoopStatus] = []

    def hear(status: LoopStatus) -> None:
        heard.append(status)
        if status.condition == "store-full":
            site.store.database.engine.dispose()  # The limit is one of connections: new ones have room.
        was_full = any(earlier.condition == "store-full" for earlier in heard)
        if (was_full and status.condition == "leading") or len(heard) > 200:
            runner.stop()

    runner = Runner(plane_of(site), Pace(apart_s=0.01, poll_s=0.01), hear)
    runner.run()
    assert {status.condition for status in heard} == {"leading", "store-full"}
    (full,) = [status for status in heard if status.condition == "store-full"]
    assert "the disk is full" in full.message
    assert "Free some space" in full.message
    assert len(site.store.jobs.live_jobs()) == 200, "what was committed is kept"
