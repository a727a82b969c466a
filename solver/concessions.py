"""What each running job gives up in a round, all its parts taken together: everything, or some tasks of an elastic gang."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from solver.rules.departures import Departure, Rule
from solver.rules.policy import Policy
from solver.rules.victims import MEANS, Means, Victim
from solver.world.inflight import Intent
from solver.world.parts import owner_of, shrinking_apart
from solver.world.quantities import Instant, MilliGpu
from solver.world.snapshot import Snapshot, snapshot_of
from solver.world.workload import Job, JobName, QueueName, TaskPlacement


@dataclass(frozen=True, slots=True)
class Concession:
    """`tasks` of a job leave, for a `beneficiary` or by a rule of queue `at`.

    `by` is the most harmful of what takes them; `lost_gpu_s` as of an eviction. `reserved_for`: the gang it gives back to.
    """

    job: Job
    tasks: tuple[TaskPlacement, ...]
    by: Means | Rule | Literal["overdue"]
    lost_gpu_s: float
    beneficiary: JobName | None = None
    at: QueueName | None = None
    reserved_for: JobName | None = None

    @property
    def whole(self) -> bool:
        """The gang leaves altogether."""
        return len(self.tasks) == len(self.job.placement)

    @property
    def gpus(self) -> MilliGpu:
        """GPUs given up."""
        return MilliGpu(sum(task.gpus for task in self.tasks))

    @property
    def keeps(self) -> MilliGpu:
        """GPUs that the job goes on with."""
        return MilliGpu(sum(task.gpus for task in self.job.placement) - self.gpus)


def concessions(
    parts: Iterable[Victim | Departure], jobs: Mapping[JobName, Job], beneficiary: JobName | None = None
) -> Iterator[Concession]:
    """One for each job, in the order in which the first part of each is named."""
    by_job: dict[JobName, list[Victim | Departure]] = {}
    for part in parts:
        by_job.setdefault(owner_of(part.name), []).append(part)
    for name, found in by_job.items():
        named = {(task.group, task.index) for part in found for task in part.holder.job.placement}
        tasks = tuple(task for task in jobs[name].placement if (task.group, task.index) in named)
        rule = next((part for part in found if isinstance(part, Departure)), None)
        at, to = (rule.queue, rule.to) if rule else (None, None)
        yield Concession(jobs[name], tasks, _worst(found), sum(part.lost_gpu_s for part in found), beneficiary, at, to)


def overdue_growths(snapshot: Snapshot, others: Collection[JobName]) -> Iterator[Concession]:
    """Tasks that were to join a gang and did not become ready in time leave it again; the gang goes on without them."""
    jobs = {job.name: job for job in snapshot.jobs}
    busy = {intent.job for intent in snapshot.in_flight.intents if intent.kind in ("stop", "shrink")} | set(others)
    for intent in snapshot.in_flight.intents:
        if intent.kind == "grow" and intent.deadline <= snapshot.time and intent.job not in busy and intent.job in jobs:
            yield Concession(jobs[intent.job], intent.tasks, "overdue", 0.0)


def _worst(parts: Iterable[Victim | Departure]) -> Means | Rule:
    by: list[Means | Rule] = [part.means if isinstance(part, Victim) else part.rule for part in parts]
    return max(by, key=(*MEANS, "drain", "converge", "return").index)


def with_asked(snapshot: Snapshot, leaving: Iterable[Concession], policy: Policy) -> Snapshot:
    """The world in which that was asked for: it is no longer theirs who hold it, and not yet free."""
    intents = tuple(_asked(known, snapshot.time, policy) for known in leaving)
    if not intents:
        return snapshot
    in_flight = msgspec.structs.replace(snapshot.in_flight, intents=(*snapshot.in_flight.intents, *intents))
    return shrinking_apart(snapshot_of(snapshot.time, snapshot.nodes, snapshot.jobs, in_flight))


def _asked(known: Concession, now: Instant, policy: Policy) -> Intent:
    job, until = known.job, now.after(policy.grace(known.job))
    if known.whole:
        return Intent("stop", job.name, job.attempt, now, until, beneficiary=known.beneficiary, evicts=True)
    return Intent("shrink", job.name, job.attempt, now, until, known.tasks, known.beneficiary)
