"""Two control planes on one store and one backend: who was paused past its lease writes nothing and orders nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconciler.control.ledger_site import one_pass
from reconciler.control.plan_executor import PlanExecutor
from reconciler.documents.operations import Operations
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.lifecycle.jobs.gang_stop import STOP_GRACE
from reconciler.model.job_record import JobOutcome
from reconciler.protocols.backend import StaleEpochError, StopGang
from reconciler.protocols.ledger import Claim, NotLeaderError
from solver.model.inflight import Intent
from solver.model.quantities import Duration
from solver.model.workload import JobName
from solver.plan.plan import Bind
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.control.plane import Site

OLD, NEW = JobName("old"), JobName("new")


@pytest.fixture
def paused(site: Site) -> PlanExecutor:
    """A leader that started one job, stood still past its lease, and was replaced by one that started another."""
    stale, successor = site.plane("first"), site.plane("second")
    site.submit("old", ("sleep", "forever"))
    leader = PlanExecutor(stale, one_pass(stale).epoch)
    with pytest.raises(NotLeaderError):
        one_pass(successor)
    site.clock.advance(stale.lease)
    site.submit("new", ("sleep", "forever"))
    assert one_pass(successor).epoch > leader.epoch
    return leader


def test_its_writes_are_refused(site: Site, paused: PlanExecutor) -> None:
    ledger, epoch, now = paused.plane.ledger, paused.epoch, site.clock.now()
    before = (ledger.claims(), ledger.intents(), site.store.jobs.jobs(), site.store.history.rounds())
    third = site.submit("third", ("sleep", "forever"))
    stop = Intent("stop", OLD, 1, now, now.after(STOP_GRACE))
    start = Intent("start", third, 1, now, now.after(60_000))
    number = site.store.history.rounds()[0].number
    writes: tuple[Callable[[], object], ...] = (
        lambda: ledger.claim(epoch, Claim(third, 1, (), now), start),
        lambda: ledger.ask(epoch, stop),
        lambda: ledger.confirm_running(epoch, OLD, 1, now),
        lambda: ledger.release(epoch, OLD, 1, now),
        lambda: paused.plane.jobs.finish(epoch, OLD, JobOutcome("failed", now)),
        lambda: paused.plane.history.record_round(epoch, site.store.history.round(number)),
    )
    for write in writes:
        with pytest.raises(StaleEpochError):
            write()
    after = (ledger.claims(), ledger.intents(), site.store.jobs.jobs()[1:], site.store.history.rounds())
    assert after == before


def test_its_orders_are_refused(site: Site, paused: PlanExecutor) -> None:
    claim = next(claim for claim in paused.plane.ledger.claims() if claim.job == NEW)
    with pytest.raises(StaleEpochError):
        paused.plane.backend.submit(StopGang(NEW, claim.attempt, Duration(0)), paused.epoch)
    with pytest.raises(StaleEpochError):
        paused.plane.backend.forget(NEW, claim.attempt, paused.epoch)
    site.clock.advance(60_000)
    assert [task.state for task in site.sighted().attempt(NEW, 1).tasks] == ["running"]


def test_a_pass_it_was_in_the_middle_of_ends_without_effect(site: Site, paused: PlanExecutor) -> None:
    third = site.submit("third", ("sleep", "forever"))
    seen_before_the_pause = BackendReports({}, site.sighted().attempts)
    tasks = paused.plane.ledger.claims()[0].tasks
    epoch = paused.plane.ledger.lead("second", site.clock.now(), paused.plane.lease)
    PlanExecutor(site.plane("second"), epoch).settle(site.sighted(), Operations(), NODES)
    site.store.jobs.request_cancel(OLD, "ada")
    with pytest.raises(StaleEpochError):
        paused.settle(seen_before_the_pause, Operations(), NODES)
    plan = one_pass(site.plane("second")).plan
    bind = Bind(third, 1, tasks, Duration(60_000))
    site.clock.advance(paused.plane.lease)
    one_pass(site.plane("third"))
    with pytest.raises(StaleEpochError):
        paused.act(type(plan)(plan.snapshot, plan.policy, (bind,), plan.verdicts, plan.certificate))
