"""What a single user may hold in each queue, what each holds, and how much is left while a round hands out GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from solver.model.cluster import GpuType
from solver.model.snapshot import Snapshot, charged
from solver.model.workload import Job, QueueName
from solver.policy.tree import QueueTree


class UserLine(NamedTuple):
    """What one user holds of a GPU type in a queue and below it. Jobs without a user are all one user's, named ""."""

    queue: QueueName
    gpu_type: GpuType
    user: str


@dataclass(frozen=True, slots=True)
class UserCaps:
    """`cap`: the most milli-GPU one user may hold, for queues and types that say so. `used`: what each user holds there now."""

    tree: QueueTree
    cap: Mapping[tuple[QueueName, GpuType], int]
    used: Mapping[UserLine, int]

    def lines(self, job: Job, gpu_types: Iterable[GpuType]) -> Iterator[UserLine]:
        """The lines with a cap that a job of its user counts against, from its queue up, type by type."""
        for gpu_type in sorted(gpu_types) if self.cap else ():
            for queue in self.tree.path(job.spec.queue):
                if (queue, gpu_type) in self.cap:
                    yield UserLine(queue, gpu_type, job.user)

    def most(self, line: UserLine) -> int:
        """The cap of a line that has one."""
        return self.cap[line.queue, line.gpu_type]

    def room(self, line: UserLine) -> int:
        """Milli-GPU that the user's new work may still take there; 0 where a cap was lowered below use."""
        return max(0, self.most(line) - self.used.get(line, 0))

    def user_matters(self, queue: QueueName) -> bool:
        """Whether jobs of this queue that differ in nothing but their user may fare differently."""
        path = self.tree.path(queue)
        return any(capped in path for capped, _ in self.cap)


def user_caps_of(snapshot: Snapshot, tree: QueueTree) -> UserCaps:
    """The caps of a policy, and what running jobs hold against them."""
    cap = {
        (queue.name, entry.gpu_type): entry.per_user
        for queue in tree.by_name.values()
        for entry in queue.quota
        if entry.per_user is not None
    }
    return UserCaps(tree, cap, _use_by_user(snapshot, tree) if cap else {})


def _use_by_user(snapshot: Snapshot, tree: QueueTree) -> dict[UserLine, int]:
    type_of = snapshot.gpu_types
    used: dict[UserLine, int] = {}
    for job, tasks in charged(snapshot):
        for task in tasks:
            for queue in tree.path(job.spec.queue):
                line = UserLine(queue, type_of.get(task.node, GpuType("")), job.user)
                used[line] = used.get(line, 0) + task.gpus
    return used


@dataclass(slots=True)
class UserRoom:
    """What is left under every user's caps while a round hands out GPUs."""

    caps: UserCaps
    taken: dict[UserLine, int] = field(default_factory=dict)

    def blocking(self, job: Job, charge: Mapping[GpuType, int]) -> tuple[UserLine, ...]:
        """The lines whose cap the charge would break."""
        return tuple(
            line
            for line in self.caps.lines(job, charge)
            if charge[line.gpu_type] > self.caps.room(line) - self.taken.get(line, 0)
        )

    def take(self, job: Job, charge: Mapping[GpuType, int]) -> None:
        """Charge a start to the job's user."""
        for line in self.caps.lines(job, charge):
            self.taken[line] = self.taken.get(line, 0) + charge[line.gpu_type]

    def used(self, line: UserLine) -> int:
        """What the user holds there, starts of this round included."""
        return self.caps.used.get(line, 0) + self.taken.get(line, 0)
