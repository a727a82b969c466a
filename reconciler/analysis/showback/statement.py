"""The statement of an account: what each queue, user, class, job or GPU type had, lost and waited for, and what it costs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, Literal, NamedTuple, get_args

from reconciler.analysis.showback.account import GpuAccount, HeldPiece
from reconciler.analysis.showback.tariff import Period, Tariff, cost_of, hours_of, seconds_of
from reconciler.model.failure import FailureKind
from reconciler.model.rate_card import Price, Rate
from reconciler.protocols.past_jobs import PastJob
from reconciler.protocols.placements import NodePlacement, Placement, PlacementEnd
from solver.model.cluster import GpuType
from solver.model.document import Document
from solver.model.quantities import Instant
from solver.model.workload import JobName, QueueName

ShowbackBy = Literal["queue", "user", "class", "job", "gpu-type"]

_RESIZED: Final[frozenset[PlacementEnd]] = frozenset({"grew", "shrank", "restarted"})
_SENT_BACK: Final[frozenset[PlacementEnd]] = frozenset({"evicted", "suspended", "requeued"})
_FAILED: Final[frozenset[PlacementEnd]] = frozenset({"failed", "lost", *get_args(FailureKind)})
_DELETED: Final[frozenset[PlacementEnd]] = frozenset({"cancelled", "unseen"})
_UNTIL_NOW: Final = 2**62

Attempt = tuple[JobName, int]


class UsedTime(NamedTuple):
    """Of what was held, in the account's units: as much as was `measured`, and `active` of that."""

    measured: int
    active: int


MeasuredUse = Callable[[HeldPiece], UsedTime | None]
"""What is known of the use of what was held; None: nothing was measured."""


class ShowbackRow(Document, frozen=True, omit_defaults=False):
    """GPU-seconds of one queue, user, class, job or GPU type, exactly, and what they cost.

    `active` and `idle_held`: of what was allocated and measured; null: nothing was measured; `unmeasured` is the rest.
    `lost_to_evictions`, `lost_to_failures`: work since the last checkpoint of attempts that were sent back, or failed.
    `waiting`: what jobs asked for while they held nothing. `cost`: of what has a price; null: nothing has; `unpriced` is the rest.
    `redacted`: which jobs or users these are is for those that may see them; together they are one row.
    """

    name: str
    allocated: Decimal
    active: Decimal | None
    idle_held: Decimal | None
    unmeasured: Decimal
    lost_to_evictions: Decimal
    lost_to_failures: Decimal
    waiting: Decimal
    cost: Decimal | None
    unpriced: Decimal
    queue: str = ""
    user: str = ""
    redacted: bool = False


class Charge(Document, frozen=True, omit_defaults=False):
    """GPU-hours (`quantity`) of one queue, class, kind of GPU and price in one period. `cost` is exactly quantity times price.

    `user` and `job` are "" where the statement is not by them, or the caller may not see them (`redacted`). `price`: of a GPU-hour;
    null: no RateCard has one, and the cost is not known.
    """

    start: Instant
    end: Instant
    queue: QueueName
    priority_class: str
    pool: str
    gpu_type: GpuType
    quantity: Decimal
    price: Price | None
    cost: Decimal | None
    rate_card: str
    user: str = ""
    job: str = ""
    redacted: bool = False


class JobFacts(NamedTuple):
    """What is known of jobs beside the account.

    `saved`: when attempts saved their work last. `placed`: all that a job ever held, asked where an attempt goes on behind the
    window. `sees`: whether jobs of a queue and user may be named. `default_class`: of jobs that name none.
    """

    jobs: Mapping[JobName, PastJob]
    saved: Mapping[Attempt, Instant]
    placed: Callable[[JobName], Iterable[NodePlacement]]
    sees: Callable[[QueueName, str], bool]
    default_class: str = ""
    used: MeasuredUse = lambda _: None

    def class_of(self, job: JobName) -> str:
        """The class of a job."""
        known = self.jobs.get(job)
        return (known.priority_class if known else "") or self.default_class


class _Key(NamedTuple):
    name: str
    queue: str = ""
    user: str = ""
    is_hidden: bool = False


