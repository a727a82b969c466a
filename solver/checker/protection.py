"""Until when a running job may not be evicted, by its class or by that of the job that waits. Part of the checker."""

from __future__ import annotations

from collections.abc import Sequence

from solver.model.quantities import Instant
from solver.model.workload import Job
from solver.policy.policy import PriorityClass, Queue

_DAY_MS = 86_400_000


def too_soon(victim: Job, known: PriorityClass, now: Instant) -> str:
    """What protects a running job now; "" where nothing does."""
    protection = known.protection
    if victim.started_at is None or now - victim.started_at < protection.min_runtime:
        return f"has not run for {protection.min_runtime} yet"
    lately = [at for at in victim.evicted_at if now - at < _DAY_MS]
    if protection.evictions_per_day is not None and len(lately) >= protection.evictions_per_day:
        return f"was evicted {len(lately)} times within a day"
    if victim.evicted_at and now - victim.evicted_at[-1] < protection.cool_down:
        return f"was evicted less than {protection.cool_down} ago"
    return ""


def too_early(preemptor: Job, known: PriorityClass, path: Sequence[Queue], now: Instant) -> str:
    """What keeps others from leaving for a waiting job now, by its class, else its queue and those above; "" where nothing does."""
    said = known.preempt_after
    for queue in path:
        said = queue.preempt_after if said is None else said
    began = [preemptor.submitted_at, *preemptor.evicted_at]
    return (
        f"leaves for {preemptor.name}, which has not waited for {said} yet" if said and now - max(began) < said else ""
    )
