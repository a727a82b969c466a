"""Which jobs hold what beside complete rounds, and which are promised what others hold."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

import msgspec

from solver.backfill.nominations import nominations_in
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.policy.policy import Policy
from solver.quota.entitlement import charge_of_tasks


@dataclass(slots=True)
class AwaitedPromise:
    """What a job that waits was promised, and which jobs have to be gone before. `deadline` None: after the next round."""

    job: Job
    tasks: tuple[TaskPlacement, ...]
    awaited: set[JobName]
    deadline: Instant | None = None


@dataclass(slots=True)
class HeldJobs:
    """Mutable. `promised`: all devices that are promised to some job, by node; `uncharged`: jobs that were asked to leave.

    `left`: jobs that count as gone in the room that will be there soon. `lower`: what the jobs of a queue hold, by priority value.
    `growing`: queues with gangs that could be larger, and of which type.
    """

    policy: Policy
    types: Mapping[NodeName, GpuType]
    jobs: dict[JobName, Job] = field(default_factory=dict)
    promises: dict[JobName, AwaitedPromise] = field(default_factory=dict)
    promised: dict[NodeName, Counter[DeviceId]] = field(default_factory=lambda: defaultdict(Counter))
    uncharged: set[JobName] = field(default_factory=set)
    left: set[JobName] = field(default_factory=set)
    lower: dict[QueueName, Counter[tuple[int, GpuType]]] = field(default_factory=lambda: defaultdict(Counter))
    _on: dict[NodeName, set[JobName]] = field(default_factory=lambda: defaultdict(set))
    _growing: dict[JobName, set[tuple[QueueName, GpuType]]] = field(default_factory=dict)

    @classmethod
    def of(cls, world: Snapshot, policy: Policy) -> Self:
        """Those of a world in which a plan was acted on. What a job that moves was promised is left to complete rounds."""
        held = cls(policy, world.gpu_types)
        for job in world.jobs:
            if job.placement:
                held.hold(job, job.placement)
        held.uncharged = {intent.job for intent in world.in_flight.evictions}
        stops = (intent for intent in world.in_flight.intents if intent.kind == "stop")
        held.left = {intent.job for intent in stops if intent.deadline > world.time}
        for intent in world.in_flight.nominations:
            held._keep(intent.tasks, 1)
        for nomination in (*(found := nominations_in(world, policy)).ready, *found.waiting):
            job, intent = nomination.job, nomination.intent
            if job.phase == "pending" and not nomination.pledged:
                awaited = set(nomination.holders)
                held.promises[job.name] = AwaitedPromise(job, intent.tasks, awaited, intent.deadline)
        return held

    @property
    def growing(self) -> Collection[tuple[QueueName, GpuType]]:
        """Of running gangs that could be larger."""
        return set[tuple[QueueName, GpuType]]().union(*self._growing.values())

    def has(self, name: JobName, tasks: Collection[TaskPlacement]) -> bool:
        """Whether a job holds, or was promised, all of these already."""
        if name in self.promises:
            return set(tasks) <= set(self.promises[name].tasks)
        return name in self.jobs and set(tasks) <= set(self.jobs[name].placement)

    def hold(self, job: Job, tasks: tuple[TaskPlacement, ...]) -> None:
        """A job has these."""
        known = self.jobs.get(job.name)
        self._count(job, tasks, 1)
        before = () if known is None else known.placement
        self.jobs[job.name] = msgspec.structs.replace(known or job, placement=(*before, *tasks))
        for task in tasks:
            self._on[task.node].add(job.name)
        if len(self.jobs[job.name].placement) < sum([group.replicas for group in job.spec.task_groups]):
            kinds = {self.types.get(task.node, GpuType("")) for task in tasks}
            self._growing[job.name] = {(job.spec.queue, kind) for kind in kinds}

    def promise(self, job: Job, tasks: tuple[TaskPlacement, ...], awaited: Collection[JobName]) -> None:
        """A job is promised these, once these are gone, and all others that hold any of its devices.

        What a job is promised that moves is kept, and given to it by a complete round.
        """
        self._keep(tasks, 1)
        if job.name in self.jobs:
            return
        devices = {device for task in tasks for device in task.devices}
        there = {name for task in tasks for name in self._on[task.node]}
        in_the_way = {
            name for name in there for task in self.jobs[name].placement if not devices.isdisjoint(task.devices)
        }
        self.promises[job.name] = AwaitedPromise(job, tasks, {*awaited, *in_the_way})

    def keep_promise(self, name: JobName, job: Job) -> None:
        """A job has what it was promised."""
        self.hold(job, self.break_promise(name))

    def break_promise(self, name: JobName) -> tuple[TaskPlacement, ...]:
        """A job is promised nothing any more; what it was."""
        promise = self.promises.pop(name)
        self._keep(promise.tasks, -1)
        return promise.tasks

    def end(self, name: JobName) -> Job | None:
        """A job holds nothing any more; what it held, None where that was nothing."""
        for promise in self.promises.values():
            promise.awaited.discard(name)
        self._growing.pop(name, None)
        job = self.jobs.pop(name, None)
        if job is not None:
            self._count(job, job.placement, -1)
            for task in job.placement:
                self._on[task.node].discard(name)
        return job

    def ready(self, now: Instant) -> Iterator[AwaitedPromise]:
        """Promises for which nobody is awaited."""
        for _, promise in sorted(self.promises.items()):
            if not promise.awaited and (promise.deadline is None or promise.deadline > now):
                yield promise

    def free_of(self, task: TaskPlacement) -> tuple[DeviceId, ...]:
        """The devices of a task that are promised to no job."""
        promised = self.promised.get(task.node)
        return task.devices if not promised else tuple(device for device in task.devices if not promised[device])

    def _keep(self, tasks: Collection[TaskPlacement], sign: int) -> None:
        for task in tasks:
            for device in task.devices:
                self.promised[task.node][device] += sign

    def _count(self, job: Job, tasks: Collection[TaskPlacement], sign: int) -> None:
        known = self.policy.priority_class(job)
        for gpu_type, milli in charge_of_tasks(tasks, self.types).items():
            self.lower[job.spec.queue][known.value if known else 0, gpu_type] += sign * milli