@dataclass
class _Sum:
    allocated: int = 0
    active: int | None = None
    measured: int = 0
    evicted: int = 0
    failed: int = 0
    waiting: int = 0
    unpriced: int = 0
    priced: Counter[Rate] = field(default_factory=Counter)


class _Line(NamedTuple):
    period: Period
    queue: QueueName
    priority_class: str
    pool: str
    gpu_type: GpuType
    card: str
    rate: Rate | None
    user: str
    job: str
    is_hidden: bool


class ShowbackStatement(NamedTuple):
    """`rows`: the most GPU time first. `charges`: the same time by period and price."""

    rows: tuple[ShowbackRow, ...]
    charges: tuple[Charge, ...]


def statement_of(account: GpuAccount, facts: JobFacts, tariff: Tariff, by: ShowbackBy) -> ShowbackStatement:
    """Every held piece of the account is in exactly one row, and in charges that together are as long."""
    sums, lines = defaultdict[_Key, _Sum](_Sum), Counter[_Line]()
    ends = dict(_ends(account, facts))
    for piece in account.held:
        placement, kind = piece.placement, piece.kind
        job = placement.job
        hidden, priority_class = not facts.sees(placement.queue, placement.user), facts.class_of(job)
        key = _key(by, placement.queue, placement.user, priority_class, job, kind.gpu_type, is_hidden=hidden)
        total = sums[key]
        total.allocated += piece.amount
        _add_use(total, facts.used(piece))
        _add_loss(total, piece, ends.get((job, placement.attempt), ""), facts.saved.get((job, placement.attempt)))
        named = (key.user, job if by == "job" and not hidden else "", hidden and by in ("user", "job"))
        for priced in tariff.priced(piece, priority_class):
            card = priced.card.name if priced.card else ""
            of = placement.queue, priority_class, kind.pool, kind.gpu_type
            lines[_Line(priced.period, *of, card, priced.rate, *named)] += priced.amount
            if priced.rate is None:
                total.unpriced += priced.amount
            else:
                total.priced[priced.rate] += priced.amount
    for known, amount in _waiting(account, facts):
        sums[_waiting_key(by, known, facts)].waiting += amount
    rows = sorted((_row(key, total) for key, total in sums.items()), key=lambda row: (-row.allocated, row.name))
    charges = sorted(
        map(_charge, lines.items()), key=lambda one: (one.start, one.queue, one.user, one.job, one.gpu_type)
    )
    return ShowbackStatement(tuple(rows), tuple(charges))


def _key(
    by: ShowbackBy, queue: QueueName, user: str, priority_class: str, job: JobName, gpu_type: str, *, is_hidden: bool
) -> _Key:
    if by in ("user", "job") and is_hidden:
        return _Key("", is_hidden=True)
    match by:
        case "queue":
            return _Key(queue)
        case "user":
            return _Key(user, user=user)
        case "class":
            return _Key(priority_class)
        case "job":
            return _Key(job, queue, user)
        case "gpu-type":
            return _Key(gpu_type)


def _waiting_key(by: ShowbackBy, job: PastJob, facts: JobFacts) -> _Key:
    """A job that takes one of several GPU types waits for none of them."""
    gpu_type = job.gpu_types[0] if len(job.gpu_types) == 1 else ""
    hidden = not facts.sees(job.queue, job.user)
    return _key(by, job.queue, job.user, facts.class_of(job.name), job.name, gpu_type, is_hidden=hidden)


def _add_use(total: _Sum, used: UsedTime | None) -> None:
    if used is not None:
        total.active = (total.active or 0) + used.active
        total.measured += used.measured


def _add_loss(total: _Sum, piece: HeldPiece, ended: PlacementEnd, saved_at: Instant | None) -> None:
    since = piece.since if saved_at is None else max(piece.since, saved_at)
    lost = piece.milli * max(0, piece.until - since)
    if ended in _SENT_BACK:
        total.evicted += lost
    elif ended in _FAILED:
        total.failed += lost


