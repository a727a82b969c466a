"""What running a job on would cost, for queues that go by that: the least cost is first (`ordering.by`, `ordering.turns`).

Costs are GPU-milliseconds until something is expected to end (gittins), those had so far (least-served), or the milliseconds
left (shortest). Starting costs the policy's `restartCost` on top, so that a running job goes before a waiting one that is
otherwise like it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import inf

from solver.model.inflight import Ended
from solver.model.quantities import MILLI_PER_GPU, Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, QueueName
from solver.policy.ordering import Ordering
from solver.policy.policy import SLO_CLASSES, Policy
from solver.policy.precedence import QueuePlace, ordering_of, waiting_since
from solver.policy.tree import QueueTree
from solver.queueing.gittins import NEIGHBOURS, Lived, indices

LONG_AGO = 1e18
"""More than any instant in ms: what makes the cost of jobs that waited for too long negative."""


def places_in(snapshot: Snapshot, policy: Policy, tree: QueueTree) -> dict[JobName, QueuePlace]:
    """The places of all live jobs of queues that go by cost."""
    costs: dict[JobName, float] = {}
    for queue, jobs in _by_queue(snapshot, tree).items():
        costs |= _costs(queue, jobs, ordering_of(tree, queue), snapshot, policy)
    return {job.name: _place(job, costs[job.name], policy) for job in snapshot.jobs if job.name in costs}


def near(history: Iterable[Ended], jobs: Iterable[Job]) -> tuple[Ended, ...]:
    """What a round needs of history: those that were submitted next to jobs of their queue and size."""
    lines: dict[object, list[tuple[Instant, JobName, Ended | None]]] = defaultdict(list)
    for ended in history:
        lines[ended.queue, ended.gpus].append((ended.submitted_at, ended.job, ended))
    for job in jobs:
        lines[job.spec.queue, job.spec.gpus].append((job.submitted_at, job.name, None))
    return tuple(found for line in lines.values() for found in _near_in(sorted(line, key=lambda known: known[:2])))


def _near_in(line: list[tuple[Instant, JobName, Ended | None]]) -> Iterator[Ended]:
    live = [-NEIGHBOURS - 1, *(place for place, known in enumerate(line) if known[2] is None)]
    for before, after in pairwise([*live, len(line) + NEIGHBOURS + 1]):
        for place in range(max(0, before + 1), min(len(line), after)):
            ended = line[place][2]
            if ended is not None and (place - before <= NEIGHBOURS or after - place <= NEIGHBOURS):
                yield ended


def _by_queue(snapshot: Snapshot, tree: QueueTree) -> dict[QueueName, list[Job]]:
    found: dict[QueueName, list[Job]] = defaultdict(list)
    for job in snapshot.jobs:
        if job.spec.queue in tree.by_name and ordering_of(tree, job.spec.queue).by_cost:
            found[job.spec.queue].append(job)
    return found


def _place(job: Job, cost: float, policy: Policy) -> QueuePlace:
    known = policy.priority_class(job)
    return (
        QueuePlace(SLO_CLASSES.index(known.slo_class), -known.value, cost)
        if known
        else QueuePlace(len(SLO_CLASSES), 0, cost)
    )


def _costs(
    queue: QueueName, jobs: list[Job], ordering: Ordering, snapshot: Snapshot, policy: Policy
) -> Iterator[tuple[JobName, float]]:
    endings = _endings(queue, jobs, snapshot, policy) if ordering.by == "gittins" else {}
    for job in jobs:
        waited = snapshot.time - waiting_since(job)
        if ordering.turns and job.phase == "pending" and waited >= ordering.turns.max_wait:
            yield job.name, waiting_since(job) - LONG_AGO
        elif ordering.by == "gittins":
            yield job.name, endings[job.name]
        elif ordering.by == "least-served":
            yield job.name, (ran_ms(job, snapshot.time) + _setup_ms(job, policy)) * _gpus(job)
        else:
            yield job.name, _left_ms(job, policy, snapshot.time) + _setup_ms(job, policy)


def _left_ms(job: Job, policy: Policy, now: Instant) -> float:
    """What is left of its time limit."""
    limit = policy.time_limit(job) if job.phase == "pending" else job.time_limit
    return inf if limit is None else max(0.0, limit - ran_ms(job, now))


def _endings(queue: QueueName, jobs: list[Job], snapshot: Snapshot, policy: Policy) -> dict[JobName, float]:
    """GPU-milliseconds for each ending, by the Gittins index."""
    alike: dict[int, list[tuple[Instant, JobName, Lived]]] = defaultdict(list)
    for job in jobs:
        lived = Lived(ran_ms(job, snapshot.time), ended=False, setup_ms=_setup_ms(job, policy))
        alike[job.spec.gpus].append((job.submitted_at, job.name, lived))
    for ended in snapshot.in_flight.history:
        if ended.queue == queue and ended.gpus in alike:
            alike[ended.gpus].append((ended.submitted_at, ended.job, Lived(ended.ran, ended=True)))
    found: dict[JobName, float] = {}
    for gpus, line in alike.items():
        line.sort(key=lambda known: known[:2])
        live = [name for _, name, lived in line if not lived.ended]
        rates = indices([lived for _, _, lived in line])
        found |= {name: max(1, gpus) / MILLI_PER_GPU / rate for name, rate in zip(live, rates, strict=True)}
    return found


def ran_ms(job: Job, now: Instant) -> float:
    """How long it has run in all its attempts."""
    running = now - job.started_at if job.started_at is not None else 0
    return job.served_gpu_ms / _gpus(job) + max(0, running)


def _setup_ms(job: Job, policy: Policy) -> float:
    return float(policy.scheduling.evictions.restart_cost) if job.phase == "pending" else 0.0


def _gpus(job: Job) -> float:
    return max(1, job.spec.gpus) / MILLI_PER_GPU
