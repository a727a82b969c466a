"""What each running job gives up in a round: all of it, or some tasks of an elastic gang."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from solver.model.inflight import Intent
from solver.model.parts import owner_of, shrinking_apart
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.snapshot import Snapshot, with_more_intents
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.policy.harm import MEANS, Means, Rule
from solver.policy.policy import Policy
from solver.preemption.departures import RuleEviction
from solver.preemption.new_nomination import NewNomination
from solver.quota.dominance import HostUse
from solver.quota.host_shares import sum_of, tasks_with_shapes
from solver.quota.victims import Victim


@dataclass(frozen=True, slots=True)
class PlannedEviction:
    """`tasks` of a job leave, for a `beneficiary` or by a rule of queue `at`.

    `by` is the most harmful of what takes them; `lost_gpu_s` as of an eviction. `reserved_for`: the gang it gives back to.
    `moves_to`: where a job that moves goes on.
    """

    job: Job
    tasks: tuple[TaskPlacement, ...]
    by: Means | Rule | Literal["overdue", "move"]
    lost_gpu_s: float
    beneficiary: JobName | None = None
    at: QueueName | None = None
    reserved_for: JobName | None = None
    moves_to: tuple[TaskPlacement, ...] = ()

    @property
    def whole(self) -> bool:
        """The gang leaves altogether."""
        return len(self.tasks) == len(self.job.placement)

    @property
    def gpus(self) -> MilliGpu:
        """GPUs given up."""
        return MilliGpu(sum(task.gpus for task in self.tasks))

    @property
    def beside(self) -> HostUse:
        """CPU and memory given up."""
        gone = {(task.group, task.index) for task in self.tasks}
        shapes = (shape for task, shape in tasks_with_shapes(self.job) if (task.group, task.index) in gone)
        return sum_of(shapes)

    @property
    def keeps(self) -> MilliGpu:
        """GPUs that the job goes on with."""
        return MilliGpu(sum(task.gpus for task in self.job.placement) - self.gpus)


def planned_evictions(
    parts: Iterable[Victim | RuleEviction], jobs: Mapping[JobName, Job], beneficiary: JobName | None = None
) -> Iterator[PlannedEviction]:
    """One for each job, in the order in which the first part of each is named."""
    by_job: dict[JobName, list[Victim | RuleEviction]] = {}
    for part in parts:
        by_job.setdefault(owner_of(part.name), []).append(part)
    for name, found in by_job.items():
        named = {(task.group, task.index) for part in found for task in part.holder.job.placement}
        tasks = tuple(task for task in jobs[name].placement if (task.group, task.index) in named)
        rule = next((part for part in found if isinstance(part, RuleEviction)), None)
        at, to = (rule.queue, rule.to) if rule else (None, None)
        yield PlannedEviction(
            jobs[name], tasks, _worst(found), sum(part.lost_gpu_s for part in found), beneficiary, at, to
        )


def yielding(promise: NewNomination, jobs: Mapping[JobName, Job]) -> Iterator[PlannedEviction]:
    """The jobs that leave or move for the job of a nomination; for the gang, where that is a task by which it grows."""
    beneficiary = owner_of(promise.job.name)
    yield from planned_evictions(promise.victims, jobs, beneficiary)
    for move in promise.moves:
        job, lost = move.mover.job, move.mover.lost_gpu_s
        yield PlannedEviction(job, job.placement, "move", lost, beneficiary, moves_to=move.tasks)


def overdue_growths(snapshot: Snapshot, others: Collection[JobName]) -> Iterator[PlannedEviction]:
    """Tasks that were to join a gang and did not become ready in time leave it again; the gang goes on without them."""
    jobs = {job.name: job for job in snapshot.jobs}
    busy = {intent.job for intent in snapshot.in_flight.intents if intent.kind in ("stop", "shrink")} | set(others)
    for intent in snapshot.in_flight.intents:
        if intent.kind == "grow" and intent.deadline <= snapshot.time and intent.job not in busy and intent.job in jobs:
            yield PlannedEviction(jobs[intent.job], intent.tasks, "overdue", 0.0)


def _worst(parts: Iterable[Victim | RuleEviction]) -> Means | Rule:
    by: list[Means | Rule] = [part.means if isinstance(part, Victim) else part.rule for part in parts]
    return max(by, key=(*MEANS, "drain", "converge", "return").index)


def with_asked(snapshot: Snapshot, leaving: Iterable[PlannedEviction], policy: Policy) -> Snapshot:
    """The world in which that was asked for: it is no longer theirs who hold it, and not yet free."""
    leaving = tuple(leaving)
    intents = tuple(_asked(known, snapshot.time, policy) for known in leaving)
    intents += tuple(_promised(known, snapshot.time, policy) for known in leaving if known.moves_to)
    if not intents:
        return snapshot
    return shrinking_apart(with_more_intents(snapshot, intents))


def _asked(known: PlannedEviction, now: Instant, policy: Policy) -> Intent:
    job, until = known.job, now.after(policy.grace(known.job))
    if known.whole:
        return Intent("stop", job.name, job.attempt, now, until, beneficiary=known.beneficiary, purpose="evict")
    return Intent("shrink", job.name, job.attempt, now, until, known.tasks, known.beneficiary)


def _promised(known: PlannedEviction, now: Instant, policy: Policy) -> Intent:
    until = now.after(promised_for(known, policy))
    return Intent("nominate", known.job.name, known.job.attempt + 1, now, until, known.moves_to)


def promised_for(known: PlannedEviction, policy: Policy) -> Duration:
    """How long a job that moves is promised where it goes on: until it has left, be it by force, and has had time to start."""
    return Duration(policy.grace(known.job) + policy.scheduling.evictions.grace + policy.scheduling.start_deadline)
