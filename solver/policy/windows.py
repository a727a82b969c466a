"""The policy as it stands at an instant: in place of documents that repeat, what holds by then of their windows.

Of Reservations these are the windows that are not over; of quota what holds while a window is open, and what is to follow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from solver.model.quantities import Instant
from solver.model.workload import QueueName
from solver.policy.policy import Policy, Queue, Quota, QuotaChange, QuotaHours, QuotaRow
from solver.policy.repeat import Repeat, RepeatedWindow
from solver.policy.reservation import DeclaredReservation


def policy_at(policy: Policy, now: Instant) -> Policy:
    """The policy that a round at `now` goes by. It is the very same object until a window of a Reservation ends, or one of quota
    begins or ends, so that what is kept of it lasts.

    Of each Reservation that repeats it has the first window that is not over, and those that begin within `etaHorizon` after that.
    Later ones bind no round: whatever starts now and would reach one of them would reach the first as well.
    Of each queue it has the quota and the weight that hold, and what is to follow: within `etaHorizon` after the next change, and
    the first of each kind after that.
    """
    if not policy.repeats:
        return policy
    passed = tuple(_passed(known, now) for known in policy.reservations)
    edges = policy.quota_edges
    begun = bisect_right(edges, now)
    if (*passed, begun) not in policy.standing:
        policy.standing.clear()
        ahead = policy.scheduling.eta_horizon
        found = (
            one for known, first in zip(policy.reservations, passed, strict=True) for one in _of(known, first, ahead)
        )
        by_name = tuple(sorted(found, key=lambda known: known.name))
        horizon = edges[begun].after(ahead) if begun < len(edges) else now
        queues = tuple(_queue_at(queue, now, horizon) if queue.hours else queue for queue in policy.queues)
        policy.standing[*passed, begun] = msgspec.structs.replace(policy, reservations=by_name, queues=queues)
    return policy.standing[*passed, begun]


def changes_at(policy: Policy, now: Instant) -> Instant | None:
    """When the quota of a queue is another for the first time after an instant, if nobody changes the policy; None: never.

    It may be asked of a policy as its documents say it, and as it stands at an instant.
    """
    changes = policy.quota_changes
    return next(iter(changes[bisect_right(changes, now) :][:1]), None)


def policies_ahead(policy: Policy) -> tuple[tuple[Instant, Policy], ...]:
    """What a policy that stands at an instant is to be, each time from when: `CHANGES_MAX` of the changes that it knows of."""
    instants = [] if policy.quota_edges else policy.quota_changes[:CHANGES_MAX]
    return tuple((at, _changed(policy, at)) for at in instants)


def kinds_ahead(policy: Policy) -> tuple[tuple[Instant, Policy], ...]:
    """Of what a policy that stands at an instant is to be each kind once, from when it is so first."""
    now, kinds = [(queue.quota, queue.weight) for queue in policy.queues], list[tuple[Instant, Policy]]()
    seen = [now]
    for at, then in policies_ahead(policy):
        kind = [(queue.quota, queue.weight) for queue in then.queues]
        if kind not in seen:
            seen.append(kind)
            kinds.append((at, then))
    return tuple(kinds)


CHANGES_MAX = 40
"""So many changes of quota a forecast looks ahead: two a day are fourteen in a week."""


def open_hours(queue: Queue, now: Instant) -> tuple[QuotaHours, ...]:
    """Those of which a window is open."""
    return tuple(hours for hours in queue.hours if window_at(hours.repeat, now) is not None)


def window_at(repeat: Repeat, now: Instant) -> RepeatedWindow | None:
    """The window that is open."""
    last = bisect_right(repeat.windows, now, key=lambda window: window.start) - 1
    return repeat.windows[last] if last >= 0 and now < repeat.windows[last].until else None


def quota_in(queue: Queue, hours: Sequence[QuotaHours]) -> tuple[Quota, ...]:
    """The rows of a queue while windows of these hours are open."""
    rows = {entry.gpu_type: entry for entry in queue.quota}
    for row in (row for known in hours for row in known.quota):
        rows[row.gpu_type] = _in_place_of(rows.get(row.gpu_type, Quota(row.gpu_type)), row)
    return tuple(rows[gpu_type] for gpu_type in sorted(rows))


def moments(queues: Iterable[Queue]) -> Iterator[tuple[Instant, Mapping[QueueName, Sequence[QuotaHours]]]]:
    """Each set of windows of quota that are open together at some time, by queue, with the first time; not that of none."""
    at_edges = defaultdict[Instant, list[Queue]](list)
    for queue in queues:
        windows = (window for hours in queue.hours for window in hours.repeat.windows)
        for edge in {at for window in windows for at in (window.start, window.until)}:
            at_edges[edge].append(queue)
    open_, seen = dict[QueueName, Sequence[QuotaHours]](), {frozenset[tuple[str, str]]()}
    for at in sorted(at_edges):
        for changed in at_edges[at]:
            open_[changed.name] = open_hours(changed, at)
        open_ = {name: hours for name, hours in open_.items() if hours}
        key = frozenset((name, hours.name) for name, some in open_.items() for hours in some)
        if key not in seen:
            seen.add(key)
            yield at, dict(open_)


def windows_between(document: DeclaredReservation, start: Instant, until: Instant) -> tuple[RepeatedWindow, ...]:
    """When a document keeps its capacity, as far as it does so between two instants."""
    known = document.repeat.windows if document.repeat else (RepeatedWindow(document.start, document.until),)
    return tuple(window for window in known if window.start < until and start < window.until)


def _passed(document: DeclaredReservation, now: Instant) -> int:
    """How many of its windows are over."""
    windows = document.repeat.windows if document.repeat else ()
    return bisect_right(windows, now, key=lambda window: window.until)


def _of(document: DeclaredReservation, first: int, ahead: int) -> Iterator[DeclaredReservation]:
    if document.repeat is None:
        yield document
        return
    windows = document.repeat.windows[first:]
    for window in windows:
        if window.start > windows[0].until + ahead:
            break
        yield document.during(window)


def _queue_at(queue: Queue, now: Instant, horizon: Instant) -> Queue:
    """`horizon`: until when it has all that is to follow."""
    current = _change_at(queue, now)
    ahead, before, known = list[QuotaChange](), current.hours, {current.hours}
    for at in _edges_after(queue, now):
        change = _change_at(queue, at)
        if change.hours != before and (at <= horizon or change.hours not in known):
            ahead.append(change)
        before = change.hours
        known.add(before)
    now_holds = {"quota": current.quota, "weight": current.weight, "in_hours": current.hours}
    return msgspec.structs.replace(queue, **now_holds, hours=(), ahead=tuple(ahead))


def _edges_after(queue: Queue, now: Instant) -> list[Instant]:
    """When its windows begin and end: so many that all that comes again in a year is among them."""
    found = set[Instant]()
    for hours in queue.hours:
        windows = hours.repeat.windows
        first = bisect_right(windows, now, key=lambda window: window.until)
        found |= {at for one in windows[first : first + EDGES_MAX] for at in (one.start, one.until) if at > now}
    return sorted(found)[:EDGES_MAX]


EDGES_MAX = 100
"""So many begins and ends of its windows a queue looks ahead."""


def _change_at(queue: Queue, at: Instant) -> QuotaChange:
    hours = open_hours(queue, at)
    weight = next((known.weight for known in hours if known.weight is not None), queue.weight)
    return QuotaChange(at, quota_in(queue, hours), weight, tuple(known.name for known in hours))


def _in_place_of(entry: Quota, row: QuotaRow) -> Quota:
    """What a row does not say stays."""
    said = {field: value for field in ROW_FIELDS if (value := getattr(row, field)) is not None}
    return msgspec.structs.replace(entry, **said, origin=row.origin)


ROW_FIELDS = ("guaranteed", "max", "per_user", "lendable", "shared")
"""What a row of hours may say."""


def _changed(policy: Policy, at: Instant) -> Policy:
    """What a policy that stands at an instant is by another, without what follows that."""

    def changed(queue: Queue) -> Queue:
        if not queue.ahead:
            return queue
        change = next((one for one in reversed(queue.ahead) if one.at <= at), None) or QuotaChange(
            at, queue.quota, queue.weight
        )
        return msgspec.structs.replace(queue, quota=change.quota, weight=change.weight, ahead=())

    return msgspec.structs.replace(policy, queues=tuple(map(changed, policy.queues)))
