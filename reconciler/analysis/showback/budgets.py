"""How budgets stand: what was spent, by the same charges as showback, and when it runs out at the rate of the last day."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final, NamedTuple

from reconciler.analysis.showback.account import account_of
from reconciler.analysis.showback.statement import Charge, JobFacts, statement_of
from reconciler.analysis.showback.tariff import Tariff
from reconciler.model.budget import BudgetStanding, GpuBudget
from reconciler.model.rate_card import RateCard
from reconciler.protocols.capacity import Capacities
from reconciler.protocols.past_jobs import PastJobs
from reconciler.protocols.placements import Placements
from solver.model.quantities import Duration, Instant
from solver.model.workload import QueueName

LATELY: Final = Duration(86_400_000)
"""Over which what is spent in a day is judged; less where the period is younger."""

DAY: Final = Decimal(86_400_000)

Paths = Mapping[QueueName, Collection[QueueName]]
"""Of each queue: itself and those above it."""


class SpendingRecords(NamedTuple):
    """What is kept of what jobs held, and of what there was."""

    placements: Placements
    capacities: Capacities
    jobs: PastJobs

    def charges(
        self, rates: Sequence[RateCard], default_class: str, start: Instant, end: Instant
    ) -> tuple[tuple[Charge, ...], str]:
        """Those of a window by queue and user, and their currency."""
        spans, placed = self.capacities.spans(start, end), self.placements.in_window(start, end)
        facts = JobFacts(
            {job.name: job for job in self.jobs.between(start, end)},
            self.jobs.saved(start),
            self.placements.of_job,
            lambda _, __: True,
            default_class,
        )
        tariff = Tariff(rates, start, end)
        return statement_of(account_of(start, end, spans, placed), facts, tariff, "user").charges, tariff.currency


Charges = Callable[[Instant, Instant], tuple[Sequence[Charge], str]]
"""The charges of a window, and their currency."""


def standings(budgets: Sequence[GpuBudget], paths: Paths, charges: Charges, now: Instant) -> Iterator[BudgetStanding]:
    """Of each budget; of budgets whose periods begin at the same time the charges are asked for once."""
    known: dict[Instant, tuple[Sequence[Charge], str]] = {}

    def since(start: Instant) -> tuple[Sequence[Charge], str]:
        if start not in known:
            known[start] = charges(start, now) if start < now else ((), "")
        return known[start]

    for budget in budgets:
        span = budget.period.around(now)
        lately = Instant(max(span.start, now - LATELY))
        (spent, unpriced), currency = _spent(budget, paths, since(span.start)[0]), since(span.start)[1]
        recent, _ = _spent(budget, paths, since(lately)[0])
        over = Duration(max(1, now - lately))
        yield BudgetStanding(
            budget.name,
            budget.origin,
            budget.subject,
            budget.queue,
            budget.user,
            span.start,
            span.end,
            now,
            "GPU-hours" if budget.cost is None else currency,
            budget.limit,
            spent,
            unpriced,
            int(100 * spent / budget.limit),
            (recent * DAY / Decimal(over)).quantize(Decimal("0.001")),
            over,
            _runs_out(budget.limit - spent, recent, over, now, span.end),
            budget.when_spent,
        )


def _spent(budget: GpuBudget, paths: Paths, charges: Sequence[Charge]) -> tuple[Decimal, Decimal]:
    """In the budget's unit; and GPU-hours without a price, where it is money."""
    own = [
        charge
        for charge in charges
        if (charge.user == budget.user if budget.user else budget.queue in paths.get(charge.queue, (charge.queue,)))
    ]
    if budget.cost is None:
        return sum((charge.quantity for charge in own), Decimal(0)), Decimal(0)
    priced = sum((charge.cost for charge in own if charge.cost is not None), Decimal(0))
    return priced, sum((charge.quantity for charge in own if charge.cost is None), Decimal(0))


def _runs_out(left: Decimal, recent: Decimal, over: Duration, now: Instant, end: Instant) -> Instant | None:
    if left <= 0 or recent <= 0:
        return None
    at = Instant(now + int(left * Decimal(over) / recent))
    return at if at < end else None
