"""Prices by RateCards: from a date on, by type, pool, class and time of day, also where clocks are changed."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest

from reconciler.analysis.showback.account import GpuKind, HeldPiece
from reconciler.analysis.showback.tariff import Per, Tariff, cost_of, hours_of, seconds_of
from reconciler.model.rate_card import Price, Rate, RateCard
from solver.model.cluster import GpuType
from solver.model.quantities import Instant
from tests.reconciler.analysis.showback.facts import H100, HOUR, START, at, part, placed

PRICE = Price.parse("2")
DAY = 24 * HOUR
Counted = dict[tuple[str, str], float]


def instant(written: str) -> Instant:
    return Instant.parse(written)


def card(
    *rates: Rate, start: Instant = START, until: Instant | None = None, zone: str = "UTC", name: str = "a"
) -> RateCard:
    return RateCard(name, start, "EUR", rates or (Rate(PRICE),), until, zone)


def piece(since: Instant, until: Instant, milli: int = 1000, pool: str = "p", gpu_type: GpuType = H100) -> HeldPiece:
    of = placed("a", "n", 0, None, part("n", 0, milli))
    return HeldPiece(of, GpuKind(pool, gpu_type), since, until)


def priced(tariff: Tariff, one: HeldPiece, priority_class: str = "") -> Counter[str]:
    """Hours of each price; "none" without one."""
    found: Counter[str] = Counter()
    for each in tariff.priced(one, priority_class):
        found[str(each.rate.per_gpu_hour) if each.rate else "none"] += each.amount // 1000
    return Counter({price: ms / HOUR for price, ms in found.items()})


@pytest.mark.parametrize(
    ("written", "micro", "shown"),
    [
        ("2.35", 2_350_000, "2.35"),
        (2.35, 2_350_000, "2.35"),
        (3, 3_000_000, "3"),
        ("0.000001", 1, "0.000001"),
        (0, 0, "0"),
    ],
)
def test_a_price_is_what_was_written(written: object, micro: int, shown: str) -> None:
    price = Price.parse(written)
    assert (int(price), str(price), price.amount) == (micro, shown, Decimal(shown))


@pytest.mark.parametrize("written", ["-1", -1.0, "1.1234567", 1e-7, "1e3", 1e10, True, None, "", "1,5", float("nan")])
def test_what_is_no_price(written: object) -> None:
    with pytest.raises(ValueError, match="a price such as"):
        Price.parse(written)


def test_amounts_are_exact_and_costs_the_product_of_what_is_stated() -> None:
    assert [str(seconds_of(each)) for each in (0, 1, 1_500_000, 10**20)] == ["0", "0.000001", "1.5", "1" + "0" * 14]
    assert hours_of(3_600_000_000) == 1
    quantity = hours_of(10**18 // 7)
    assert quantity == Decimal("39682539.682539682")
    exact = Fraction(quantity) * Fraction(123_456_789_123_457, 10**6)
    assert Fraction(cost_of(quantity, Rate(Price(123_456_789_123_457)))) == exact


def test_the_first_rate_that_fits_counts() -> None:
    rates = (
        Rate(Price.parse(1), pool="old"),
        Rate(Price.parse(4), gpu_type=H100, priority_class="urgent"),
        Rate(Price.parse(3), gpu_type=H100),
    )
    tariff = Tariff([card(*rates)], at(0), at(HOUR))
    hour = piece(at(0), at(HOUR))
    assert priced(tariff, hour) == {"3": 1}
    assert priced(tariff, hour, "urgent") == {"4": 1}
    assert priced(tariff, hour._replace(kind=GpuKind("old", H100)), "urgent") == {"1": 1}
    assert priced(tariff, hour._replace(kind=GpuKind("p", GpuType("A100")))) == {"none": 1}


def test_a_card_counts_from_its_begin_until_its_end_or_the_next() -> None:
    cards = [
        card(start=at(2 * HOUR), until=at(4 * HOUR)),
        card(Rate(Price.parse(5)), start=at(6 * HOUR), name="b"),
        card(Rate(Price.parse(7)), start=at(8 * HOUR), name="c"),
    ]
    tariff = Tariff(cards, at(0), at(10 * HOUR))
    assert priced(tariff, piece(at(0), at(10 * HOUR))) == {"none": 4, "2": 2, "5": 2, "7": 2}
    assert priced(tariff, piece(at(3 * HOUR), at(7 * HOUR), 500)) == {"2": 0.5, "none": 1, "5": 0.5}
    assert priced(Tariff(cards, at(7 * HOUR), at(9 * HOUR)), piece(at(7 * HOUR), at(9 * HOUR))) == {"5": 1, "7": 1}
    assert (tariff.currency, Tariff([], at(0), at(1)).currency) == ("EUR", "")


NIGHT = Rate(Price.parse(1), hours="20:00-06:00")
WEEKEND = Rate(Price.parse(1), days=("sat", "sun"))


@pytest.mark.parametrize(
    ("rate", "start", "hours", "cheap"),
    [
        (NIGHT, "2026-03-02T00:00:00Z", 24, 10),
        (NIGHT, "2026-03-02T05:30:00+01:00", 1, 0.5),
        (WEEKEND, "2026-03-02T00:00:00+01:00", 7 * 24, 48),
        (WEEKEND, "2026-03-06T23:00:00+01:00", 2, 1),
        # Clocks go forward on 29 March, and back on 25 October: a day of 23 hours, and one of 25.
        (NIGHT, "2026-03-29T00:00:00+01:00", 23, 9),
        (NIGHT, "2026-10-25T00:00:00+02:00", 25, 11),
        (Rate(Price.parse(1), hours="00:00-02:30"), "2026-10-25T00:00:00+02:00", 25, 3),
        (Rate(Price.parse(1), hours="02:00-03:00"), "2026-03-29T00:00:00+01:00", 23, 0),
        (Rate(Price.parse(1), hours="12:00-24:00", days=("mon",)), "2026-03-01T00:00:00+01:00", 72, 12),
    ],
)
def test_a_rate_by_time_of_day(rate: Rate, start: str, hours: float, cheap: float) -> None:
    begin = instant(start)
    end = begin.after(int(hours * HOUR))
    tariff = Tariff([card(rate, Rate(PRICE), start=begin.after(-DAY), zone="Europe/Berlin")], begin, end)
    found = priced(tariff, piece(begin, end))
    assert found == +Counter({"1": cheap, "2": hours - cheap})


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"])
@pytest.mark.parametrize("month", [3, 4, 10, 11])
def test_every_quarter_of_an_hour_is_priced_by_the_zones_own_clock(zone: str, month: int) -> None:
    rates = (
        Rate(Price.parse(1), hours="01:15-02:45"),
        Rate(Price.parse(3), hours="23:30-00:15", days=("sun",)),
        Rate(PRICE),
    )
    begin, end = instant(f"2026-{month:02}-01T00:00:00Z"), instant(f"2026-{month:02}-30T00:00:00Z")
    tariff = Tariff([card(*rates, start=begin, zone=zone)], begin, end)
    quarter, clock = HOUR // 4, ZoneInfo(zone)
    for since in range(begin, end, quarter):
        local = datetime.fromtimestamp(since // 1000, UTC).astimezone(clock)
        now, is_sunday = (local.hour, local.minute), local.weekday() == 6
        late = is_sunday and (now >= (23, 30) or now < (0, 15))
        wanted = "1" if (1, 15) <= now < (2, 45) else "3" if late else "2"
        assert priced(tariff, piece(Instant(since), Instant(since + quarter))) == {wanted: 0.25}, local


@pytest.mark.parametrize(("per", "number"), [("window", 1), ("day", 61), ("month", 3)])
def test_periods_follow_each_other_and_are_the_window(per: Per, number: int) -> None:
    begin, end = instant("2026-01-31T12:00:00Z"), instant("2026-04-01T00:30:00Z")
    end = end if per != "month" else instant("2026-03-31T23:59:59Z")
    tariff = Tariff([card(start=begin)], begin, end, per)
    assert (tariff.periods[0].start, tariff.periods[-1].end) == (begin, end)
    assert all(one.end == following.start for one, following in zip(tariff.periods, tariff.periods[1:], strict=False))
    assert len(tariff.periods) == number
    parts = list(tariff.priced(piece(begin, end), ""))
    assert sum(part.amount for part in parts) == 1000 * (end - begin)
    assert [part.period for part in parts] == list(tariff.periods)
