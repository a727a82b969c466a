"""What is wrong with Budget documents: no subject or two, no limit or two, money without prices, two for the same spending."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconciler.documents.declarations import Declaration
from reconciler.documents.rate_cards import is_zone
from reconciler.model.budget import GpuBudget
from reconciler.model.problem import Problem, did_you_mean


def budget_problems(
    documents: Sequence[Declaration[GpuBudget]], queues: set[str] | None, *, has_prices: bool
) -> Iterator[Problem]:
    """`queues`: the names of all; None where some are unreadable. `has_prices`: there is a RateCard, or may be one."""
    seen: dict[tuple[object, ...], Declaration[GpuBudget]] = {}
    for budget in sorted(documents, key=lambda known: known.name):
        spec = budget.value
        yield from _own_problems(budget, queues)
        if spec.cost is not None and not has_prices:
            message, fix = "nothing says what a GPU-hour costs", "Put a RateCard into policies/, or write gpuHours."
            yield budget.problem(("spec", "cost"), "no-rate-card", message, fix)
        key = spec.queue, spec.user, spec.cost is None, spec.period.every
        before = seen.setdefault(key, budget)
        if before is not budget:
            message = f"Budget {before.name}, at {before.origin}, is for the same spending of {spec.subject}"
            fix = "Delete one of them, or give it another period.every."
            yield budget.problem(("spec",), "overlapping-budgets", message, fix)


def _own_problems(budget: Declaration[GpuBudget], queues: set[str] | None) -> Iterator[Problem]:
    spec = budget.value
    if (spec.queue is None) == (not spec.user):
        told = "neither queue nor user" if spec.queue is None else "both queue and user"
        yield budget.problem(("spec",), "one-subject", f"it has {told}", "Write one of them.")
    if (spec.gpu_hours is None) == (spec.cost is None):
        told = "neither gpuHours nor cost" if spec.cost is None else "both gpuHours and cost"
        yield budget.problem(("spec",), "one-limit", f"it has {told}", "Write one of them.")
    if spec.queue is not None and queues is not None and spec.queue not in queues:
        message, fix = f"there is no Queue {spec.queue}", did_you_mean(spec.queue, queues)
        yield budget.problem(("spec", "queue"), "unknown-queue", message, fix)
    if not is_zone(spec.period.time_zone):
        message = f"there is no time zone {spec.period.time_zone}"
        fix = "Write it as the IANA database does: Europe/Berlin."
        yield budget.problem(("spec", "period", "timeZone"), "unknown-time-zone", message, fix)
    if spec.user and spec.when_spent == "no-borrowing":
        message = "a user has no guarantee, and borrows nothing: queues do"
        yield budget.problem(("spec", "whenSpent"), "user-borrows-nothing", message, "Write hold-new or notify.")
