"""The order among users that share a queue, worked out again: who has least by weight is next, job by job.

Part of the checker: what users hold is added up here from the snapshot, and what they have held from what it says of the past.
It knows the order only where plain counts tell it: not where jobs of the queue leave or give up a promise in the plan, nor where
jobs ask for instances, or for several types of which one weighs more than another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import groupby
from math import log

from solver.checker.case import JudgedPlan
from solver.checker.turns import ordering_for
from solver.model.cluster import GpuType
from solver.model.quantities import MILLI_PER_GPU
from solver.model.workload import Job, JobName, QueueName
from solver.policy.user_shares import UserShares

Held = defaultdict[str, float]
"""Milli-GPU by user."""

DIGITS = 6
"""To which numbers of milli-GPU are compared."""


def user_shares_for(case: JudgedPlan, queue: str) -> UserShares | None:
    """How users share a queue, as it or the nearest above it says; None: they do not."""
    said = next((known.users for known in case.lookup.path(queue) if known.users is not None), None)
    shared = said is not None and said.fair_share and ordering_for(case.lookup, queue).turns is None
    return said if shared else None


def users_in_turn(
    jobs: Sequence[Job],
    before: Mapping[JobName, Hashable],
    fixed: Collection[JobName],
    shares: UserShares,
    case: JudgedPlan,
) -> list[Job] | None:
    """Jobs of one queue, given in its own order, as their users take turns; None where plain counts do not tell.

    `before`: by job, what is looked at first; `fixed`: those whose order stays as it is given.
    """
    if not jobs:
        return []
    weights = {known.gpu_type: known.weight for known in case.policy.scheduling.gpu_types}
    queue = jobs[0].spec.queue
    costs = {job.name: _cost(job, weights, case) for job in jobs}
    if any(cost is None for cost in costs.values()) or _is_in_doubt(queue, case):
        return None
    turns = _Turns(_held(queue, weights, case), costs, shares)
    for _, alike in groupby(jobs, key=lambda job: before[job.name]):
        line = list(alike)
        turns.take(line, is_fixed=line[0].name in fixed)
    return turns.found


@dataclass
class _Turns:
    """`held`: by user, with the jobs found so far."""

    held: Held
    costs: Mapping[JobName, float | None]
    shares: UserShares
    found: list[Job] = field(default_factory=list)

    def take(self, line: Sequence[Job], *, is_fixed: bool) -> None:
        """More jobs: of each user the first, and of those with least the one whose job stands first."""
        lines: defaultdict[str, list[tuple[int, Job]]] = defaultdict(list)
        for place, job in reversed(list(enumerate(line))):
            lines["" if is_fixed else job.user].append((place, job))
        heads = [(self._has(user, is_fixed), jobs[-1][0], user) for user, jobs in lines.items()]
        heapify(heads)
        while heads:
            *_, user = heappop(heads)
            _, job = lines[user].pop()
            self.held[job.user] += self.costs[job.name] or 0
            self.found.append(job)
            if lines[user]:
                heappush(heads, (self._has(user, is_fixed), lines[user][-1][0], user))

    def _has(self, user: str, is_fixed: bool) -> float:
        return 0.0 if is_fixed else round(self.held[user] / self.shares.weight(user), DIGITS)


def _cost(job: Job, weights: Mapping[GpuType, float], case: JudgedPlan) -> float | None:
    """What it takes of GPUs at its least, by weight; None where that is not known without more."""
    total = 0.0
    for group in job.spec.task_groups:
        shape = group.shape
        if shape.mig is not None or shape.gpu_memory is not None:
            return None
        there = case.ground.capacity
        weigh = {weights.get(known, 1.0) for known in shape.gpu_types or there if known in there}
        if shape.uses_gpus and len(weigh) != 1:
            return None
        total += (
            group.least
            * (shape.gpus * MILLI_PER_GPU + (shape.gpu_fraction or 0))
            * sum(weigh if shape.uses_gpus else ())
        )
    return total


def _is_in_doubt(queue: QueueName, case: JudgedPlan) -> bool:
    """Whether what users hold changes in the plan but by starts."""
    gone = [step.job for step in case.leaving] + list(case.withdrawn)
    return any(name in case.jobs and case.jobs[name].spec.queue == queue for name in gone)


def _held(queue: QueueName, weights: Mapping[GpuType, float], case: JudgedPlan) -> Held:
    """Milli-GPU by weight of each user: held, or promised before, and held on average where the past counts."""
    held: Held = defaultdict(float)
    for job in case.of_queue.get(queue, ()):
        stays = job.phase != "pending" and job.name not in case.sent_back
        _add(held, job.user, case.ground.charge(job.placement if stays else case.promised.get(job.name, ())), weights)
    half_life = case.policy.scheduling.usage_half_life
    if half_life is not None:
        hours = half_life / 3_600_000 / log(2)
        for past in case.snapshot.in_flight.usage:
            if past.queue == queue and past.user is not None and past.gpu_type in case.ground.capacity:
                held[past.user] += MILLI_PER_GPU * past.gpu_hours / hours * weights.get(past.gpu_type, 1.0)
    return held


def _add(held: Held, user: str, charge: Mapping[GpuType, int], weights: Mapping[GpuType, float]) -> None:
    for gpu_type, milli in charge.items():
        held[user] += milli * weights.get(gpu_type, 1.0) if gpu_type else 0
