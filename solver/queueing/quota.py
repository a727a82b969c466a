"""Whether quota lets a gang start: each max, what queues keep back, caps of its user, and its guarantee where it may not borrow."""

from __future__ import annotations

from solver.model.workload import Job
from solver.quota.entitlement import QuotaHeadroom
from solver.quota.options import Option
from solver.quota.users import UserRoom


def lets_start(job: Job, option: Option, headroom: QuotaHeadroom, users: UserRoom, *, inside_only: bool) -> bool:
    """Whether it may start this way beside all that was handed out: nothing but room, or its place in a line, could keep it."""
    queue, charge = job.spec.queue, option.charge
    if inside_only and not headroom.entitled.holds(queue, charge):
        return False
    return headroom.allows(queue, charge) and not users.blocking(job, charge)
