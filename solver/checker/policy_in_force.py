"""The policy that holds at an instant, as the checker reads it: windows of quota by a reading of its own.

Part of the checker. A window holds from its begin on, and no more at its end.
"""

from __future__ import annotations

import msgspec

from solver.model.quantities import Instant, MilliGpu
from solver.policy.policy import Policy, Queue, Quota, QuotaHours, QuotaRow
from solver.policy.windows import policy_at


def policy_in_force(policy: Policy, now: Instant) -> Policy:
    """A policy without windows of quota, and with those of Reservations that matter at `now`."""
    standing = policy_at(policy, now)
    if not any(queue.hours for queue in policy.queues):
        return standing
    return msgspec.structs.replace(standing, queues=tuple(_read(queue, now) for queue in policy.queues))


def _read(queue: Queue, now: Instant) -> Queue:
    holding = [hours for hours in queue.hours if _holds(hours, now)]
    if not holding:
        return msgspec.structs.replace(queue, hours=())
    rows = [row for hours in holding for row in hours.quota]
    named = {entry.gpu_type: entry for entry in queue.quota}
    types = sorted({*named, *(row.gpu_type for row in rows)})
    quota = tuple(_row(named.get(name, Quota(name)), [row for row in rows if row.gpu_type == name]) for name in types)
    weights = [hours.weight for hours in holding if hours.weight is not None]
    return msgspec.structs.replace(queue, quota=quota, weight=(weights or [queue.weight])[0], hours=())


def _holds(hours: QuotaHours, now: Instant) -> bool:
    return any(window.start <= now < window.until for window in hours.repeat.windows)


def _row(entry: Quota, rows: list[QuotaRow]) -> Quota:
    def said(written: MilliGpu | None, instead: list[MilliGpu | None]) -> MilliGpu | None:
        return next((value for value in instead if value is not None), written)

    return Quota(
        entry.gpu_type,
        said(entry.guaranteed, [row.guaranteed for row in rows]),
        said(entry.max, [row.max for row in rows]),
        said(entry.per_user, [row.per_user for row in rows]),
        said(entry.lendable, [row.lendable for row in rows]),
        rows[-1].origin if rows else entry.origin,
        next((row.shared for row in rows if row.shared is not None), entry.shared),
    )