def _ends(account: GpuAccount, facts: JobFacts) -> Iterator[tuple[Attempt, PlacementEnd]]:
    """How attempts ended: as the last of their placements did, which may lie behind the window.

    Pods of a gang have a placement each. Where the last were deleted for what became of another, that is how the attempt ended.
    """
    last: dict[Attempt, Placement] = {}
    for piece in account.held:
        _keep_later(last, piece.placement)
    undone = dict(_undone(account, {of for of, placement in last.items() if placement.ended in _DELETED}))
    for (job, attempt), placement in last.items():
        if placement.ended in _RESIZED:
            later = {(job, attempt): placement}
            for one in facts.placed(job):
                if one.placement.attempt == attempt:
                    _keep_later(later, one.placement)
            placement = later[job, attempt]  # noqa: PLW2901  (the one that says how it ended)
        yield (job, attempt), undone.get((job, attempt), placement.ended)


def _undone(account: GpuAccount, attempts: Collection[Attempt]) -> Iterator[tuple[Attempt, PlacementEnd]]:
    """Of these attempts those that were sent back or failed with one of their pods, in whose place none came any more."""
    if not attempts:
        return
    placements = defaultdict[Attempt, list[Placement]](list)
    for piece in account.held:
        if (of := (piece.placement.job, piece.placement.attempt)) in attempts:
            placements[of].append(piece.placement)
    for of, those in placements.items():
        newest = max(one.since for one in those)
        ends = {one.ended for one in those if one.until is not None and one.until > newest}
        for kind in (_SENT_BACK, _FAILED):
            if of_kind := sorted(ends & kind):
                yield of, of_kind[0]
                break


def _keep_later(last: dict[Attempt, Placement], placement: Placement) -> None:
    of = placement.job, placement.attempt
    before = last.get(of)
    if before is None or (before.until or _UNTIL_NOW, before.number) < (
        placement.until or _UNTIL_NOW,
        placement.number,
    ):
        last[of] = placement


def _waiting(account: GpuAccount, facts: JobFacts) -> Iterator[tuple[PastJob, int]]:
    """What each job asked for, for as long as it was there and held nothing."""
    held = defaultdict[JobName, set[tuple[int, int]]](set)
    for piece in account.held:
        held[piece.placement.job].add((piece.since, piece.until))
    for job in facts.jobs.values():
        at = max(job.submitted_at, account.start)
        end = account.end if job.ended_at is None else min(job.ended_at, account.end)
        waited = 0
        for since, until in sorted(held.get(job.name, ())):
            waited += max(0, min(since, end) - at)
            at = Instant(max(at, until))
        waited += max(0, end - at)
        if waited and job.gpus:
            yield job, int(job.gpus) * waited


def _row(key: _Key, total: _Sum) -> ShowbackRow:
    is_measured, costs = (
        total.active is not None,
        [cost_of(hours_of(amount), rate) for rate, amount in total.priced.items()],
    )
    return ShowbackRow(
        name=key.name,
        allocated=seconds_of(total.allocated),
        active=seconds_of(total.active or 0) if is_measured else None,
        idle_held=seconds_of(total.measured - (total.active or 0)) if is_measured else None,
        unmeasured=seconds_of(total.allocated - total.measured),
        lost_to_evictions=seconds_of(total.evicted),
        lost_to_failures=seconds_of(total.failed),
        waiting=seconds_of(total.waiting),
        cost=sum(costs, Decimal(0)) if costs else None,
        unpriced=seconds_of(total.unpriced),
        queue=key.queue,
        user=key.user,
        redacted=key.is_hidden,
    )


def _charge(counted: tuple[_Line, int]) -> Charge:
    line, amount = counted
    quantity, rate = hours_of(amount), line.rate
    return Charge(
        start=line.period.start,
        end=line.period.end,
        queue=line.queue,
        priority_class=line.priority_class,
        pool=line.pool,
        gpu_type=line.gpu_type,
        quantity=quantity,
        price=rate.per_gpu_hour if rate else None,
        cost=cost_of(quantity, rate) if rate else None,
        rate_card=line.card,
        user=line.user,
        job=line.job,
        redacted=line.is_hidden,
    )
