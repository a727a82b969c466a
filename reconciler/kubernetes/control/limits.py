"""Which gangs are to be told that their time limit is near, and end when it is over. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from reconciler.kubernetes.binder.eviction_steps import TimeUp
from reconciler.kubernetes.binder.intents import eviction_record_in, members_of
from reconciler.kubernetes.control.sight import Sight
from reconciler.kubernetes.objects.cluster import in_order
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.limits import began_at
from reconciler.kubernetes.objects.saves import saves
from solver.model.quantities import Duration, Instant
from solver.model.workload import Job
from solver.policy.policy import Policy


class LimitEnd(NamedTuple):
    """When the time of a gang is over, and when it is to be told that it will be."""

    gang: PodGang
    job: Job
    limit: Duration
    over_at: Instant
    told_at: Instant


def limit_ends(sight: Sight, policy: Policy) -> Iterator[LimitEnd]:
    """Of every gang that runs with a time limit.

    It is told as long before as it has to save its work, if it does. A limit counts from when the first of its pods was started:
    what has pulled images since then for as long as it may run ends as well.
    """
    for gang in in_order(sight.cluster.index.limited):
        job = gang.job
        if job is None or job.time_limit is None:
            continue
        pods = [pod for _, pod in members_of(gang, sight.pods) if pod.holds]
        began = began_at(pods)
        if began is None:
            continue
        over_at = began.after(job.time_limit)
        notice = policy.grace(job) if any(saves(pod.metadata) for pod in pods) else Duration(0)
        yield LimitEnd(gang, job, job.time_limit, over_at, over_at.after(Duration(-notice)))


def times_up(sight: Sight, policy: Policy, now: Instant) -> Iterator[TimeUp]:
    """Every gang that is to be told now, and was not. One that was asked to leave already leaves by that."""
    for end in limit_ends(sight, policy):
        if now < end.told_at:
            continue
        asked = eviction_record_in(end.gang, sight.pods)
        if asked is None or asked.intent.kind == "shrink":
            yield TimeUp(end.job.name, end.job.attempt, end.limit, max(end.over_at, now))


def with_idle_limits(policy: Policy) -> Iterable[str]:
    """The classes with idle limits that are not kept where jobs are pods: what they do is not measured."""
    return [known.name for known in policy.priority_classes if known.idle_limit is not None]
