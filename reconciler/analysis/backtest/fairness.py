"""How fairly queues were served, by two measures that can be worked out by hand.

**Finish-time fairness** (K. Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI 2020): the time from a
job's submission to its end, divided by what that would have been on a private cluster. There every queue has its own, with the
GPUs that the policy guarantees it; above 1, a job would have been better off without sharing. `alone` defines the private
cluster: one pool of GPUs, wherever they are and of whatever type, on which the queue's jobs start strictly in the order of
their submission; a job that wants more GPUs than there are has all of them, and takes longer in proportion.

**Jain's index** (R. Jain, D. Chiu, W. Hawe, "A Quantitative Measure of Fairness and Discrimination for Resource Allocation in
Shared Computer Systems", DEC TR-301, 1984): (sum x)^2 / (n * sum x^2), of x = what a queue got divided by what it was owed. It is
owed what it wants, up to its guarantee, at every instant; and of what it holds, only so much counts. So 1 says that all
queues got the same part of what they were owed, and 1/n that one got all.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from reconciler.analysis.backtest.observation import Stretch
from solver.model.cluster import Node
from solver.model.quantities import Instant
from solver.model.snapshot import snapshot_of
from solver.model.workload import QueueName
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree
from solver.quota.entitlement import gpus_by_type
from solver.quota.guarantees import guarantees


class JobDemand(NamedTuple):
    """A job as its queue asked for it."""

    submitted_at: Instant
    milli: int
    duration: int


def guaranteed_by_queue(policy: Policy, nodes: Iterable[Node]) -> dict[QueueName, int]:
    """Guaranteed milli-GPU of every queue, all types together."""
    capacity = gpus_by_type(snapshot_of(Instant(0), nodes, ()))
    total: dict[QueueName, int] = {}
    for line, milli in guarantees(QueueTree.of(policy), capacity).items():
        total[line.queue] = total.get(line.queue, 0) + milli
    return total


def alone(jobs: Sequence[JobDemand], milli: int) -> list[int]:
    """Milliseconds from each job's submission to its end on a private cluster of so many milli-GPU (more than 0).

    `jobs` are in the order of their submission.
    """
    free, now = milli, 0
    ends: list[tuple[int, int]] = []
    took = []
    for job in jobs:
        now, need = max(now, job.submitted_at), min(job.milli, milli)
        while ends and (ends[0][0] <= now or free < need):
            end, given_back = heapq.heappop(ends)
            now, free = max(now, end), free + given_back
        end = now + -(-job.duration * max(job.milli, milli) // milli)
        heapq.heappush(ends, (end, need))
        free -= need
        took.append(end - job.submitted_at)
    return took


def within(stretches: Iterable[Stretch], milli: int) -> int:
    """What lies below a line of so many milli-GPU where stretches are put on top of each other, in milli-GPU-milliseconds."""
    changes = sorted(
        change for stretch in stretches for change in ((stretch.start, stretch.milli), (stretch.end, -stretch.milli))
    )
    total, height, since = 0, 0, 0
    for at, change in changes:
        total += min(height, milli) * (at - since)
        height, since = height + change, at
    return total


def jain(values: Sequence[float]) -> float | None:
    """The index, in (0, 1]; None of nothing, or of nothing but zeros."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None
