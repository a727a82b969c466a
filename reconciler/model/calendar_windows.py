"""The windows of a policy between two times: when Reservations keep capacity, and when queues have another quota."""

from __future__ import annotations

from collections.abc import Iterator

from solver.model.document import Document
from solver.model.quantities import Instant
from solver.policy.policy import Policy, Queue, QuotaHours
from solver.policy.repeat import RepeatedWindow
from solver.policy.reservation import DeclaredReservation
from solver.policy.windows import windows_between

_FIELDS = (("guaranteed", "guaranteed"), ("max", "max"), ("per_user", "per user"), ("lendable", "lendable"))


class CalendarWindow(Document, frozen=True, omit_defaults=False):
    """One window: what holds then, for whom, and who leaves for it.

    Of a Reservation, or of `hours` of a queue's quota; then `keeps` says the quota, and `kept_for` the queue.
    """

    name: str
    reservation: str | None
    hours: str | None
    start: Instant
    until: Instant
    keeps: str
    kept_for: str
    evict: str
    origin: str

    @property
    def series(self) -> tuple[str, str, str]:
        """What it is a window of: of its document it is one, or one of many."""
        return self.reservation or "", self.hours or "", self.kept_for if self.hours else ""


def calendar_windows(policy: Policy, since: Instant, until: Instant) -> tuple[CalendarWindow, ...]:
    """Those that lie between two times at least in part, in order."""
    kept = (one for document in policy.reservations for one in _kept(document, since, until))
    other = (one for queue in policy.queues for hours in queue.hours for one in _of_hours(queue, hours, since, until))
    return tuple(sorted((*kept, *other), key=lambda one: (one.start, one.name)))


def _kept(document: DeclaredReservation, since: Instant, until: Instant) -> Iterator[CalendarWindow]:
    for window in windows_between(document, since, until):
        name = document.during(window).name if document.repeat else document.name
        of = (window.start, window.until, _keeps(document), _kept_for(document))
        yield CalendarWindow(name, document.name, None, *of, document.evict, document.origin)


def _of_hours(queue: Queue, hours: QuotaHours, since: Instant, until: Instant) -> Iterator[CalendarWindow]:
    windows: tuple[RepeatedWindow, ...] = hours.repeat.windows
    for window in windows:
        if window.start < until and since < window.until:
            name = f"{queue.name}.{hours.name}@{window.start}"
            of = (window.start, window.until, _quota(hours), f"queue {queue.name}")
            yield CalendarWindow(name, None, hours.name, *of, "none", hours.origin)


def _quota(hours: QuotaHours) -> str:
    rows = (
        f"{words} {value} {row.gpu_type}"
        for row in hours.quota
        for field, words in _FIELDS
        if (value := getattr(row, field)) is not None
    )
    said = (row for row in hours.quota if row.shared is not None)
    shared = (f"{row.gpu_type} {'shared' if row.shared else 'not shared'}" for row in said)
    weight = () if hours.weight is None else (f"weight {hours.weight}",)
    return ", ".join((*rows, *shared, *weight))


def _keeps(document: DeclaredReservation) -> str:
    if document.nodes is not None:
        return ", ".join(document.nodes)
    return f"{document.count} x {document.gpus_per_node} {document.gpu_type}"


def _kept_for(document: DeclaredReservation) -> str:
    queue = f"queue {document.queue}" if document.queue is not None else ""
    users = f"{', '.join(document.users)}" if document.users is not None else ""
    return f"{users} in {queue}" if queue and users else queue or users
