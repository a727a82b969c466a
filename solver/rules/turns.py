"""The order inside each queue: who of its own waiting jobs is served before whom (DESIGN, `ordering.by`).

One that is boosted is served first of its queue, SLO class and rank. It is as senior as the one whose place it takes and no more,
so among queues its own is where it was; and it keeps its time of submission, so that it passes nobody elsewhere who has reached
the highest age band. Who may evict whom is not asked here, and does not change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import NamedTuple

from solver.rules.ordering import OrderBy
from solver.rules.policy import Policy
from solver.rules.precedence import Precedence, ordering_of
from solver.rules.tree import QueueTree
from solver.world.workload import Job, JobName, QueueName


class Seniority(NamedTuple):
    """What comes before a queue's own order: the sub-layer, then how many age bands a job is below the highest."""

    slo: int
    rank: int
    bands_left: int


def in_turn(
    jobs: Iterable[Job],
    seniority: Mapping[JobName, Seniority],
    policy: Policy,
    tree: QueueTree,
    precedence: Precedence,
) -> Iterator[list[Job]]:
    """The jobs of each queue, in the order in which it serves them."""
    by_queue: dict[QueueName, list[Job]] = defaultdict(list)
    for job in jobs:
        by_queue[job.spec.queue].append(job)
    for name, members in by_queue.items():
        by, takes_turns = ordering_of(tree, name).by, ordering_of(tree, name).turns is not None
        own = {job.name: _own(job, by, policy, seniority[job.name], precedence) for job in members}
        last = {
            job.name: job.name not in precedence.in_turn if takes_turns else not is_boosted(job, tree)
            for job in members
        }
        yield sorted(members, key=lambda job: (seniority[job.name], last[job.name], own[job.name]))


def is_boosted(job: Job, tree: QueueTree) -> bool:
    """Whether a boost has effect: where jobs take turns, one that starts out of turn would only be evicted again."""
    return job.boosted and ordering_of(tree, job.spec.queue).turns is None


def with_the_boosted(
    jobs: Iterable[Job], seniority: Mapping[JobName, Seniority], tree: QueueTree
) -> dict[JobName, Seniority]:
    """A boosted job is as senior as the most senior one of its queue, SLO class and rank."""
    jobs = tuple(jobs)
    boosted = [job for job in jobs if is_boosted(job, tree)]
    lines = {(job.spec.queue, *seniority[job.name][:2]): seniority[job.name] for job in boosted}
    for job in jobs:
        line = (job.spec.queue, *seniority[job.name][:2])
        if line in lines:
            lines[line] = min(lines[line], seniority[job.name])
    return {**seniority} | {job.name: lines[job.spec.queue, *seniority[job.name][:2]] for job in boosted}


def with_those_behind(
    jobs: Iterable[Job], bands: Mapping[JobName, int], slo: Mapping[JobName, int], tree: QueueTree
) -> dict[JobName, int]:
    """Age bands under which fifo stays fifo: a class that ages faster lifts with its jobs those submitted before them.

    Where jobs take turns they are all in the lowest.
    """
    lifted: dict[JobName, int] = {}
    highest: dict[tuple[QueueName, int], int] = {}
    for job in sorted(jobs, key=lambda job: (job.submitted_at, job.name), reverse=True):
        ordering = ordering_of(tree, job.spec.queue)
        # Who takes turns comes first after `maxWait`; an order of those that wait alone would pass by whose turn it is.
        mine = 0 if ordering.turns else bands[job.name]
        if ordering.by == "fifo":
            line = (job.spec.queue, slo[job.name])
            mine = highest[line] = max(mine, highest.get(line, 0))
        lifted[job.name] = mine
    return lifted


def _own(job: Job, by: OrderBy, policy: Policy, senior: Seniority, precedence: Precedence) -> tuple[float, int, str]:
    """What its queue goes by, then submission. In the highest age band only submission counts: nobody new passes there."""
    first: float = 0
    if job.name in precedence.places and senior.bands_left:
        first = precedence.places[job.name].cost
    elif by == "shortest" and senior.bands_left:
        limit = policy.time_limit(job)
        first = inf if limit is None else int(limit)
    elif by == "least-served" and senior.bands_left:
        first = job.served_gpu_ms
    return first, job.submitted_at, job.name
