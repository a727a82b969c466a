"""Which gangs are to be told that their time limit is near, and end when it is over. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reconciler.kubernetes.binder.eviction_steps import TimeUp
from reconciler.kubernetes.binder.intents import eviction_record_in, members_of
from reconciler.kubernetes.control.sight import Sight
from reconciler.kubernetes.objects.limits import began_at
from reconciler.kubernetes.objects.saves import saves
from solver.model.quantities import Duration, Instant
from solver.policy.policy import Policy


def times_up(sight: Sight, policy: Policy, now: Instant) -> Iterator[TimeUp]:
    """Every gang that is to be told now, and was not: as long before its limit as it has to save its work, if it does.

    One that was asked to leave already leaves by that. A limit counts from when the first of its pods was started: what has pulled
    images since then for as long as it may run ends as well.
    """
    for gang in sight.cluster.gangs:
        job = gang.job
        if job is None or job.time_limit is None or not job.placement:
            continue
        pods = [pod for _, pod in members_of(gang, sight.pods) if pod.holds]
        began = began_at(pods)
        if began is None:
            continue
        over_at = began.after(job.time_limit)
        notice = policy.grace(job) if any(saves(pod.metadata) for pod in pods) else Duration(0)
        if now + notice < over_at:
            continue
        asked = eviction_record_in(gang, sight.pods)
        if asked is None or asked.intent.kind == "shrink":
            yield TimeUp(job.name, job.attempt, job.time_limit, max(over_at, now))


def with_idle_limits(policy: Policy) -> Iterable[str]:
    """The classes with idle limits that are not kept where jobs are pods: what they do is not measured."""
    return [known.name for known in policy.priority_classes if known.idle_limit is not None]
