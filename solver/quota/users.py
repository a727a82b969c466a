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
    """What a queue and all below it hold of CPU (milli-cores) or memory (bytes)."""

    queue: QueueName
    resource: Resource


CapLine = UserLine | HostLine


@dataclass(frozen=True, slots=True)
class UserCaps:
    """`cap`: the most milli-GPU one user may hold, for queues and types that say so. `host_max`: the most CPU and memory of queues
    that say so. `used`: what each user, and each of those queues, holds now.
    """

    tree: QueueTree
    cap: Mapping[tuple[QueueName, GpuType], int]
    used: Mapping[CapLine, int]
    host_max: Mapping[HostLine, int] = field(default_factory=dict)

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
        if self.host_max:
            yield from self.host_charges(job.spec.queue, beside_least(job.spec) if beside is None else beside)

    def host_charges(self, queue: QueueName, beside: HostUse) -> Iterator[tuple[HostLine, int]]:
        """The lines of CPU and memory on a queue's path that have a max, and how much this counts against each."""
        for step in self.tree.path(queue) if self.host_max else ():
            amounts: tuple[tuple[Resource, int], ...] = (("cpu", beside.cpu), ("memory", beside.memory))
            for resource, amount in amounts:
                if amount and (line := HostLine(step, resource)) in self.host_max:
                    yield line, amount

    def most(self, line: CapLine) -> int:
        """The cap of a line that has one."""
        return self.host_max[line] if isinstance(line, HostLine) else self.cap[line.queue, line.gpu_type]

    def room(self, line: CapLine) -> int:
        """What new work may still take there; 0 where a cap was lowered below use."""
        return max(0, self.most(line) - self.used.get(line, 0))

    def user_matters(self, queue: QueueName) -> bool:
        """Whether jobs of this queue that differ in nothing but their user may fare differently."""
        path = self.tree.path(queue)
        return any(capped in path for capped, _ in self.cap)


def beside_least(spec: JobSpec) -> HostUse:
    """CPU and memory without which a gang does not start."""
    cpu = sum(group.least * group.shape.cpu for group in spec.task_groups)
    return HostUse(int(cpu), int(sum(group.least * group.shape.memory for group in spec.task_groups)))


def user_caps_of(snapshot: Snapshot, tree: QueueTree) -> UserCaps:
    """The caps of a policy, and what running jobs hold against them."""
    cap = _caps(tree)
    host_max = {
        HostLine(queue.name, resource_of(entry)): int(entry.max)
        for queue in tree.by_name.values()
        for entry in queue.host_quota
        if entry.max is not None
    }
    used: dict[CapLine, int] = dict(_use_by_user(snapshot, tree).items()) if cap else {}
    caps = UserCaps(tree, cap, used, host_max)
    for line, amount in _host_use(snapshot, caps) if host_max else ():
        used[line] = used.get(line, 0) + amount
    return caps


def under_tree(caps: UserCaps, tree: QueueTree, held: Iterable[tuple[Job, Mapping[GpuType, int]]]) -> UserCaps:
    """The caps of a tree with another quota of GPUs, and what is held against them; CPU and memory are as before."""
    used: dict[CapLine, int] = {line: milli for line, milli in caps.used.items() if isinstance(line, HostLine)}
    changed = UserCaps(tree, _caps(tree), used, caps.host_max)
    for job, charge in held if changed.cap else ():
        for line in changed.lines(job, charge):
            used[line] = used.get(line, 0) + charge[line.gpu_type]
    return changed


def _caps(tree: QueueTree) -> dict[tuple[QueueName, GpuType], int]:
    """What each single user may hold, by queue and type."""
    return {
        (queue.name, entry.gpu_type): entry.per_user
        for queue in tree.by_name.values()
        for entry in queue.quota
        if entry.per_user is not None
    }


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
                yield from caps.host_charges(job.spec.queue, HostUse(int(shape.cpu), int(shape.memory)))


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
