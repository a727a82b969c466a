"""What a RateCard says: what an hour of a GPU costs, from a date on, by its type, pool, class of jobs and time of day."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final, Literal

import msgspec

from solver.model.cluster import GpuType
from solver.model.document import Document
from solver.model.quantities import Instant, Quantity

_DECIMALS: Final = 6
_WRITTEN: Final = re.compile(r"(\d{1,9})(?:\.(\d{1,6}))?")

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WEEKDAYS: Final[tuple[Weekday, ...]] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Price(Quantity):
    """Millionths of a currency's unit, written as `2.35`: with at most six decimals, and never rounded."""

    expected = 'a price such as "2.35", with at most nine digits before and six after the point'

    @classmethod
    def _read(cls, written: object) -> int | None:
        # Of a float the shortest text that reads back equal is what was written, as far as so many digits go.
        text = str(written) if isinstance(written, int | float) and not isinstance(written, bool) else written
        match = _WRITTEN.fullmatch(text) if isinstance(text, str) else None
        return int(match[1]) * 10**_DECIMALS + int(f"{match[2] or '':0<{_DECIMALS}}") if match else None

    @property
    def amount(self) -> Decimal:
        """In units of the currency."""
        return Decimal(int(self)).scaleb(-_DECIMALS)

    def __str__(self) -> str:
        whole, rest = divmod(int(self), 10**_DECIMALS)
        return f"{whole}.{rest:06}".rstrip("0").rstrip(".")


class Rate(Document, frozen=True):
    """A price for what fits all that it says; "" and () fit anything. `hours`: of the day, as `20:00-06:00`; 24:00 is its end."""

    per_gpu_hour: Price
    gpu_type: GpuType = GpuType("")
    pool: str = ""
    priority_class: str = ""
    hours: str = ""
    days: tuple[Weekday, ...] = ()

    @property
    def is_timed(self) -> bool:
        """Whether it holds at some times of the week alone."""
        return bool(self.hours or self.days)

    @property
    def minutes(self) -> tuple[int, int]:
        """From which minute of the day until which; the second may be the smaller one: then it goes on past midnight."""
        if not self.hours:
            return 0, 24 * 60
        first, _, last = self.hours.partition("-")
        return _minute(first), _minute(last)

    def fits(self, pool: str, gpu_type: str, priority_class: str) -> bool:
        """Whether it is for such GPUs and jobs."""
        return (
            self.gpu_type in ("", gpu_type) and self.pool in ("", pool) and self.priority_class in ("", priority_class)
        )

    def holds(self, weekday: int, minute: int) -> bool:
        """Whether it holds on a day of the week (0: Monday) at a minute of that day."""
        if self.days and WEEKDAYS[weekday] not in self.days:
            return False
        first, last = self.minutes
        return first <= minute < last if first < last else minute >= first or minute < last

    def covers(self, other: Rate) -> bool:
        """Whether whatever fits the other fits this one, at whatever time."""
        fits = (
            self.gpu_type in ("", other.gpu_type)
            and self.pool in ("", other.pool)
            and self.priority_class in ("", other.priority_class)
        )
        return fits and (not self.is_timed or (self.hours, self.days) == (other.hours, other.days))


class RateCard(Document, frozen=True):
    """Prices from `start` until `until` (None: until the next card begins). Of its `rates` the first that fits counts."""

    name: str
    start: Instant = msgspec.field(name="from")
    currency: str
    rates: tuple[Rate, ...]
    until: Instant | None = None
    time_zone: str = "UTC"
    origin: str = ""


def _minute(written: str) -> int:
    hour, _, minute = written.partition(":")
    return int(hour) * 60 + int(minute)
