"""How a task stands, as others are told."""

from __future__ import annotations

from reconciler.node.local.attempts import TaskLife
from reconciler.node.local.tasks import LocalTaskStatus
from reconciler.protocols.backend import TaskStatus
from solver.model.quantities import Instant


def status_of(life: TaskLife, stands: LocalTaskStatus) -> TaskStatus:
    """The status of a task that stands so; one of which nobody noted since when, since its order came."""
    return TaskStatus(
        job=life.accepted.order.job,
        attempt=life.accepted.order.attempt,
        group=life.task.group,
        index=life.task.index,
        node=life.task.node,
        state=stands.state,
        at=life.accepted.at if stands.at is None else Instant(stands.at),
        exit_code=stands.exit_code,
        detail=stands.detail,
        growth=life.accepted.growth,
        activity=stands.activity,
        progress=stands.progress,
        memory=stands.memory,
        told=stands.told,
    )
