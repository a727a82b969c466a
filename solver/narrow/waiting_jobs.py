"""The jobs that wait after a complete round, in the order in which a round would serve them: sorted anew only where it changes.

The order of one queue's jobs, and their turns among those of others, follow from what that queue holds and from ranks. So a queue
is sorted anew when it holds more or less than before, when its jobs are others, or their ranks. Waiting counts up to the round,
or to when the last of them came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from solver.model.cluster import GpuType
from solver.model.quantities import Instant
from solver.model.workload import Job, JobName, QueueName
from solver.policy.policy import Policy
from solver.policy.precedence import ordering_of, user_shares_of
from solver.policy.tree import QueueTree
from solver.queueing.demand import StartCandidate, Turn, with_turns
from solver.queueing.ranks import ranks_of
from solver.quota.entitlement import Charge, Shares
from solver.quota.fairshare import demand_of
from solver.quota.options import Option

Line = Sequence[tuple[Turn, StartCandidate]]
"""The jobs of a queue in their order, each with its turn among those of all queues."""

_Kind = tuple[QueueName, str]
"""Jobs of one queue and priority class have the same rank."""


@dataclass(slots=True)
class WaitingJobs:
    """Mutable. `now`: what waiting is counted up to. `unsure`: jobs of which it is not known here whether they may start now."""

    policy: Policy
    now: Instant
    unsure: set[JobName] = field(default_factory=set)
    _jobs: dict[JobName, tuple[Job, tuple[Option, ...]]] = field(default_factory=dict)
    _of_kind: dict[_Kind, dict[JobName, Job]] = field(default_factory=dict)
    _of_queue: dict[QueueName, dict[JobName, None]] = field(default_factory=dict)
    _demand: Counter[tuple[QueueName, GpuType]] = field(default_factory=Counter)
    _ranks: dict[_Kind, int] = field(default_factory=dict)
    _likeness: dict[object, int] = field(default_factory=dict)
    _lines: dict[QueueName, Line] = field(default_factory=dict)
    _candidates: dict[JobName, StartCandidate] = field(default_factory=dict)

    def __contains__(self, name: JobName) -> bool:
        return name in self._jobs

    def add(self, job: Job, options: tuple[Option, ...], *, is_sure: bool = True) -> None:
        """A job waits, and could be served in these ways one day. `is_sure`: whether it may start now, for all but its place."""
        self.remove(job.name)
        if not options:
            return
        self.now = max(self.now, job.submitted_at)
        self._jobs[job.name] = job, options
        self._of_kind.setdefault(self._kind(job), {})[job.name] = job
        self._of_queue.setdefault(job.spec.queue, {})[job.name] = None
        self._lines.pop(job.spec.queue, None)
        self._count(job, options, 1)
        if not is_sure:
            self.unsure.add(job.name)

    def remove(self, name: JobName) -> None:
        """It waits no more, if it did."""
        known = self._jobs.pop(name, None)
        if known is None:
            return
        job, options = known
        of_kind = self._of_kind[self._kind(job)]
        del of_kind[name], self._of_queue[job.spec.queue][name]
        if not of_kind:
            del self._of_kind[self._kind(job)]
        self._lines.pop(job.spec.queue, None)
        self._candidates.pop(name, None)
        self._count(job, options, -1)
        self.unsure.discard(name)

    def change(self, queue: QueueName) -> None:
        """A queue holds more or less than before."""
        self._lines.pop(queue, None)

    def demand(self) -> Iterator[tuple[QueueName, Charge]]:
        """What all together want."""
        yield from ((queue, {gpu_type: milli}) for (queue, gpu_type), milli in self._demand.items() if milli)

    @property
    def lines(self) -> Mapping[QueueName, Line]:
        """All that wait, queue by queue, once they are sorted."""
        return self._lines

    def sort(self, shares: Shares) -> None:
        """Sort each queue under what it holds, where that or its jobs have changed."""
        ranks = self._ranked(shares.tree)
        for kind in ranks.keys() | self._ranks.keys():
            if ranks.get(kind) != self._ranks.get(kind):
                self._lines.pop(kind[0], None)
        self._ranks = ranks
        for queue, names in self._of_queue.items():
            if queue not in self._lines:
                jobs = [self._jobs[name] for name in names]
                of = {job.name: ranks[self._kind(job)] for job, _ in jobs}
                known = with_turns(jobs, of, self.policy, shares, self.now, self._likeness, self._candidates)
                self._candidates.update({candidate.job.name: candidate for _, candidate in known})
                self._lines[queue] = known

    def _ranked(self, tree: QueueTree) -> dict[_Kind, int]:
        # One of each kind tells the rank of all.
        some = {kind: next(iter(jobs.values())) for kind, jobs in self._of_kind.items()}
        ranks = ranks_of(some.values(), self.policy, tree)
        return {kind: ranks[job.name] for kind, job in some.items()}

    def _kind(self, job: Job) -> _Kind:
        return job.spec.queue, self.policy.priority_class_name(job)

    def _count(self, job: Job, options: tuple[Option, ...], sign: int) -> None:
        for queue, charge in demand_of([(job, options)]):
            for gpu_type, milli in charge.items():
                self._demand[queue, gpu_type] += sign * milli


def takes_turns(tree: QueueTree, queue: QueueName) -> bool:
    """Whether jobs of a queue run by turns."""
    return ordering_of(tree, queue).turns is not None


def has_known_order(tree: QueueTree, queue: QueueName) -> bool:
    """Whether the order of a queue's jobs follows from these alone, and not from turns or from how long others have run, nor others
    leave for shares of users, which complete rounds alone decide.
    """
    users = user_shares_of(tree, queue)
    reclaims = users is not None and users.reclaim
    return not takes_turns(tree, queue) and ordering_of(tree, queue).by != "gittins" and not reclaims
