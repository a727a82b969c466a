"""Finds gangs that run and get nowhere: they are dumped into their logs first, then what they asked for follows.

A gang of which any task reports progress is judged by that alone: a collective operation that hangs may keep every CPU busy.
One that reports none is judged by what its tasks do. What is not known is never held against it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from reconciler.lifecycle.jobs.claim_context import ClaimContext
from reconciler.lifecycle.jobs.gang_stop import is_untold, retold
from reconciler.lifecycle.jobs.idleness import NEWS_MAX
from reconciler.lifecycle.jobs.orders import dump_of
from reconciler.lifecycle.jobs.settlements import AskToStop, RecordMarks, Settlement
from reconciler.protocols.backend import TaskStatus
from reconciler.protocols.ledger import Marks
from solver.model.quantities import Duration, Instant
from solver.model.workload import Stuck

DUMP_WITHIN = Duration(30_000)
"""How long a gang that is to end for being stuck is left alone until its supervisors have written what they see."""

ECHO = Duration(90_000)
"""A dump goes to the log, and so does what tasks write at its signal: that soon after it, activity says nothing."""


class Standstill(NamedTuple):
    """Nothing was done from `since` to `seen_at`. `steps`: of all tasks that report any, together; None: none does."""

    since: Instant
    seen_at: Instant
    steps: int | None


def settle_stuck(holding: ClaimContext) -> tuple[Settlement, ...]:
    """What follows for a gang that is not asked to stop; () where it makes progress, or nothing is to be done but wait."""
    stuck = holding.record.spec.stuck
    if stuck is None or holding.claim.running_since is None:
        return ()
    still, marks = standstill_of(holding), holding.claim.marks
    if marks.stuck_at is not None:
        return _follow(holding, stuck, marks.stuck_at, still)
    if still is None:
        return ()
    if is_stuck(still, stuck.after, holding.now):
        return (_found(holding, still),)
    if _is_to_remember(still, marks, stuck.after, holding):
        remembered = msgspec.structs.replace(marks, steps=still.steps, still_since=still.since)
        return (RecordMarks(holding.claim.job, holding.claim.attempt, remembered),)
    return ()


def standstill_of(holding: ClaimContext) -> Standstill | None:
    """Since when it has done nothing; None: it does not run yet, or too little is known."""
    activity, tasks, marks = holding.activity, holding.stays.tasks, holding.claim.marks
    if activity is None or holding.claim.running_since is None:
        return None
    reports = _reports(tasks)
    if not reports:
        since = max(activity.active_at, activity.logged_at or activity.active_at)
        return Standstill(since, max(since, activity.seen_at), None)
    steps = sum(task.progress.step for task in reports if task.progress)
    said_at = max(task.progress.at for task in reports if task.progress)
    # A task that says the same step again and again makes no progress either.
    last = marks.still_since if steps == marks.steps and marks.still_since is not None else said_at
    since = max(holding.claim.running_since, last, *(task.at for task in tasks))
    looks = (task.activity.seen_at for task in tasks if task.state == "running" and task.activity)
    return Standstill(since, max(since, min(looks, default=since)), steps)


def is_stuck(still: Standstill, after: Duration, now: Instant) -> bool:
    """It has done nothing for so long, and that is news."""
    return still.seen_at - still.since >= after and now - still.seen_at <= min(after, NEWS_MAX)


def _is_to_remember(still: Standstill, marks: Marks, after: Duration, holding: ClaimContext) -> bool:
    """Its steps are others than those remembered; looked at no more often than matters, since it is written down."""
    before = marks.still_since or holding.claim.running_since or holding.now
    return still.steps is not None and still.steps != marks.steps and holding.now - before >= after


def _found(holding: ClaimContext, still: Standstill) -> RecordMarks:
    claim, marks = holding.claim, holding.claim.marks
    at = Instant(max(holding.now, (marks.warned_at or 0) + 1))
    marks = msgspec.structs.replace(marks, stuck_at=at, steps=still.steps, still_since=still.since)
    cause = f"{_seen(holding, still)}; its tasks are dumped into their logs"
    return RecordMarks(
        claim.job, claim.attempt, marks, "stuck", cause, dump_of(claim, holding.record, at, at.after(DUMP_WITHIN))
    )


def _follow(holding: ClaimContext, stuck: Stuck, at: Instant, still: Standstill | None) -> tuple[Settlement, ...]:
    claim = holding.claim
    if still is not None and _goes_on(still, at):
        marks = msgspec.structs.replace(claim.marks, stuck_at=None)
        return (RecordMarks(claim.job, claim.attempt, marks, "goes-on", "it makes progress again"),)
    if is_untold(holding, at) and holding.now - at < DUMP_WITHIN:
        return retold(holding, dump_of(claim, holding.record, at, at.after(DUMP_WITHIN)))
    if stuck.action == "notify":
        return ()
    return (AskToStop(claim.job, claim.attempt, f"it made no progress for {stuck.after}", "stuck"),)


def _goes_on(still: Standstill, stuck_at: Instant) -> bool:
    return still.since > (stuck_at.after(ECHO) if still.steps is None else stuck_at)


def _seen(holding: ClaimContext, still: Standstill) -> str:
    """What was seen, for people: look first at the task behind the others."""
    reports = _reports(holding.stays.tasks)
    if not reports:
        return f"no task has used a CPU or written to its log since {still.since}"
    last = min(reports, key=_step)
    place = f"{last.group}/{last.index} on {last.node}"
    first, least = max(map(_step, reports)), _step(last)
    others = f", others step {first}" if first > least else ""
    return f"no step was done since {still.since}: task {place} is at step {least}{others}"


def _reports(tasks: tuple[TaskStatus, ...]) -> list[TaskStatus]:
    return [task for task in tasks if task.state == "running" and task.progress is not None]


def _step(task: TaskStatus) -> int:
    return task.progress.step if task.progress else 0
