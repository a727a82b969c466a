"""The order inside each queue: who of its own waiting jobs is served before whom (DESIGN, `ordering.by`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import NamedTuple

from solver.rules.policy import OrderBy, Ordering, Policy
from solver.rules.tree import QueueTree
from solver.world.workload import Job, JobName, QueueName


class Seniority(NamedTuple):
    """What comes before a queue's own order: the sub-layer, then how many age bands a job is below the highest."""

    slo: int
    rank: int
    bands_left: int


def ordering_of(tree: QueueTree, name: QueueName) -> Ordering:
    """The ordering that the queue states, else the nearest above it that does, else the default."""
    stated = (tree.by_name[step].ordering for step in tree.path(name))
    return next((ordering for ordering in stated if ordering is not None), Ordering())


def in_turn(
    jobs: Iterable[Job], seniority: Mapping[JobName, Seniority], policy: Policy, tree: QueueTree
) -> Iterator[list[Job]]:
    """The jobs of each queue, in the order in which it serves them."""
    by_queue: dict[QueueName, list[Job]] = defaultdict(list)
    for job in jobs:
        by_queue[job.spec.queue].append(job)
    for name, members in by_queue.items():
        by = ordering_of(tree, name).by
        own = {job.name: _own(job, by, policy, seniority[job.name]) for job in members}
        yield sorted(members, key=lambda job: (seniority[job.name], own[job.name]))


def with_those_behind(
    jobs: Iterable[Job], bands: Mapping[JobName, int], slo: Mapping[JobName, int], tree: QueueTree
) -> dict[JobName, int]:
    """Age bands under which fifo stays fifo: a class that ages faster lifts with its jobs those submitted before them."""
    lifted: dict[JobName, int] = {}
    highest: dict[tuple[QueueName, int], int] = {}
    for job in sorted(jobs, key=lambda job: (job.submitted_at, job.name), reverse=True):
        mine = bands[job.name]
        if ordering_of(tree, job.spec.queue).by == "fifo":
            line = (job.spec.queue, slo[job.name])
            mine = highest[line] = max(mine, highest.get(line, 0))
        lifted[job.name] = mine
    return lifted


def _own(job: Job, by: OrderBy, policy: Policy, senior: Seniority) -> tuple[float, int, str]:
    """What its queue goes by, then submission. In the highest age band only submission counts: nobody new passes there."""
    first: float = 0
    if by == "shortest" and senior.bands_left:
        limit = policy.time_limit(job)
        first = inf if limit is None else int(limit)
    if by == "least-served" and senior.bands_left:
        first = job.served_gpu_ms
    return first, job.submitted_at, job.name
