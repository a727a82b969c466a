"""Charges as FOCUS has them: what the specification demands of each line, and corrections that add up to what is so."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

import pytest

from reconciler.analysis.showback.focus import (
    FOCUS_VERSIONS,
    FocusLine,
    FocusVersion,
    columns_of,
    corrections,
    focus_lines,
    rows_of,
)
from reconciler.analysis.showback.statement import Charge
from reconciler.analysis.showback.tariff import cost_of, hours_of
from reconciler.model.rate_card import Price, Rate
from solver.model.cluster import GpuType
from solver.model.quantities import Instant
from solver.model.workload import QueueName

DAY = 86_400_000
MARCH = Instant.parse("2026-03-30T00:00:00Z")
NEVER_NULL = {
    "BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "BillingAccountId", "BillingCurrency", "BillingPeriodStart",
    "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory", "InvoiceIssuerName", "ServiceCategory",
    "ServiceName", "PricingQuantity", "PricingUnit", "ConsumedQuantity", "ConsumedUnit", "ListUnitPrice", "ContractedUnitPrice",
    "SkuId", "SkuPriceId", "SubAccountId",
}  # fmt: skip
OF_VERSION = {
    "1.2": ({"ProviderName", "PublisherName"}, {"ServiceProviderName", "HostProviderName"}),
    "1.4": ({"ServiceProviderName", "HostProviderName"}, {"ProviderName", "PublisherName"}),
}
DECIMAL = re.compile(r"-?\d+\.\d+")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def charge(
    day: int = 0,
    amount: int = 3_600_000_000,
    price: str | None = "2.5",
    queue: str = "team",
    job: str = "a",
    gpu_type: str = "H100",
) -> Charge:
    quantity, rate = hours_of(amount), Rate(Price.parse(price)) if price else None
    return Charge(
        MARCH.after(day * DAY),
        MARCH.after((day + 1) * DAY),
        QueueName(queue),
        "standard",
        "pool",
        GpuType(gpu_type),
        quantity,
        rate.per_gpu_hour if rate else None,
        cost_of(quantity, rate) if rate else None,
        "card" if rate else "",
        user="ann",
        job=job,
    )


def lines(*charges: Charge, version: FocusVersion = "1.2") -> list[FocusLine]:
    return list(focus_lines(charges, "EUR", "Example Platform", version))


def objections(version: FocusVersion, row: Mapping[str, str]) -> Iterator[str]:
    """By another way than what writes them: what FOCUS has against a line."""
    there, gone = OF_VERSION[version]
    yield from (f"{name} is null" for name in sorted(NEVER_NULL | there) if not row.get(name))
    yield from (f"{name} is not of {version}" for name in sorted(gone & row.keys()))
    yield from (
        f"{name} is no decimal"
        for name in row
        if name.endswith(("Cost", "Quantity", "Price")) and not DECIMAL.fullmatch(row[name])
    )
    yield from (
        f"{name} is no time"
        for name in row
        if name.endswith(("PeriodStart", "PeriodEnd")) and not TIME.fullmatch(row[name])
    )
    for cost, price in (("ListCost", "ListUnitPrice"), ("ContractedCost", "ContractedUnitPrice")):
        if Decimal(row[cost]) != Decimal(row[price]) * Decimal(row["PricingQuantity"]):
            yield f"{cost} is not quantity times price"
    if not row["BillingPeriodStart"] <= row["ChargePeriodStart"] < row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]:
        yield "the charge lies outside its billing period"
    if not (row["BillingPeriodStart"].endswith("-01T00:00:00Z") and row["BillingPeriodEnd"].endswith("-01T00:00:00Z")):
        yield "a billing period is a month"
    if row["ChargeClass"] not in ("", "Correction") or row["ChargeCategory"] != "Usage":
        yield "class or category is unknown"
    if (
        row["ChargeClass"] != "Correction"
        and Decimal(row["PricingQuantity"]) < 0
        and "corrected" not in row["ChargeDescription"]
    ):
        yield "a negative quantity is not explained"
    if not isinstance(json.loads(row["Tags"]), dict):
        yield "tags are no object"


@pytest.mark.parametrize("version", FOCUS_VERSIONS)
def test_every_line_is_as_focus_wants_it(version: FocusVersion) -> None:
    chance = random.Random(1)
    charges = [
        charge(
            chance.randrange(-40, 40),
            chance.randrange(1, 10**15),
            chance.choice(("2.5", "0.000001", "3", "0")),
            job=f"j{number}",
        )
        for number in range(200)
    ]
    for line, row in zip(found := lines(*charges, version=version), rows_of(found, version), strict=True):
        assert list(objections(version, dict(zip(columns_of(version), row, strict=True)))) == []
        assert set(line.values) == set(columns_of(version))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("ListCost", "1.0"),
        ("BillingCurrency", ""),
        ("PricingQuantity", "1"),
        ("ChargePeriodEnd", "2026-04-02T00:00:00Z"),
        ("ChargeCategory", "GPU"),
        ("ChargePeriodStart", "2026-03-30"),
    ],
)
def test_the_judge_of_lines_finds_what_is_wrong(column: str, value: str) -> None:
    (line,) = lines(charge())
    assert list(objections("1.2", {**line.values, column: value}))


def test_what_has_no_price_has_no_line() -> None:
    assert [line.values["ResourceId"] for line in lines(charge(price=None), charge(price="0", job="b"))] == ["b"]


def test_charges_of_hidden_jobs_name_none() -> None:
    (line,) = lines(charge(job=""))
    assert (line.values["ResourceId"], line.values["ResourceType"]) == ("", "")
    assert "job" not in json.loads(line.values["Tags"])


def added_up(of: Sequence[FocusLine]) -> dict[tuple[tuple[str, str], ...], tuple[Decimal, Decimal]]:
    sums: dict[tuple[tuple[str, str], ...], tuple[Decimal, Decimal]] = defaultdict(lambda: (Decimal(0), Decimal(0)))
    for line in of:
        quantity, cost = sums[line.of]
        sums[line.of] = quantity + Decimal(line.values["PricingQuantity"]), cost + Decimal(line.values["BilledCost"])
    return {key: total for key, total in sums.items() if any(total)}


@pytest.mark.parametrize("seed", range(30))
def test_what_was_issued_and_its_corrections_say_what_is_so(seed: int) -> None:
    chance = random.Random(seed)

    def drawn() -> list[Charge]:
        named = {(chance.randrange(-3, 4), chance.choice("abc"), chance.choice(("2.5", "3"))) for _ in range(8)}
        return [charge(day, chance.choice((1, 2, 3)) * 10**9, price, job=job) for day, job, price in sorted(named)]

    issued = lines(*drawn())
    for _ in range(3):
        now = lines(*drawn())
        more = list(corrections(issued, now, MARCH.after(2 * DAY)))
        for line in more:
            assert list(objections("1.2", line.values)) == []
            is_march = line.values["BillingPeriodEnd"] == "2026-04-01T00:00:00Z"
            assert (line.values["ChargeClass"] == "Correction") == is_march
        issued += more
        assert added_up(issued) == added_up(now)
        assert list(corrections(issued, now, None)) == []


def test_a_month_is_invoiced_when_it_is_over_by_then() -> None:
    march, april = charge(0), charge(5)

    def classes(until: str | None) -> list[str]:
        at = Instant.parse(until) if until else None
        return [line.values["ChargeClass"] for line in corrections((), lines(march, april), at)]

    assert classes(None) == classes("2026-03-31T23:59:59Z") == ["", ""]
    assert classes("2026-04-01T00:00:00Z") == ["Correction", ""]
    assert classes("2026-05-01T00:00:00Z") == ["Correction", "Correction"]
