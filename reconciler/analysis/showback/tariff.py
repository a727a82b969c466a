"""What an hour of a GPU costs at each moment of a window, by RateCards, and into which periods the window is divided."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from itertools import zip_longest
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

from reconciler.analysis.showback.account import UNITS_PER_GPU_SECOND, HeldPiece
from reconciler.model.rate_card import Rate, RateCard
from solver.model.quantities import Instant

Per = Literal["window", "day", "month"]
"""How a window is divided: not at all, or at the begin of each day or month in UTC."""

_HOUR_MS: Final = 3_600_000
_EXACT: Final = Context(prec=60)
"""Enough digits for any product here."""
_QUANTITY_STEP: Final = Decimal("0.000000001")
"""Hours are stated so finely: 3.6 millionths of a second."""


class Period(NamedTuple):
    """A part of a window."""

    start: Instant
    end: Instant


class Priced(NamedTuple):
    """A part of what was held: in which period, at which price; None: no RateCard has one."""

    period: Period
    card: RateCard | None
    rate: Rate | None
    amount: int


class _Stretch(NamedTuple):
    """A time in which all prices stay as they are."""

    start: int
    end: int
    period: Period
    card: RateCard | None
    rates: tuple[Rate, ...]


def hours_of(amount: int) -> Decimal:
    """GPU-hours of an amount of GPU time, rounded once."""
    exact = Decimal(amount) / (UNITS_PER_GPU_SECOND * 3_600)
    return exact.quantize(_QUANTITY_STEP, ROUND_HALF_EVEN)


def cost_of(quantity: Decimal, rate: Rate) -> Decimal:
    """What so many GPU-hours cost, exactly."""
    return _EXACT.multiply(quantity, rate.per_gpu_hour.amount)


def seconds_of(amount: int) -> Decimal:
    """GPU-seconds of an amount of GPU time, exactly."""
    whole, rest = divmod(amount, UNITS_PER_GPU_SECOND)
    return Decimal(f"{whole}.{rest:06}".rstrip("0").rstrip("."))


class Tariff:
    """The prices of a window. `currency`: of all its cards; "" without any.

    Where a card has an end, or no card begins before a time, there is no price: that is told apart from a price of 0.
    """

    def __init__(self, cards: Sequence[RateCard], start: Instant, end: Instant, per: Per = "window") -> None:
        """`cards`: by their begin, none of which overlap."""
        self.currency = cards[0].currency if cards else ""
        self.periods = tuple(_periods(start, end, per))
        self._stretches = [stretch for period in self.periods for stretch in _stretches(cards, period)]
        self._begins = [stretch.start for stretch in self._stretches]
        self._known: dict[tuple[tuple[Rate, ...], str, str, str], Rate | None] = {}

    def priced(self, piece: HeldPiece, priority_class: str) -> Iterator[Priced]:
        """A piece of the window, cut where its price or the period changes. Together the parts are the piece."""
        place = bisect_right(self._begins, piece.since) - 1
        while place < len(self._stretches) and self._stretches[place].start < piece.until:
            stretch = self._stretches[place]
            lasted = min(stretch.end, piece.until) - max(stretch.start, piece.since)
            rate = self._rate(stretch.rates, piece.kind.pool, piece.kind.gpu_type, priority_class)
            yield Priced(stretch.period, stretch.card if rate else None, rate, piece.milli * lasted)
            place += 1

    def _rate(self, rates: tuple[Rate, ...], pool: str, gpu_type: str, priority_class: str) -> Rate | None:
        asked = rates, pool, gpu_type, priority_class
        if asked not in self._known:
            self._known[asked] = next((rate for rate in rates if rate.fits(pool, gpu_type, priority_class)), None)
        return self._known[asked]


def _periods(start: Instant, end: Instant, per: Per) -> Iterator[Period]:
    at = start
    while at < end:
        following = min(end, _next(at, per)) if per != "window" else end
        yield Period(at, following)
        at = following


def _next(at: Instant, per: Per) -> Instant:
    """Where the next day or month begins."""
    now = datetime.fromtimestamp(at // 1_000, UTC).replace(hour=0, minute=0, second=0)
    following = now + timedelta(days=1) if per == "day" else (now.replace(day=1) + timedelta(days=32)).replace(day=1)
    return Instant(int(following.timestamp()) * 1_000)


def _stretches(cards: Sequence[RateCard], period: Period) -> Iterator[_Stretch]:
    at = int(period.start)
    for card, following in zip_longest(cards, cards[1:]):
        over = min(card.until or period.end, following.start if following else period.end, period.end)
        begun = max(card.start, at)
        if begun >= over:
            continue
        if at < begun:
            yield _Stretch(at, begun, period, None, ())
        yield from _timed(card, begun, over, period)
        at = over
    if at < period.end:
        yield _Stretch(at, period.end, period, None, ())


def _timed(card: RateCard, start: int, end: int, period: Period) -> Iterator[_Stretch]:
    """A card's time, cut where the rates that hold change by the clock of its zone."""
    zone = ZoneInfo(card.time_zone)
    cuts = sorted({start, *(at for at in _changes(card, zone, start, end) if start < at < end)})
    for begun, over in zip(cuts, (*cuts[1:], end), strict=True):
        local = datetime.fromtimestamp(begun / 1_000, zone)
        minute = local.hour * 60 + local.minute
        rates = tuple(rate for rate in card.rates if rate.holds(local.weekday(), minute))
        yield _Stretch(begun, over, period, card, rates)


def _changes(card: RateCard, zone: ZoneInfo, start: int, end: int) -> Iterator[int]:
    """When rates may come to hold or no longer: at their minutes of each day, and where the zone's clock is changed.

    Zones change their clocks at whole hours of UTC or close to them: an hour is looked through by quarters where it does.
    """
    minutes = {minute % 1_440 for rate in card.rates if rate.is_timed for minute in (*rate.minutes, 0)}
    if not minutes:
        return
    day = datetime.fromtimestamp(start / 1_000, zone).date() - timedelta(days=1)
    last = datetime.fromtimestamp(end / 1_000, zone).date()
    while day <= last:
        for minute in minutes:
            for fold in (0, 1):
                local = datetime(day.year, day.month, day.day, minute // 60, minute % 60, fold=fold, tzinfo=zone)
                yield int(local.timestamp()) * 1_000
        day += timedelta(days=1)
    yield from _clock_changes(zone, start, end)


def _clock_changes(zone: ZoneInfo, start: int, end: int) -> Iterator[int]:
    def offset(at: int) -> timedelta | None:
        return datetime.fromtimestamp(at / 1_000, zone).utcoffset()

    at = start - start % _HOUR_MS
    while at < end:
        if offset(at) != offset(at + _HOUR_MS):
            yield from range(at, at + _HOUR_MS + 1, _HOUR_MS // 4)
        at += _HOUR_MS
