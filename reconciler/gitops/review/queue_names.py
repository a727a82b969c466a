"""Which queue the pods of a namespace mean that name none, or call it by a name of their own, under each of two revisions."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from reconciler.model.review_findings import Requeued
from solver.model.quantities import MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import Job
from solver.policy.namespace_rules import NamespaceRules
from solver.policy.policy import Policy


def in_queues_of(policy: Policy, jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """The jobs in the queues that their pods mean under a policy. One whose pods mean none by then is in a queue without a name."""
    rules = NamespaceRules.of(policy)
    return tuple(job if (queue := rules.queue_of(job)) == job.spec.queue else _in(job, queue=queue) for job in jobs)


def requeued_jobs(snapshot: Snapshot, base: Policy, head: Policy) -> Iterator[Requeued]:
    """Jobs whose pods mean another queue under the head than under the base, by name."""
    before, after = (NamespaceRules.of(policy) for policy in (base, head))
    for job in snapshot.jobs:
        was, now = before.queue_of(job), after.queue_of(job)
        if was != now:
            gpus = MilliGpu(sum(task.gpus for task in job.placement)) or job.spec.gpus
            yield Requeued(job.name, job.namespace, job.queue_called or "", gpus, was or None, now or None)


def _in(job: Job, **changed: object) -> Job:
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, **changed))
