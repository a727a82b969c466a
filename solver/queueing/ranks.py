"""Ranks of priority values: what puts one job's demand before another's inside an SLO class.

In its own queue a job comes after all larger values that wait there. Across queues values compare only between classes of scope
`cluster` of one SLO class: such a job comes after as many ranks as larger values of that scope wait anywhere, and so takes
along those behind it in its queue. Values of scope `queue` never move a job of another queue, nor does a job that its own queue
holds back hold back those of others: else a team could push others back by writing larger numbers.
A queue that does not go by priority has one rank, and its jobs take no part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from solver.model.workload import Job, JobName, QueueName
from solver.policy.policy import Policy, PriorityClass, SloClass
from solver.policy.precedence import ordering_of
from solver.policy.tree import QueueTree

RANKS_MAX = 8
"""Ranks told apart per SLO class; all after share the last sub-layer."""


@dataclass(frozen=True, slots=True)
class _Valued:
    """A waiting job with a value that counts."""

    job: Job
    known: PriorityClass

    @property
    def line(self) -> tuple[QueueName, SloClass]:
        """The line that it stands in: jobs of its queue and SLO class."""
        return self.job.spec.queue, self.known.slo_class


def ranks_of(jobs: Iterable[Job], policy: Policy, tree: QueueTree) -> dict[JobName, int]:
    """The rank of every waiting job, 0 the first. Those of one queue and class have the same: one of them is asked."""
    waiting = list(jobs)
    kinds = {job.name: (job.spec.queue, policy.priority_class_name(job)) for job in waiting}
    valued = [
        _Valued(job, known)
        for job in {kinds[job.name]: job for job in waiting}.values()
        if (known := policy.priority_class(job)) and ordering_of(tree, job.spec.queue).by == "priority"
    ]
    ranks = {kinds[name]: rank for name, rank in _ranked(valued)}
    return {name: ranks.get(kind, 0) for name, kind in kinds.items()}


def _ranked(valued: Sequence[_Valued]) -> Iterable[tuple[JobName, int]]:
    in_queue: dict[QueueName, set[int]] = defaultdict(set)
    across: dict[SloClass, set[int]] = defaultdict(set)
    for known in valued:
        in_queue[known.job.spec.queue].add(known.known.value)
        if known.known.scope == "cluster":
            across[known.known.slo_class].add(known.known.value)

    def least(known: _Valued) -> int:
        larger = _larger(in_queue[known.job.spec.queue], known)
        return max(larger, _larger(across[known.known.slo_class], known)) if known.known.scope == "cluster" else larger

    ordered = sorted(valued, key=lambda known: (known.line, -known.known.value))
    for _, line in groupby(ordered, key=lambda known: known.line):
        behind = 0
        for _, equal in groupby(line, key=lambda known: known.known.value):
            found = {known.job.name: max(behind, least(known)) for known in equal}
            yield from ((name, min(rank, RANKS_MAX - 1)) for name, rank in found.items())
            behind = 1 + max(found.values())


def _larger(values: Iterable[int], known: _Valued) -> int:
    return sum(value > known.known.value for value in values)
