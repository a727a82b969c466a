"""What a Budget says: how much a queue or user may spend in a period, at which parts of it that is told, and what follows."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from reconciler.model.rate_card import Price
from solver.model.document import Document
from solver.model.quantities import Duration, Instant
from solver.model.workload import QueueName

WhenSpent = Literal["notify", "no-borrowing", "hold-new"]
Every = Literal["day", "week", "month", "quarter", "year"]


class BudgetSpan(NamedTuple):
    """One period of a budget; its end is the begin of the next."""

    start: Instant
    end: Instant


class BudgetPeriod(Document, frozen=True):
    """Calendar periods in a zone: each begins at its midnight."""

    every: Every
    time_zone: str

    def around(self, now: Instant) -> BudgetSpan:
        """The period in which an instant lies."""
        zone = ZoneInfo(self.time_zone)
        local = datetime.fromtimestamp(now // 1_000, zone)
        first = _begin(self.every, local.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None))
        return BudgetSpan(_instant(first, zone), _instant(_next(self.every, first), zone))


class GpuBudget(Document, frozen=True):
    """Of a `queue` with those below it, or of a `user`; in `gpu_hours`, or as `cost` by the RateCards."""

    name: str
    period: BudgetPeriod
    queue: QueueName | None = None
    user: str = ""
    gpu_hours: int | None = None
    cost: Price | None = None
    alert_at: tuple[int, ...] = (80, 100)
    when_spent: WhenSpent = "notify"
    origin: str = ""

    @property
    def limit(self) -> Decimal:
        """What may be spent, in GPU-hours or units of the currency."""
        return self.cost.amount if self.cost is not None else Decimal(self.gpu_hours or 0)

    @property
    def subject(self) -> str:
        """Whose it is, in words."""
        return f"queue {self.queue}" if self.queue is not None else f"user {self.user}"


class BudgetStanding(Document, frozen=True, omit_defaults=False):
    """How a budget stands as of `at`, in the period from `start` to `end`.

    `spent` and `limit` are in `unit`: "GPU-hours", or the currency. `percent`: of the limit, rounded down. `unpriced`: GPU-hours
    that no RateCard has a price for, which are in no cost. `per_day`: what was spent lately (`over`), for a day. `runs_out_at`:
    when it is spent if that goes on; null: not in this period, or it is spent already.
    """

    budget: str
    origin: str
    subject: str
    queue: QueueName | None
    user: str
    start: Instant
    end: Instant
    at: Instant
    unit: str
    limit: Decimal
    spent: Decimal
    unpriced: Decimal
    percent: int
    per_day: Decimal
    over: Duration
    runs_out_at: Instant | None
    when_spent: WhenSpent

    @property
    def is_spent(self) -> bool:
        """Nothing of it is left."""
        return self.spent >= self.limit

    def __str__(self) -> str:
        more = f", and {self.unpriced:.1f} GPU-hours without a price" if self.unpriced else ""
        spent = f"{self.spent:.1f} of {self.limit:f} {self.unit} ({self.percent} %){more}"
        if self.is_spent:
            return f"budget {self.budget} of {self.subject} is spent: {spent} until {self.end}"
        if self.runs_out_at is None:
            return f"budget {self.budget} of {self.subject}: {spent} until {self.end}"
        rate = f"at the rate of the last {self.over}"
        return f"budget {self.budget} of {self.subject}: {spent}; {rate} it is spent at {self.runs_out_at}"


def _begin(every: Every, day: datetime) -> datetime:
    match every:
        case "day":
            return day
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "quarter":
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case "year":
            return day.replace(month=1, day=1)


def _next(every: Every, first: datetime) -> datetime:
    days = {"day": 1, "week": 7, "month": 32, "quarter": 95, "year": 370}
    return _begin(every, first + timedelta(days=days[every]))


def _instant(local: datetime, zone: ZoneInfo) -> Instant:
    return Instant(int(local.replace(tzinfo=zone).timestamp()) * 1_000)
