"""Judges S3 for CPU and memory: no admission lifts a queue above its max of either at any level.

Part of the checker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from solver.checker.case import JudgedPlan
from solver.model.workload import Job, TaskPlacement
from solver.plan.violation import Violation

Held = tuple[Job, Iterable[TaskPlacement]]


def host_quota_violations(case: JudgedPlan) -> Iterator[Violation]:
    """Every max of CPU or memory that a plan breaks; one that is broken already is not made worse."""
    limits = {
        (queue.name, resource): int(entry.max)
        for queue in case.policy.queues
        for resource in ("cpu", "memory")
        if (entry := queue.host_quota_for(resource)) is not None and entry.max is not None
    }
    if not limits:
        return
    added = _by_line(case, ((case.jobs[step.job], step.tasks) for step in case.placing if step.job in case.jobs))
    before = _by_line(case, _staying(case))
    for line, most in sorted(limits.items()):
        if added[line] and before[line] + added[line] > most:
            told = f"{before[line]} + {added[line]} of {line[1]} is above max {most}"
            yield Violation("S3", line[0], told)


def _staying(case: JudgedPlan) -> Iterator[Held]:
    """Who counts beside this plan's own starts: not who is evicted, but who was promised its devices."""
    leaving = case.sent_back | case.evicted
    yield from ((job, job.placement) for job in case.snapshot.jobs if job.placement and job.name not in leaving)
    provided = case.bound | case.promises.keys() | case.withdrawn
    for intent in case.intents:
        if intent.kind == "nominate" and intent.job in case.jobs and intent.job not in provided:
            yield case.jobs[intent.job], intent.tasks


def _by_line(case: JudgedPlan, held: Iterable[Held]) -> Counter[tuple[str, str]]:
    total: Counter[tuple[str, str]] = Counter()
    for job, tasks in held:
        shapes = {group.name: group.shape for group in job.spec.task_groups}
        for task in tasks:
            shape = shapes.get(task.group)
            for queue in case.lookup.path(job.spec.queue) if shape is not None else ():
                total[queue.name, "cpu"] += int(shape.cpu) if shape else 0
                total[queue.name, "memory"] += int(shape.memory) if shape else 0
    return total
