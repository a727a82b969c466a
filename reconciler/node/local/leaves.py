"""Orders to single tasks to leave, kept where their supervisors look for them."""

from __future__ import annotations

from pathlib import Path

from reconciler.node.local.attempts import LeaveRequest, Orders, make_life_folder
from reconciler.protocols.backend import StopTasks
from reconciler.supervisor.taskfiles import LEAVE, write_durably
from solver.model.document import encode
from solver.model.quantities import Instant


def accept_leaves(attempt: Path, order: StopTasks, orders: Orders, at: Instant) -> None:
    """Keep the order for each task that was not told so before, and whose newest life is not younger than it."""
    grace_s = order.grace.seconds
    for task in order.tasks:
        told, life = orders.leaves.get((task.group, task.index)), orders.lives.get((task.group, task.index))
        if told is not None and told.growth >= order.growth:
            continue
        # Into the newest life, where its supervisor looks; a life that comes later finds it in `leaves`.
        came = life.accepted.growth if life else 0
        if came <= order.growth:
            folder = make_life_folder(attempt, task, came)
            request = LeaveRequest(order.job, order.attempt, task.group, task.index, order.growth, at, grace_s)
            write_durably(str(folder / LEAVE), encode(request).decode())
