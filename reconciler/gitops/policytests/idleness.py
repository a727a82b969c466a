"""When a job of a policy test would be warned for leaving its GPUs idle, by the IdlePolicies beside it."""

from __future__ import annotations

from typing import NamedTuple

from reconciler.documents.policy_test import GivenJob
from reconciler.gitops.policytests.course import Course, Story
from reconciler.model.idle_policy import IdlePolicy, idle_policy_of
from solver.model.quantities import Duration, Instant


class IdleWarning(NamedTuple):
    """At which instant, and by which policy."""

    at: Instant
    policy: IdlePolicy


def warning_of(story: Story, given: GivenJob, course: Course) -> IdleWarning | str:
    """The warning of a job in its first attempt; else why there is none, in words.

    A test says how active its GPUs are. That it reports no progress and does nothing else is taken for granted.
    """
    job, path = story.job, course.tree.path(story.job.spec.queue)
    policy = idle_policy_of(course.idle, path, course.policy.priority_class_name(job), job.spec.type)
    if policy is None:
        return "no IdlePolicy is for it"
    gpus = policy.idle_when.gpu_activity
    if gpus is not None and given.gpu_activity is None:
        return "the test does not say how active its GPUs are, and what is not known is never idle"
    if gpus is not None and given.gpu_activity is not None and given.gpu_activity >= gpus.below:
        active = f"its GPUs are {given.gpu_activity:g} % active"
        return f"{active}, and IdlePolicy {policy.name} warns below {gpus.below:g} %"
    started = story.starts[0][0] if story.starts else job.started_at
    if started is None:
        return "it never starts"
    at = started.after(_lasts(policy))
    exemption = policy.exemption(job.name, job.user, path, at)
    at = Instant(max(at, exemption.until)) if exemption else at
    if at > _runs_until(story, course):
        why = f", as {exemption.reason!r} exempts it until then" if exemption else ""
        return f"it would be warned at {course.since_begin(at)}{why}, and does not run for so long in the test"
    return IdleWarning(at, policy)


def _lasts(policy: IdlePolicy) -> Duration:
    """For how long a job has to do nothing."""
    evidence = policy.idle_when
    of_gpus = evidence.gpu_activity.lasts if evidence.gpu_activity else None
    spans = (of_gpus, evidence.no_progress_for, evidence.no_task_activity_for)
    return max(span for span in spans if span is not None)


def _runs_until(story: Story, course: Course) -> Instant:
    last = story.held[-1][0] if story.held else course.begins
    return next((at for at, _ in course.held if at > last), course.ends)
