"""Caps beside the quota of GPUs: what a single user may hold in each queue, and what queues may hold of CPU and memory.

What each holds, and how much is left while a round hands out GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from solver.model.cluster import GpuType
from solver.model.snapshot import Snapshot, charged
from solver.model.workload import Job, JobSpec, QueueName
from solver.policy.host_share import Resource, resource_of
from solver.policy.tree import QueueTree
from solver.quota.dominance import HostUse


class UserLine(NamedTuple):
    """What one user holds of a GPU type in a queue and below it. Jobs without a user are all one user's, named ""."""

    queue: QueueName
    gpu_type: GpuType
    user: str


class HostLine(NamedTuple):
    """What a queue and all below it hold of CPU (milli-cores) or memory (bytes); with a `user`, what jobs of that user do."""

    queue: QueueName
    resource: Resource
    user: str | None = None


CapLine = UserLine | HostLine


@dataclass(frozen=True, slots=True)
class UserCaps:
    """`cap`: the most milli-GPU one user may hold, for queues and types that say so. `host_max`: the most CPU and memory of queues
    that say so; `host_cap`: that of one user there. `used`: what each user, and each of those queues, holds now.
    """

    tree: QueueTree
    cap: Mapping[tuple[QueueName, GpuType], int]
    used: Mapping[CapLine, int]
    host_max: Mapping[HostLine, int] = field(default_factory=dict)
    host_cap: Mapping[HostLine, int] = field(default_factory=dict)

    @property
    def limits_host(self) -> bool:
        """Whether anything limits CPU or memory."""
        return bool(self.host_max or self.host_cap)

    def lines(self, job: Job, gpu_types: Iterable[GpuType]) -> Iterator[UserLine]:
        """The lines with a cap that a job of its user counts against, from its queue up, type by type."""
        for gpu_type in sorted(gpu_types) if self.cap else ():
            for queue in self.tree.path(job.spec.queue):
                if (queue, gpu_type) in self.cap:
                    yield UserLine(queue, gpu_type, job.user)

    def charges(
        self, job: Job, charge: Mapping[GpuType, int], beside: HostUse | None = None
    ) -> Iterator[tuple[CapLine, int]]:
        """All lines that a job counts against, and how much it counts. `beside`: CPU and memory; None: what it needs to start."""
        for line in self.lines(job, charge):
            yield line, charge[line.gpu_type]
        if self.limits_host:
            yield from self.host_charges(job.spec.queue, job.user, beside_least(job.spec) if beside is None else beside)

    def host_charges(self, queue: QueueName, user: str, beside: HostUse) -> Iterator[tuple[HostLine, int]]:
        """The limited lines of CPU and memory on a queue's path, and how much this of one of its users counts against each."""
        for step in self.tree.path(queue) if self.limits_host else ():
            amounts: tuple[tuple[Resource, int], ...] = (("cpu", beside.cpu), ("memory", beside.memory))
            for resource, amount in amounts:
                line = HostLine(step, resource)
                if amount and line in self.host_max:
                    yield line, amount
                if amount and line in self.host_cap:
                    yield line._replace(user=user), amount

    def most(self, line: CapLine) -> int:
        """The cap of a line that has one."""
        if isinstance(line, UserLine):
            return self.cap[line.queue, line.gpu_type]
        return self.host_max[line] if line.user is None else self.host_cap[line._replace(user=None)]

    def room(self, line: CapLine) -> int:
        """What new work may still take there; 0 where a cap was lowered below use."""
        return max(0, self.most(line) - self.used.get(line, 0))

    def user_matters(self, queue: QueueName) -> bool:
        """Whether jobs of this queue that differ in nothing but their user may fare differently."""
        path = self.tree.path(queue)
        return any(capped in path for capped, _ in self.cap) or any(line.queue in path for line in self.host_cap)


def beside_least(spec: JobSpec) -> HostUse:
    """CPU and memory without which a gang does not start."""
    cpu = sum(group.least * group.shape.cpu for group in spec.task_groups)
    return HostUse(int(cpu), int(sum(group.least * group.shape.memory for group in spec.task_groups)))


def user_caps_of(snapshot: Snapshot, tree: QueueTree) -> UserCaps:
    """The caps of a policy, and what running jobs hold against them."""
    cap = {
        (queue.name, entry.gpu_type): entry.per_user
        for queue in tree.by_name.values()
        for entry in queue.quota
        if entry.per_user is not None
    }
    host_max = {
        HostLine(queue.name, resource_of(entry)): int(entry.max)
        for queue in tree.by_name.values()
        for entry in queue.host_quota
        if entry.max is not None
    }
    host_cap = {
        HostLine(queue.name, resource_of(entry)): int(entry.per_user)
        for queue in tree.by_name.values()
        for entry in queue.host_quota
        if entry.per_user is not None
    }
    used: dict[CapLine, int] = dict(_use_by_user(snapshot, tree).items()) if cap else {}
    caps = UserCaps(tree, cap, used, host_max, host_cap)
    for line, amount in _host_use(snapshot, caps) if caps.limits_host else ():
        used[line] = used.get(line, 0) + amount
    return caps


def _use_by_user(snapshot: Snapshot, tree: QueueTree) -> dict[UserLine, int]:
    type_of = snapshot.gpu_types
    used: dict[UserLine, int] = {}
    for job, tasks in charged(snapshot):
        for task in tasks:
            for queue in tree.path(job.spec.queue):
                line = UserLine(queue, type_of.get(task.node, GpuType("")), job.user)
                used[line] = used.get(line, 0) + task.gpus
    return used


def _host_use(snapshot: Snapshot, caps: UserCaps) -> Iterator[tuple[HostLine, int]]:
    for job, tasks in charged(snapshot):
        shapes = {group.name: group.shape for group in job.spec.task_groups}
        for task in tasks:
            if task.group in shapes:
                shape = shapes[task.group]
                yield from caps.host_charges(job.spec.queue, job.user, HostUse(int(shape.cpu), int(shape.memory)))


@dataclass(slots=True)
class UserRoom:
    """What is left under every cap while a round hands out GPUs."""

    caps: UserCaps
    taken: dict[CapLine, int] = field(default_factory=dict)

    def blocking(
        self,
        job: Job,
        charge: Mapping[GpuType, int],
        beside: HostUse | None = None,
        leaving: Mapping[HostLine, int] | None = None,
    ) -> tuple[CapLine, ...]:
        """The lines whose cap this would break; `beside` as in `UserCaps.charges`. `leaving`: CPU and memory that are given up."""
        return tuple(
            line
            for line, amount in self.caps.charges(job, charge, beside)
            if amount
            > max(0, self.caps.most(line) - self.caps.used.get(line, 0) + _left(line, leaving))
            - self.taken.get(line, 0)
        )

    def take(self, job: Job, charge: Mapping[GpuType, int], beside: HostUse | None = None) -> None:
        """Charge a start, or growth, to the job's user and queues."""
        for line, amount in self.caps.charges(job, charge, beside):
            self.taken[line] = self.taken.get(line, 0) + amount

    def used(self, line: CapLine) -> int:
        """What is held there, starts of this round included."""
        return self.caps.used.get(line, 0) + self.taken.get(line, 0)


def _left(line: CapLine, leaving: Mapping[HostLine, int] | None) -> int:
    return leaving.get(line, 0) if leaving and isinstance(line, HostLine) else 0
