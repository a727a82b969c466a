"""Whether quota lets a gang start: ceilings, what queues keep back, caps of its user, and its guarantee where it may not borrow."""

from __future__ import annotations

from solver.rules.entitlement import Headroom
from solver.rules.options import Option
from solver.rules.users import UserRoom
from solver.world.workload import Job


def lets_start(job: Job, option: Option, headroom: Headroom, users: UserRoom, *, inside_only: bool) -> bool:
    """Whether it may start this way beside all that was handed out: nothing but room, or its place in a line, could keep it."""
    queue, charge = job.spec.queue, option.charge
    if inside_only and not headroom.entitled.holds(queue, charge):
        return False
    return headroom.allows(queue, charge) and not users.blocking(job, charge)
