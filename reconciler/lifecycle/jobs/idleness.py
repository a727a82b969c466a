"""How long a job has done nothing, as far as that is known: what is not known is never held against it."""

from __future__ import annotations

from reconciler.lifecycle.jobs.backend_reports import AttemptReport
from reconciler.lifecycle.jobs.idle_gpus import GpuStill
from reconciler.protocols.backend import ENDED, Activity
from solver.model.quantities import Duration, Instant
from solver.model.workload import TaskPlacement

NEWS_MAX = Duration(5 * 60_000)
"""What was seen longer ago ends no job: one that did nothing then may do something now."""


def activity_of(
    attempt: AttemptReport, gang: tuple[TaskPlacement, ...], running_since: Instant, gpus: GpuStill | None = None
) -> Activity | None:
    """What is known of a gang, which is as active as its most active task; None: not of all of its tasks is anything known.

    A task that has ended was active until then. `gpus`: what its GPUs are known to do; then that and typing alone count.
    """
    running = [task.activity for task in attempt.tasks if task.state not in ENDED]
    known = [activity for activity in running if activity is not None]
    if not known or len(known) < len(running) or not attempt.knows_all(gang):
        return None
    typed = [activity.typed_at for activity in known if activity.typed_at is not None]
    logged = [activity.logged_at for activity in known if activity.logged_at is not None]
    ended = (task.at for task in attempt.tasks if task.state in ENDED)
    done, seen_at = [activity.active_at for activity in known], min(activity.seen_at for activity in known)
    if gpus is not None and len(typed) == len(known):
        done, seen_at = [gpus.since, *typed], min(seen_at, gpus.seen_at)
    active_at = max(running_since, *ended, *done)
    return Activity(active_at, max(active_at, seen_at), max(typed, default=None), max(logged, default=None))


def idle_for(activity: Activity) -> Duration:
    """How long a job is known to have done nothing."""
    return Duration(activity.seen_at - activity.active_at)


def is_idle(activity: Activity, limit: Duration, now: Instant, gpus: GpuStill | None = None) -> bool:
    """It has done nothing for as long as it may, and that is news. What GPUs do is told by the minute, however short the limit."""
    news = NEWS_MAX if gpus is not None else min(limit, NEWS_MAX)
    return idle_for(activity) >= limit and now - activity.seen_at <= news
