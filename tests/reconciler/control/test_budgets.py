"""Budgets in the loop: what is spent is what showback charges, and a budget that is spent starts no job and ends none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import msgspec
import pytest

from reconciler.analysis.showback.budgets import SpendingRecords, standings
from reconciler.control.budget_limits import without_borrowing
from reconciler.control.capacity import CapacityRecorder
from reconciler.lifecycle.jobs.budget_holds import budget_words, held_by_budgets
from reconciler.model.budget import BudgetPeriod, BudgetStanding, GpuBudget
from reconciler.model.rate_card import Price, Rate, RateCard
from reconciler.protocols.backend import Epoch
from reconciler.server.budget_watch import BudgetWatch
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import QueueName
from solver.policy.policy import Queue, Quota, policy_of
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.control.plane import Site

HOUR = 3_600
Q = QueueName("q")
DAILY = BudgetPeriod("day", "UTC")
BUDGET = GpuBudget(
    "daily", DAILY, Q, gpu_hours=10, alert_at=(50, 100), when_spent="hold-new", origin="policies/b.yaml:3"
)


class Spending:
    """A site whose budgets are worked out when that is asked for."""

    def __init__(self, site: Site) -> None:
        self.site = site
        records = SpendingRecords(site.store.placements, site.store.capacities, site.store.past_jobs)
        self.changes = 0
        self.watch = BudgetWatch(
            records, site.store.history, site, site.clock, lambda: Epoch(1), self._changed, "holder"
        )
        recorder = CapacityRecorder(site.store.capacities)
        site.only_plane = replace(site.only_plane, budgets=self.watch.standings, keep_capacity=recorder.keep)

    def _changed(self) -> None:
        self.changes += 1

    def allow(self, *budgets: GpuBudget, rates: Sequence[RateCard] = ()) -> None:
        self.site.operations = msgspec.structs.replace(self.site.operations, budgets=budgets, rates=tuple(rates))

    def hours(self, number: float) -> BudgetStanding:
        self.site.one_pass(int(number * HOUR))
        self.watch.look()
        return self.watch.standings()[0]

    def told(self, name: str = "daily") -> list[int]:
        return [event.attempt for event in self.site.store.history.events(f"budget:{name}")]


@pytest.fixture
def spending(site: Site) -> Spending:
    return Spending(site)


def test_what_is_spent_and_when_it_runs_out_at_the_recent_rate(spending: Spending) -> None:
    spending.allow(BUDGET)
    spending.site.submit("one", ("sleep", "forever"), gpus=2)
    spending.site.rest()
    began = spending.site.store.ledger.claims()[0].since
    known = spending.hours(2)
    ran = Decimal(spending.site.clock.now() - began) / 3_600_000
    assert known.spent == pytest.approx(2 * ran, abs=Decimal("1e-8"))
    assert (known.limit, known.unit, known.percent) == (Decimal(10), "GPU-hours", 40)
    assert known.runs_out_at is not None
    left_h = (10 - known.spent) / (known.per_day / 24)
    assert known.runs_out_at - known.at == pytest.approx(float(left_h) * 3_600_000, rel=1e-3)
    assert "at the rate of the last" in str(known)


def test_alerts_are_told_once_in_a_period_and_by_whoever_comes_first(spending: Spending) -> None:
    spending.allow(BUDGET)
    spending.site.submit("one", ("sleep", "forever"), gpus=4)
    spending.site.rest()
    assert spending.hours(1).percent < 50
    assert spending.told() == []
    assert spending.hours(0.5).percent >= 50
    spending.watch.look()
    assert spending.told() == [50]
    other = replace(spending.watch, _latest=())
    other.look()
    assert spending.told() == [50]
    assert spending.hours(1.5).is_spent
    assert (spending.told(), spending.changes) == ([50, 100], 1)
    (_, last) = spending.site.store.history.events("budget:daily")
    assert last.cause.startswith("100 % reached: budget daily of queue q is spent")
    assert spending.hours(24).start > last.time - 24 * HOUR * 1_000


def test_a_spent_budget_starts_no_job_and_ends_none_until_the_next_period(spending: Spending) -> None:
    spending.allow(BUDGET)
    spending.site.submit("one", ("sleep", "forever"), gpus=4)
    spending.site.rest()
    assert spending.hours(3).is_spent
    spending.site.submit("two", ("sleep", "forever"))
    spending.site.passes(5)
    assert (spending.site.state("one"), spending.site.state("two")) == ("running", "queued")
    records = spending.site.store.jobs.live_jobs()
    held = held_by_budgets(spending.watch.standings(), records, spending.site.policy)
    assert {str(block) for block in held.values()} == {
        f"budget daily of queue q is spent (policies/b.yaml:3): no job starts until {spending.watch.standings()[0].end}"
    }
    spending.site.clock.advance(spending.watch.standings()[0].end - spending.site.clock.now())
    spending.watch.look()
    spending.site.passes(5)
    assert spending.site.state("two") == "running"


def test_a_spent_queue_borrows_nothing_and_keeps_what_it_has(spending: Spending) -> None:
    gpu_type = NODES[0].gpu_type
    spending.site.policy = policy_of(
        (Queue(Q, quota=(Quota(gpu_type, MilliGpu.gpus(3)),)), Queue(QueueName("r"), quota=(Quota(gpu_type),)))
    )
    spending.allow(msgspec.structs.replace(BUDGET, when_spent="no-borrowing"))
    for name in ("one", "two"):
        spending.site.submit(name, ("sleep", "forever"), gpus=2)
    spending.site.rest()
    known = spending.hours(4)
    assert known.is_spent
    spending.site.submit("three", ("sleep", "forever"))
    spending.site.submit("other", ("sleep", "forever"), queue="r")
    spending.site.passes(5)
    limited = without_borrowing(spending.site.policy, spending.site.one_pass().snapshot, [known])
    entry = limited.queues[0].quota_for(gpu_type)
    assert entry is not None
    assert (entry.max, entry.origin) == (MilliGpu.gpus(4), BUDGET.origin), "what it holds is no limit that is broken"
    states = {name: spending.site.state(name) for name in ("one", "two", "three", "other")}
    assert states == {"one": "running", "two": "running", "three": "queued", "other": "running"}
    spending.site.store.jobs.request_cancel(spending.site.store.jobs.live_jobs()[0].name, "ada")
    spending.site.passes(5)
    spending.site.store.jobs.request_cancel(
        next(each.name for each in spending.site.store.jobs.live_jobs() if each.name == "two"), "ada"
    )
    spending.site.passes(8)
    assert spending.site.state("three") == "running"
    (words,) = budget_words([known], (Q,), "ada")
    assert words.endswith("(policies/b.yaml:3); until then the queue starts jobs inside its guarantee alone")


@pytest.mark.thorough
def test_money_and_users_and_queues_above(spending: Spending) -> None:
    card = RateCard("r", Instant(0), "EUR", (Rate(Price.parse("2.5")),))
    spending.allow(
        GpuBudget("money", DAILY, Q, cost=Price.parse(100)),
        GpuBudget("person", DAILY, user="ada", gpu_hours=100),
        GpuBudget("stranger", DAILY, user="bob", gpu_hours=100),
        rates=(card,),
    )
    spending.site.submit("one", ("sleep", "forever"), gpus=4)
    spending.site.rest()
    spending.hours(2)
    money, person, stranger = spending.watch.standings()
    assert (money.unit, money.spent) == ("EUR", person.spent * Decimal("2.5"))
    assert person.percent > 0
    assert not stranger.spent
    spending.allow(
        GpuBudget("money", DAILY, Q, cost=Price.parse(100)), rates=(RateCard("r", Instant(2**60), "EUR", card.rates),)
    )
    unpriced = spending.hours(1)
    assert not unpriced.spent
    assert unpriced.unpriced > 8
    assert "GPU-hours without a price" in str(unpriced)


def test_of_nothing_that_was_held_nothing_is_spent() -> None:
    now = Instant.parse("2026-03-01T12:00:00Z")
    (known,) = standings([BUDGET], {}, lambda _, __: ((), ""), now)
    assert not known.spent
    assert (known.percent, known.runs_out_at, known.over) == (0, None, Duration(12 * HOUR * 1_000))
