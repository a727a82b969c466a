"""What single users hold in queues, and caps beside the quota of GPUs: of users in each queue, and of CPU and memory.

What each holds, and how much is left while a round hands out GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from solver.model.cluster import GpuType
from solver.model.snapshot import Snapshot, charged
from solver.model.workload import Job, JobSpec, QueueName
from solver.policy.host_share import Resource, resource_of
from solver.policy.precedence import shared_by_users
from solver.policy.tree import QueueTree
from solver.policy.user_shares import UserShares
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
    that say so; `host_cap`: that of one user there. `sharing`: queues without others below them whose users share them fairly.
    `used`: what each user holds in queues with a cap or that share, and what each queue with a `host_max`, now. `before`: what
    users of `sharing` queues have held on average, in milli-GPU.
    """

    tree: QueueTree
    cap: Mapping[tuple[QueueName, GpuType], int]
    used: Mapping[CapLine, int]
    host_max: Mapping[HostLine, int] = field(default_factory=dict)
    host_cap: Mapping[HostLine, int] = field(default_factory=dict)
    sharing: Mapping[QueueName, UserShares] = field(default_factory=dict)
    before: Mapping[UserLine, float] = field(default_factory=dict)

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
        """All lines with a cap that a job counts against, and how much it counts. `beside`: CPU and memory; None: what it needs to
        start.
        """
        for line in self.lines(job, charge):
            yield line, charge[line.gpu_type]
        if self.limits_host:
            yield from self.host_charges(job.spec.queue, job.user, beside_least(job.spec) if beside is None else beside)

    def counted(
        self, job: Job, charge: Mapping[GpuType, int], beside: HostUse | None = None
    ) -> Iterator[tuple[CapLine, int]]:
        """The same, and what counts for the share of its user alone."""
        yield from self.charges(job, charge, beside)
        yield from ((line, charge[line.gpu_type]) for line in self.uncapped(job, charge))

    def uncapped(self, job: Job, gpu_types: Iterable[GpuType]) -> Iterator[UserLine]:
        """The lines of its user that have no cap, and are counted since the users of its queue share that."""
        queue = job.spec.queue
        if queue in self.sharing:
            for gpu_type in sorted(gpu_types):
                if (queue, gpu_type) not in self.cap:
                    yield UserLine(queue, gpu_type, job.user)

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
    cap = _caps(tree)
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
    sharing = shared_by_users(tree)
    used: dict[CapLine, int] = dict(_use_by_user(snapshot, tree).items()) if cap or sharing else {}
    caps = UserCaps(tree, cap, used, host_max, host_cap, sharing)
    for line, amount in _host_use(snapshot, caps) if caps.limits_host else ():
        used[line] = used.get(line, 0) + amount
    return caps


def under_tree(caps: UserCaps, tree: QueueTree, held: Iterable[tuple[Job, Mapping[GpuType, int]]]) -> UserCaps:
    """The caps of a tree with another quota of GPUs, and what is held against them; CPU and memory are as before."""
    used: dict[CapLine, int] = {line: milli for line, milli in caps.used.items() if isinstance(line, HostLine)}
    changed = replace(caps, tree=tree, cap=_caps(tree), used=used)
    for job, charge in held if changed.cap or changed.sharing else ():
        for line in (*changed.lines(job, charge), *changed.uncapped(job, charge)):
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
    type_of, unknown = snapshot.gpu_types, GpuType("")
    in_queues = Counter[UserLine]()
    for job, tasks in charged(snapshot):
        queue, user = job.spec.queue, job.user
        for task in tasks:
            in_queues[UserLine(queue, type_of.get(task.node, unknown), user)] += task.gpus
    used: dict[UserLine, int] = {}
    for (queue, gpu_type, user), milli in in_queues.items():
        for step in tree.path(queue):
            line = UserLine(step, gpu_type, user)
            used[line] = used.get(line, 0) + milli
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
        for line, amount in self.caps.counted(job, charge, beside):
            self.taken[line] = self.taken.get(line, 0) + amount

    def used(self, line: CapLine) -> int:
        """What is held there, starts of this round included."""
        return self.caps.used.get(line, 0) + self.taken.get(line, 0)


def _left(line: CapLine, leaving: Mapping[HostLine, int] | None) -> int:
    return leaving.get(line, 0) if leaving and isinstance(line, HostLine) else 0
