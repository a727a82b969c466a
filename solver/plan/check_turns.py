"""Judges who gives way to whom where jobs take turns, and that nobody passes one that has waited for `maxWait`.

Part of the checker, and as slow and obvious: what each job costs is worked out again here, job by job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import exp, inf

from solver.plan.check_entry import path_of
from solver.plan.plan import Bind, Nominate, Plan, Starts, Waits
from solver.plan.violation import Violation
from solver.rules.ordering import Ordering
from solver.rules.policy import Policy, PriorityClass
from solver.world.snapshot import Snapshot
from solver.world.workload import Job

PLACES = 40
FOLD = 5
PRIOR = 0.03
MINUTE = 60_000
"""As docs/policy.md has them."""

ABOUT = 1e-6
"""By how much of itself a cost may differ that was added up in another order."""


def turn_violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> Iterator[Violation]:
    """Every start before one that asks for the same, has waited for `maxWait`, and was evicted no more often (back-off)."""
    placed = {step.job for step in plan.steps if isinstance(step, Bind | Nominate)}
    named = {verdict.job for verdict in plan.verdicts if isinstance(verdict, Starts | Waits)}
    given = {intent.job for intent in snapshot.in_flight.intents if intent.kind == "nominate"}
    waiting = [job for job in snapshot.jobs if job.phase == "pending" and job.name in named and job.name not in given]
    for first in waiting:
        turns = ordering_for(policy, first.spec.queue).turns
        if turns is None or first.name in placed or snapshot.time - since(first) < turns.max_wait:
            continue
        for job in waiting:
            later = snapshot.time - since(job) < turns.max_wait and len(first.evicted_at) <= len(job.evicted_at)
            if later and job.name in placed and _asked(job) == _asked(first):
                yield Violation("order", job.name, f"starts before {first.name}, which has waited for {turns.max_wait}")


def _asked(job: Job) -> tuple[object, ...]:
    spec = job.spec
    return spec.queue, spec.priority_class, spec.task_groups, spec.topology, job.user


def gives_way(victim: Job, taker: Job, snapshot: Snapshot, policy: Policy) -> str:
    """What is wrong with a running job that gives way to one of its queue; "" where nothing is."""
    ordering = ordering_for(policy, victim.spec.queue)
    if ordering.turns is None:
        return f"gives way to {taker.name}, but in queue {victim.spec.queue} what runs stays"
    if _grade(victim, policy) != _grade(taker, policy):
        return f"gives way to {taker.name}, which is of another SLO class or value"
    if snapshot.time - since(taker) >= ordering.turns.max_wait:
        return ""
    mine, theirs = (cost(job, ordering, snapshot, policy) for job in (victim, taker))
    if theirs < mine * (1 + ABOUT):
        return ""
    return f"gives way to {taker.name}, which does not come before it by {ordering.by}"


def ordering_for(policy: Policy, queue: str) -> Ordering:
    """What the queue, or the nearest above it, says."""
    said = [known.ordering for known in path_of(policy, queue)]
    return next((known for known in said if known is not None), Ordering())


def since(job: Job) -> int:
    """When it last had something, or was submitted."""
    return max([job.submitted_at, *job.evicted_at])


def cost(job: Job, ordering: Ordering, snapshot: Snapshot, policy: Policy) -> float:
    """What running it on would cost: the least goes first."""
    setup = policy.scheduling.evictions.restart_cost if job.phase == "pending" else 0
    ran = _ran(job, snapshot.time)
    if ordering.by == "shortest":
        limit = job.time_limit if job.phase != "pending" else policy.time_limit(job)
        return inf if limit is None else max(0.0, limit - ran) + setup
    gpus = max(1, job.spec.gpus) / 1000
    if ordering.by == "least-served":
        return (ran + setup) * gpus
    return gpus * _time_per_ending(job, ran, setup, snapshot)


def _time_per_ending(job: Job, ran: float, setup: float, snapshot: Snapshot) -> float:
    """The Gittins index upside down: the least, over spans ahead, of expected time for each chance of ending."""
    lives = [
        (other.submitted_at, other.name, _ran(other, snapshot.time), False)
        for other in snapshot.jobs
        if (other.spec.queue, other.spec.gpus) == (job.spec.queue, job.spec.gpus)
    ]
    lives += [
        (ended.submitted_at, ended.job, float(ended.ran), True)
        for ended in snapshot.in_flight.history
        if (ended.queue, ended.gpus) == (job.spec.queue, job.spec.gpus)
    ]
    lives.sort()
    me = [name for _, name, _, _ in lives].index(job.name)
    neighbours = [(abs(place - me), *life[2:]) for place, life in enumerate(lives) if 0 < abs(place - me) <= PLACES]
    survives, time, best = 1.0, float(setup), inf
    start, end = 0.0, float(MINUTE)
    for _ in range(22):
        low = max(start, ran)
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
    for distance, ran, ended in neighbours:
        weight = exp(-distance / FOLD)
        exposed += weight * max(0.0, min(ran, end) - low)
        endings += weight * (ended and low < ran <= end)
    return endings / exposed


def _ran(job: Job, now: int) -> float:
    running = 0 if job.started_at is None else max(0, now - job.started_at)
    return job.served_gpu_ms * 1000 / max(1, job.spec.gpus) + running


def _grade(job: Job, policy: Policy) -> tuple[str, int]:
    known = policy.priority_class(job) or PriorityClass("")
    return known.slo_class, known.value
