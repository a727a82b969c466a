"""Which running jobs the IdlePolicies of a revision would warn, by what is recorded of their GPUs in the snapshot."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.documents.repository import Compiled
from reconciler.lifecycle.jobs.idle_rules import idle_facts_of
from reconciler.model.idle_policy import IdleEvidence, IdlePolicy, idle_policy_of
from reconciler.model.review_findings import IdleCatch
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import Job


def idle_catches(snapshot: Snapshot, base: Compiled, head: Compiled) -> Iterator[IdleCatch]:
    """By job. Only policies that go by GPUs alone can be judged: of progress and terminals a snapshot says nothing.

    Exemptions by users and jobs do not hold where a snapshot has aliases.
    """
    for job in snapshot.jobs:
        caught, before = _caught(job, snapshot.time, head), _caught(job, snapshot.time, base)
        if caught is not None:
            policy, since = caught
            already = before is not None and before[0].action == policy.action
            gpus = MilliGpu(sum(task.gpus for task in job.placement))
            yield IdleCatch(job.name, job.spec.queue, gpus, policy.name, policy.action, since, already)


def _caught(job: Job, now: Instant, side: Compiled) -> tuple[IdlePolicy, Instant] | None:
    if not job.quiet or not side.operations.idle:
        return None
    facts = idle_facts_of(side.operations.idle, side.policy)
    path, priority_class = facts.path(job.spec.queue), side.policy.priority_class_name(job)
    policy = idle_policy_of(facts.policies, path, priority_class, job.spec.type)
    bound = policy.idle_when.gpu_activity if policy else None
    if policy is None or bound is None or policy.idle_when != IdleEvidence(bound):
        return None
    if policy.exemption(job.name, job.user, path, now) is not None:
        return None
    since = min((quiet.since for quiet in job.quiet if quiet.below <= bound.below), default=None)
    return (policy, since) if since is not None and now - since >= bound.lasts else None
