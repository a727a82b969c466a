"""Budget documents: compiled, shown in a review, refused with their place; and their periods in a zone."""

from __future__ import annotations

import pytest

from reconciler.gitops.review.meaning import document_changes
from reconciler.model.budget import BudgetPeriod, Every, GpuBudget
from solver.model.quantities import Instant
from solver.model.workload import QueueName
from tests.reconciler.documents.repository import POOL, codes, queue, reading

FILES = {"policies/a.yaml": queue("a", "{}"), "cluster-state/big.yaml": POOL}
PERIOD = "period: {every: month, timeZone: Europe/Berlin}"
CARD = (
    "apiVersion: quorate.dev/v1\nkind: RateCard\nmetadata: {name: r}\n"
    "spec: {from: 2026-01-01T00:00:00Z, currency: EUR, rates: [{perGpuHour: 2}]}\n"
)


def budget(name: str, spec: str) -> str:
    return f"apiVersion: quorate.dev/v1\nkind: Budget\nmetadata: {{name: {name}}}\nspec: {{{PERIOD}, {spec}}}\n"


def found(*texts: str) -> list[str]:
    files = {f"policies/{number}.yaml": text for number, text in enumerate(texts, 1)}
    return sorted({code for _, code in codes(FILES | files)})


def test_a_budget_is_compiled_and_shown_in_a_review() -> None:
    text = budget("b", "queue: a, gpuHours: 1000, whenSpent: hold-new")
    before, after = reading(FILES).checked(), reading(FILES | {"policies/b.yaml": text}).checked()
    period = BudgetPeriod("month", "Europe/Berlin")
    assert after.operations.budgets == (
        GpuBudget("b", period, QueueName("a"), gpu_hours=1000, when_spent="hold-new", origin="policies/b.yaml:3"),
    )
    (change,) = document_changes(before, after)
    assert (change.document, change.change) == ("Budget b", "added")


@pytest.mark.parametrize(
    ("spec", "problems"),
    [
        ("queue: a, gpuHours: 10", []),
        ("user: ada, gpuHours: 10", []),
        ("gpuHours: 10", ["one-subject"]),
        ("queue: a, user: ada, gpuHours: 10", ["one-subject"]),
        ("queue: a", ["one-limit"]),
        ("queue: nope, gpuHours: 10", ["unknown-queue"]),
        ("queue: a, cost: 10", ["no-rate-card"]),
        ("queue: a, gpuHours: 0", ["out-of-range"]),
        ("user: ada, gpuHours: 10, whenSpent: no-borrowing", ["user-borrows-nothing"]),
    ],
)
def test_what_is_refused(spec: str, problems: list[str]) -> None:
    assert found(budget("x", spec)) == problems


def test_money_goes_by_a_rate_card_and_time_by_a_zone() -> None:
    assert found(budget("x", "queue: a, cost: 10"), CARD) == []
    assert found(budget("x", "queue: a, cost: 10, gpuHours: 3"), CARD) == ["one-limit"]
    wrong = budget("x", "queue: a, gpuHours: 1").replace("Europe/Berlin", "Mars/Base")
    assert found(wrong) == ["unknown-time-zone"]


def test_two_budgets_for_the_same_spending_are_refused() -> None:
    hours, money = "queue: a, gpuHours: 10", "queue: a, cost: 10"
    assert found(budget("x", hours), budget("y", hours)) == ["overlapping-budgets"]
    assert found(budget("x", hours), budget("y", money), CARD) == []
    assert found(budget("x", hours), budget("y", hours).replace("month", "year")) == []


@pytest.mark.parametrize(
    ("every", "start", "end"),
    [
        ("day", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"),
        ("week", "2026-03-23T00:00:00+01:00", "2026-03-30T00:00:00+02:00"),
        ("month", "2026-03-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00"),
        ("quarter", "2026-01-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00"),
        ("year", "2026-01-01T00:00:00+01:00", "2027-01-01T00:00:00+01:00"),
    ],
)
def test_periods_begin_at_midnight_of_their_zone_also_where_clocks_change(every: Every, start: str, end: str) -> None:
    period = BudgetPeriod(every, "Europe/Berlin")
    span = period.around(Instant.parse("2026-03-29T12:00:00Z"))
    assert span == (Instant.parse(start), Instant.parse(end))
    assert period.around(span.start) == span
    assert period.around(Instant(span.end - 1)) == span
    assert period.around(span.end).start == span.end
