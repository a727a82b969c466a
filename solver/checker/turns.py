"""Judges who gives way to whom where jobs take turns, and that nobody passes one that has waited for `maxWait`.

Part of the checker: what each job costs is worked out again here, job by job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import exp, inf

from solver.checker.case import JudgedPlan
from solver.checker.policy_index import PolicyIndex
from solver.checker.run_times import ran
from solver.model.workload import Job
from solver.plan.plan import Starts, Waits
from solver.plan.violation import Violation
from solver.policy.ordering import Ordering
from solver.policy.policy import PriorityClass

PLACES = 40
FOLD = 5
PRIOR = 0.03
MINUTE = 60_000
"""As docs/turns.md has them."""

ABOUT = 1e-6
"""By how much of itself a cost may differ that was added up in another order."""


def turn_violations(case: JudgedPlan) -> Iterator[Violation]:
    """Every start before one that asks for the same, has waited for `maxWait`, and was evicted no more often (back-off)."""
    taking = {queue.name for queue in case.policy.queues if ordering_for(case.lookup, queue.name).turns is not None}
    if not taking:
        return
    named = {verdict.job for kind in (Starts, Waits) for verdict in case.verdicts(kind)}
    placed, now = {step.job for step in case.placing}, case.snapshot.time
    waiting = [
        job for job in case.pending if job.spec.queue in taking and job.name in named and job.name not in case.promised
    ]
    late: defaultdict[_Asked, list[Job]] = defaultdict(list)
    for job in waiting:
        turns = ordering_for(case.lookup, job.spec.queue).turns
        if turns is not None and job.name in placed and now - since(job) < turns.max_wait:
            late[_asked(job)].append(job)
    evicted = {asked: max(len(job.evicted_at) for job in jobs) for asked, jobs in late.items()}
    for first in waiting:
        turns = ordering_for(case.lookup, first.spec.queue).turns
        if turns is None or first.name in placed or now - since(first) < turns.max_wait:
            continue
        asked = _asked(first)
        if evicted.get(asked, -1) >= len(first.evicted_at):
            for job in late[asked]:
                if len(first.evicted_at) <= len(job.evicted_at):
                    problem = f"starts before {first.name}, which has waited for {turns.max_wait}"
                    yield Violation("order", job.name, problem)


_Asked = tuple[object, ...]


def _asked(job: Job) -> _Asked:
    spec = job.spec
    return spec.queue, spec.priority_class, spec.task_groups, spec.topology, job.user


def gives_way(victim: Job, preemptor: Job, case: JudgedPlan) -> str:
    """What is wrong with a running job that gives way to one of its queue; "" where nothing is."""
    ordering = ordering_for(case.lookup, victim.spec.queue)
    if ordering.turns is None:
        return f"gives way to {preemptor.name}, but in queue {victim.spec.queue} what runs stays"
    if _grade(victim, case.lookup) != _grade(preemptor, case.lookup):
        return f"gives way to {preemptor.name}, which is of another SLO class or value"
    if case.snapshot.time - since(preemptor) >= ordering.turns.max_wait:
        return ""
    mine, theirs = (cost(job, ordering, case) for job in (victim, preemptor))
    if theirs < mine * (1 + ABOUT):
        return ""
    return f"gives way to {preemptor.name}, which does not come before it by {ordering.by}"


def ordering_for(lookup: PolicyIndex, queue: str) -> Ordering:
    """What the queue, or the nearest above it, says."""
    said = [known.ordering for known in lookup.path(queue)]
    return next((known for known in said if known is not None), Ordering())


def since(job: Job) -> int:
    """When it last had something, or was submitted."""
    return max([job.submitted_at, *job.evicted_at])


def cost(job: Job, ordering: Ordering, case: JudgedPlan) -> float:
    """What running it on would cost: the least goes first."""
    setup = case.policy.scheduling.evictions.restart_cost if job.phase == "pending" else 0
    so_far = ran(job, case.snapshot.time)
    if ordering.by == "shortest":
        limit = job.time_limit if job.phase != "pending" else case.policy.time_limit(job)
        return inf if limit is None else max(0.0, limit - so_far) + setup
    gpus = max(1, job.spec.gpus) / 1000
    if ordering.by == "least-served":
        return (so_far + setup) * gpus
    return gpus * _time_per_ending(job, setup, case)


def _time_per_ending(job: Job, setup: float, case: JudgedPlan) -> float:
    """The Gittins index upside down: the least, over spans ahead, of expected time for each chance of ending."""
    neighbours = case.lives[job.spec.queue, job.spec.gpus].beside(job.name, PLACES)
    so_far = ran(job, case.snapshot.time)
    survives, time, best = 1.0, float(setup), inf
    start, end = 0.0, float(MINUTE)
    for _ in range(22):
        low = max(start, so_far)
        if low < end:
            rate = _rate(neighbours, start, low, end)
            dies = 1 - exp(-rate * (end - low))
            time += survives * dies / rate
            survives *= 1 - dies
            best = min(best, max(1.0, time) / (1 - survives))
        start, end = end, (2 * end if end < MINUTE * 2**20 else 1e15)
    return best


def _rate(neighbours: Iterable[tuple[int, float, bool]], start: float, low: float, end: float) -> float:
    endings, exposed = PRIOR, PRIOR * max(start, MINUTE)
    for distance, lived, ended in neighbours:
        weight = exp(-distance / FOLD)
        exposed += weight * max(0.0, min(lived, end) - low)
        endings += weight * (ended and low < lived <= end)
    return endings / exposed


def _grade(job: Job, lookup: PolicyIndex) -> tuple[str, int]:
    known = lookup.class_of(job) or PriorityClass("")
    return known.slo_class, known.value
