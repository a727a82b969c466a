"""Judges S3 for CPU and memory: no admission lifts a queue above its max of either at any level.

Part of the checker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from solver.checker.case import JudgedPlan
from solver.checker.host_fair import beside_of
from solver.model.workload import Job, TaskPlacement
from solver.plan.violation import Violation

Held = tuple[Job, Iterable[TaskPlacement]]
Line = tuple[str, str, str]
"""A queue, a resource, and ALL its users or OF one."""

ALL, OF = "all", "of "


def host_quota_violations(case: JudgedPlan) -> Iterator[Violation]:
    """Every max of CPU or memory, and every user's, that a plan breaks; one that is broken already is not made worse."""
    limits, of_one = dict[Line, int](), dict[Line, int]()
    for queue in case.policy.queues:
        for resource in ("cpu", "memory"):
            entry = queue.host_quota_for("cpu" if resource == "cpu" else "memory")
            if entry is not None and entry.max is not None:
                limits[queue.name, resource, ALL] = int(entry.max)
            if entry is not None and entry.per_user is not None:
                of_one[queue.name, resource, ALL] = int(entry.per_user)
    if not limits and not of_one:
        return
    added = _by_line(case, ((case.jobs[step.job], step.tasks) for step in case.placing if step.job in case.jobs))
    before = _by_line(case, _staying(case))
    for line, more in sorted(added.items()):
        queue_name, resource, user = line
        most = (limits if user == ALL else of_one).get((queue_name, resource, ALL))
        if more and most is not None and before[line] + more > most:
            which = "max" if user == ALL else f"perUser of {user.removeprefix(OF) or '(none)'}"
            yield Violation("S3", queue_name, f"{before[line]} + {more} of {resource} is above {which} {most}")


def host_lending_violations(case: JudgedPlan) -> Iterator[Violation]:
    """S3: what jobs without GPUs start takes nothing that others keep back of CPU or memory, if more is not kept back already.

    A queue weighs what its jobs without GPUs hold, and those below it weigh, but no less than it keeps back; all roots together no
    more than jobs with GPUs leave.
    """
    kept: dict[tuple[str, int], int] = {
        (queue.name, place): int(entry.guaranteed) - int(entry.lendable)
        for queue in case.policy.queues
        for place, entry in ((n, queue.host_quota_for("memory" if n else "cpu")) for n in (0, 1))
        if entry is not None and entry.guaranteed is not None and entry.lendable is not None
    }
    if not kept:
        return
    held = [(job, tuple(tasks)) for job, tasks in _staying(case)]
    alone = [one for one in held if not any(case.ground.charge(one[1]).values())]
    starting = [(case.jobs[step.job], step.tasks) for step in case.placing if step.job in case.jobs]
    starting = [one for one in starting if not any(case.ground.charge(one[1]).values())]
    with_gpus = [one for one in held if any(case.ground.charge(one[1]).values())]
    nodes = [node for node in case.ground.nodes if node.ready]
    for place, word in enumerate(("cpu", "memory")):
        taken = sum(beside_of(job, tasks)[place] for job, tasks in with_gpus)
        there = sum(int(node.memory if place else node.cpu) for node in nodes) - taken
        before, after = (_weight(case, kept, place, of) for of in (alone, [*alone, *starting]))
        if after > max(there, before):
            told = f"{after} of {word} with what queues keep back, and jobs with GPUs leave {there}"
            yield Violation("S3", "cluster", told)


def _weight(
    case: JudgedPlan,
    kept: Mapping[tuple[str, int], int],
    place: int,
    held: Iterable[tuple[Job, tuple[TaskPlacement, ...]]],
) -> int:
    """What all roots weigh of CPU (0) or memory (1)."""
    weight = Counter[str]()
    for job, tasks in held:
        weight[job.spec.queue] += beside_of(job, tasks)[place]
    total = 0
    for queue in reversed(case.lookup.from_the_top):
        mine = max(weight[queue.name], kept.get((queue.name, place), 0))
        path = case.lookup.path(queue.name)
        if len(path) > 1:
            weight[path[1].name] += mine
        else:
            total += mine
    return total


def _staying(case: JudgedPlan) -> Iterator[Held]:
    """Who counts beside this plan's own starts: not who is evicted, but who was promised its devices."""
    leaving = case.sent_back | case.evicted
    yield from ((job, job.placement) for job in case.snapshot.jobs if job.placement and job.name not in leaving)
    provided = case.bound | case.promises.keys() | case.withdrawn
    for intent in case.intents:
        if intent.kind == "nominate" and intent.job in case.jobs and intent.job not in provided:
            yield case.jobs[intent.job], intent.tasks


def _by_line(case: JudgedPlan, held: Iterable[Held]) -> Counter[Line]:
    total: Counter[Line] = Counter()
    for job, tasks in held:
        shapes = {group.name: group.shape for group in job.spec.task_groups}
        for task in tasks:
            shape = shapes.get(task.group)
            for queue in case.lookup.path(job.spec.queue) if shape is not None else ():
                for user in (ALL, f"{OF}{job.user}"):
                    total[queue.name, "cpu", user] += int(shape.cpu) if shape else 0
                    total[queue.name, "memory", user] += int(shape.memory) if shape else 0
    return total
