"""Decayed past use: what queues have held, in GPU-hours, of which half is forgotten after each half-life.

While `g` GPUs are held, use follows u' = g - u·ln2/halfLife; so a queue that has always held g GPUs has g·halfLife/ln2,
and use divided by halfLife/ln2 is the number of GPUs it has held on average, recent ones counting more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log

from solver.model.cluster import GpuType, NodeName
from solver.model.inflight import Usage
from solver.model.quantities import MILLI_PER_GPU, Duration, Instant
from solver.model.workload import QueueName, TaskPlacement

HOUR_MS = 3_600_000

FORGOTTEN = 1e-6
"""GPU-hours below which past use is dropped: a few milliseconds of one GPU."""


@dataclass(frozen=True, slots=True)
class Hold:
    """GPUs that a queue holds since an instant, and for which of its users, where these share it."""

    queue: QueueName
    gpu_type: GpuType
    gpus: float
    since: Instant
    user: str | None = None


def holds_of(
    queue: QueueName,
    tasks: Iterable[TaskPlacement],
    types: dict[NodeName, GpuType],
    since: Instant,
    user: str | None = None,
) -> Iterable[Hold]:
    """What a placement holds; nodes that have left the inventory are of no type and count for nothing."""
    for task in tasks:
        if task.devices and task.node in types:
            yield Hold(queue, types[task.node], task.gpus / MILLI_PER_GPU, since, user)


def accrued(
    past: Iterable[Usage], before: Instant, holds: Iterable[Hold], now: Instant, half_life: Duration
) -> tuple[Usage, ...]:
    """Past use as of `now`: what it was at `before`, decayed, and what is held, from then or from its own beginning on."""
    total = {_key(used): used.gpu_hours * _left(now - before, half_life) for used in past}
    for hold in holds:
        key = _key(hold)
        span = now - max(before, hold.since)
        total[key] = total.get(key, 0.0) + hold.gpus * _memory_hours(half_life) * (1 - _left(span, half_life))
    return tuple(
        Usage(queue, gpu_type, gpu_hours, user if is_of_user else None)
        for (queue, gpu_type, is_of_user, user), gpu_hours in sorted(total.items())
        if gpu_hours > FORGOTTEN
    )


def gpus_on_average(past: Iterable[Usage], half_life: Duration) -> dict[tuple[QueueName, GpuType], float]:
    """How many milli-GPU each queue has held of each type, recent ones counting more."""
    found: dict[tuple[QueueName, GpuType], float] = {}
    for used in past:
        milli = MILLI_PER_GPU * used.gpu_hours / _memory_hours(half_life)
        found[used.queue, used.gpu_type] = found.get((used.queue, used.gpu_type), 0.0) + milli
    return found


def gpus_of_users(past: Iterable[Usage], half_life: Duration) -> dict[tuple[QueueName, GpuType, str], float]:
    """The same of each user, where users share a queue."""
    memory_hours = _memory_hours(half_life)
    return {
        (used.queue, used.gpu_type, used.user): MILLI_PER_GPU * used.gpu_hours / memory_hours
        for used in past
        if used.user is not None
    }


def _key(known: Usage | Hold) -> tuple[QueueName, GpuType, bool, str]:
    """Jobs without a user are those of one, whose name is empty."""
    return known.queue, known.gpu_type, known.user is not None, known.user or ""


def _left(span_ms: int, half_life: Duration) -> float:
    return float(2.0 ** (-max(0, span_ms) / half_life))


def _memory_hours(half_life: Duration) -> float:
    return half_life / HOUR_MS / log(2)
