"""The order inside each queue: which of its own waiting jobs is served first (DESIGN, `ordering.by`).

One that is boosted is served first of its queue, SLO class and rank; but where jobs take turns a boost has no effect, since a job
that starts out of turn would only be evicted again. It is as senior as the one that it goes before and no more, so among queues
its own is where it was; and it keeps its time of submission, so that it passes no job elsewhere that has reached the highest age
band. Which jobs may be evicted is not asked here, and does not change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from solver.model.workload import Job, JobName, QueueName
from solver.policy.ordering import OrderBy
from solver.policy.policy import Policy
from solver.policy.precedence import Precedence, QueuePlace, ordering_of
from solver.policy.tree import QueueTree


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
        places = precedence.places if ordering_of(tree, name).by_cost else {}
        own = {job.name: _own(job, by, policy, seniority[job.name], places) for job in members}
        without = {job.name for job in members if takes_turns and job.name not in precedence.in_turn}
        boosted = {job.name for job in members if job.boosted and not takes_turns}
        yield sorted(
            members,
            key=lambda job: (
                seniority[job.name][:2],
                job.name not in boosted,
                seniority[job.name].bands_left,
                job.name in without,
                own[job.name],
            ),
        )


def rising(line: Sequence[Job], seniority: Mapping[JobName, Seniority]) -> dict[JobName, Seniority]:
    """The seniority of each job of a queue, given in its own order: no less than that of those behind it in its sub-layer."""
    found: dict[JobName, Seniority] = {}
    behind: Seniority | None = None
    for job in reversed(line):
        senior = seniority[job.name]
        behind = min(senior, behind) if behind is not None and behind[:2] == senior[:2] else senior
        found[job.name] = behind
    return found


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
        # A job that takes turns comes first after `maxWait`; an order of waiting jobs alone would pass by which has its turn.
        mine = 0 if ordering.turns else bands[job.name]
        if ordering.by == "fifo":
            line = (job.spec.queue, slo[job.name])
            mine = highest[line] = max(mine, highest.get(line, 0))
        lifted[job.name] = mine
    return lifted


def latest_start(job: Job, policy: Policy) -> float:
    """When a job has to start to end by its `finish_by`, by its time limit; infinite where it has none."""
    if job.finish_by is None:
        return inf
    return job.finish_by - (policy.time_limit(job) or 0)


def _own(
    job: Job, by: OrderBy, policy: Policy, senior: Seniority, places: Mapping[JobName, QueuePlace]
) -> tuple[float, int, str]:
    """What its queue goes by, then submission; by priority that is the latest start that is in time. In the highest age band only
    submission counts: no new job passes there."""
    first: float = latest_start(job, policy) if by == "priority" and senior.bands_left else 0
    if job.name in places and senior.bands_left:
        first = places[job.name].cost
    elif by == "shortest" and senior.bands_left:
        limit = policy.time_limit(job)
        first = inf if limit is None else int(limit)
    elif by == "least-served" and senior.bands_left:
        first = job.served_gpu_ms
    return first, job.submitted_at, job.name
