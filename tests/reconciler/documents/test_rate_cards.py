"""RateCard documents: compiled in the order of their time, shown in a review, and what is refused with its place."""

from __future__ import annotations

import pytest

from reconciler.gitops.review.meaning import document_changes
from reconciler.model.rate_card import Price, Rate, RateCard
from solver.model.cluster import GpuType
from solver.model.quantities import Instant
from tests.reconciler.documents.repository import POOL, codes, queue, reading

FILES = {"policies/a.yaml": queue("a", "{}"), "cluster-state/big.yaml": POOL}
YEAR = "2026-01-01T00:00:00Z"
PLAIN = "rates: [{perGpuHour: 2}]"


def card(name: str, start: str = YEAR, more: str = PLAIN, currency: str = "EUR") -> str:
    spec = f"{{from: {start}, currency: {currency}, {more}}}"
    return f"apiVersion: quorate.dev/v1\nkind: RateCard\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def found(*cards: str) -> list[tuple[str, str]]:
    files = {f"policies/{number}.yaml": text for number, text in enumerate(cards, 1)}
    return sorted(set(codes(FILES | files)))


def test_cards_are_compiled_in_the_order_of_their_time_and_shown_in_a_review() -> None:
    first_rate = '{perGpuHour: 2.35, gpuType: H100, hours: "20:00-06:00", days: [sat]}'
    rates = f"timeZone: Europe/Berlin, rates: [{first_rate}, {{perGpuHour: 3}}]"
    later = card("a", "2027-01-01T00:00:00+01:00", rates)
    before = reading(FILES | {"policies/z.yaml": card("z")}).checked()
    after = reading(FILES | {"policies/z.yaml": card("z"), "policies/y.yaml": later}).checked()
    first, second = after.operations.rates
    assert first == RateCard("z", Instant.parse(YEAR), "EUR", (Rate(Price.parse(2)),), origin="policies/z.yaml:3")
    night = Rate(Price(2_350_000), GpuType("H100"), hours="20:00-06:00", days=("sat",))
    assert second == RateCard(
        "a",
        Instant.parse("2026-12-31T23:00:00Z"),
        "EUR",
        (night, Rate(Price.parse(3))),
        time_zone="Europe/Berlin",
        origin="policies/y.yaml:3",
    )
    assert after.policy == before.policy
    (change,) = document_changes(before, after)
    assert (change.document, change.change, change.origin) == ("RateCard a", "added", "policies/y.yaml:3")
    dearer = reading(FILES | {"policies/z.yaml": card("z", more="rates: [{perGpuHour: 2.5}]")}).checked()
    (change,) = document_changes(before, dearer)
    assert [(field.before, field.after) for field in change.fields] == [("2", "2.5")]


@pytest.mark.parametrize(
    ("start", "more", "problems"),
    [
        (YEAR, PLAIN, []),
        (YEAR, f"until: {YEAR}, {PLAIN}", [("1.yaml:4:58", "ends-before-it-begins")]),
        (YEAR, f"timeZone: Mars/Base, {PLAIN}", [("1.yaml:4:61", "unknown-time-zone")]),
        (YEAR, "rates: []", [("1.yaml:4:58", "out-of-range")]),
        (YEAR, "rates: [{perGpuHour: -1}]", [("1.yaml:4:72", "out-of-range")]),
        (YEAR, "rates: [{perGpuHour: 1.0000001}]", [("1.yaml:4:72", "malformed")]),
        (YEAR, 'rates: [{perGpuHour: 1, hours: "6-20"}]', [("1.yaml:4:82", "malformed")]),
        (YEAR, 'rates: [{perGpuHour: 1, hours: "06:00-06:00"}]', [("1.yaml:4:82", "no-time")]),
        (YEAR, "rates: [{perGpuHour: 1}, {perGpuHour: 2, pool: big}]", [("1.yaml:4:76", "never-counts")]),
        (YEAR, "rates: [{perGpuHour: 1, gpuType: nope}]", [("1.yaml:4:84", "unknown-gpu-type")]),
        (YEAR, "rates: [{perGpuHour: 1, pool: nope}]", [("1.yaml:4:81", "unknown-pool")]),
        (YEAR, "rates: [{perGpuHour: 1, priorityClass: nope}]", [("1.yaml:4:90", "unknown-priority-class")]),
        ("2026-01-01", PLAIN, [("1.yaml:4:14", "malformed")]),
    ],
)
def test_what_is_refused(start: str, more: str, problems: list[tuple[str, str]]) -> None:
    assert found(card("x", start, more)) == problems


def test_cards_that_overlap_are_refused_with_the_place_of_the_other() -> None:
    july = "2026-07-01T00:00:00Z"
    assert found(card("x"), card("y", july)) == []
    assert found(card("x", more=f"until: {july}, {PLAIN}"), card("y", july)) == []
    assert found(card("x"), card("y")) == [("2.yaml:4:14", "overlapping-rate-cards")]
    texts = card("x", more=f"until: 2026-07-01T00:00:01Z, {PLAIN}"), card("y", july)
    assert found(*texts) == [("2.yaml:4:14", "overlapping-rate-cards")]
    (problem,) = reading(FILES | {"policies/1.yaml": texts[0], "policies/2.yaml": texts[1]}).problems
    assert "policies/1.yaml:3" in problem.message
    assert july in problem.fix


def test_one_currency_for_all() -> None:
    cards = card("x"), card("y", "2026-07-01T00:00:00Z", currency="USD")
    assert found(*cards) == [("2.yaml:4:46", "second-currency")]


def test_cards_of_the_past_may_name_what_is_no_more() -> None:
    old = card("x", more="rates: [{perGpuHour: 1, gpuType: V100, pool: gone}]")
    assert found(old, card("y", "2026-07-01T00:00:00Z")) == []
    (warning, other) = reading(FILES | {"policies/1.yaml": old}).problems
    assert (warning.severity, other.severity) == ("warning", "warning")


@pytest.mark.parametrize(
    ("earlier", "later", "is_covered"),
    [
        ({}, {"hours": "01:00-02:00"}, True),
        ({"hours": "01:00-02:00"}, {}, False),
        ({"hours": "01:00-02:00"}, {"hours": "01:00-02:00", "gpu_type": "A"}, True),
        ({"hours": "01:00-02:00", "gpu_type": "A"}, {"hours": "01:00-02:00"}, False),
        ({"days": ("sat",)}, {"days": ("sun",)}, False),
        ({"priority_class": "a"}, {"priority_class": "b"}, False),
    ],
)
def test_a_rate_that_never_counts(earlier: dict[str, str], later: dict[str, str], is_covered: bool) -> None:
    assert Rate(Price(1), **earlier).covers(Rate(Price(2), **later)) is is_covered  # type: ignore[arg-type]
