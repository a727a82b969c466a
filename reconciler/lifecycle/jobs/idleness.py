"""How long a job has done nothing, as far as that is known: what is not known is never held against it."""

from __future__ import annotations

from reconciler.lifecycle.jobs.backend_reports import AttemptReport
from reconciler.protocols.backend import ENDED, Activity
from solver.model.quantities import Duration, Instant
from solver.model.workload import TaskPlacement

NEWS_MAX = Duration(5 * 60_000)
"""What was seen longer ago ends no job: one that did nothing then may do something now."""


def activity_of(attempt: AttemptReport, gang: tuple[TaskPlacement, ...], running_since: Instant) -> Activity | None:
    """What is known of a gang, which is as active as its most active task; None: not of all of its tasks is anything known.

    A task that has ended was active until then.
    """
    running = [task.activity for task in attempt.tasks if task.state not in ENDED]
    known = [activity for activity in running if activity is not None]
    if not known or len(known) < len(running) or not attempt.knows_all(gang):
        return None
    ended = (task.at for task in attempt.tasks if task.state in ENDED)
    active_at = max(running_since, *ended, *(activity.active_at for activity in known))
    return Activity(active_at, max(active_at, min(activity.seen_at for activity in known)))


def idle_for(activity: Activity) -> Duration:
    """How long a job is known to have done nothing."""
    return Duration(activity.seen_at - activity.active_at)


def is_idle(activity: Activity, limit: Duration, now: Instant) -> bool:
    """It has done nothing for as long as it may, and that is news."""
    return idle_for(activity) >= limit and now - activity.seen_at <= min(limit, NEWS_MAX)
