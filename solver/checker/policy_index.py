"""A policy, indexed for the checker: queues by name, the path of each, classes by name.

Part of the checker. Shared by all rules of one judgement.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from solver.model.cluster import GpuType
from solver.model.parts import owner_of
from solver.model.workload import Job, QueueName
from solver.policy.host_share import Resource
from solver.policy.policy import Policy, PriorityClass, Queue
from solver.policy.tree import QueueTree, QuotaLine


@dataclass(frozen=True)
class PolicyIndex:
    """One policy. Paths go from a queue up to its root, () for a queue that does not exist."""

    policy: Policy
    written: Policy | None = None
    """As its documents say it, with the hours that are to come."""
    _paths: dict[str, tuple[Queue, ...]] = field(default_factory=dict)
    _names: dict[str, frozenset[QueueName]] = field(default_factory=dict)
    _lines: dict[tuple[str, GpuType], tuple[QuotaLine, ...]] = field(default_factory=dict)

    @cached_property
    def queues(self) -> dict[str, Queue]:
        """By name."""
        return {queue.name: queue for queue in self.policy.queues}

    @cached_property
    def tree(self) -> QueueTree:
        """What guarantees are worked out on."""
        return QueueTree.of(self.policy)

    @cached_property
    def from_the_top(self) -> tuple[Queue, ...]:
        """All queues, each after those above it."""
        return tuple(sorted(self.policy.queues, key=lambda queue: len(self.path(queue.name))))

    @cached_property
    def siblings(self) -> Mapping[QueueName | None, Sequence[QueueName]]:
        """Queues by the queue above them, None above the roots; from the top down."""
        below = defaultdict[QueueName | None, list[QueueName]](list)
        for queue in self.from_the_top:
            path = self.path(queue.name)
            below[path[1].name if len(path) > 1 else None].append(queue.name)
        return dict(below)

    @cached_property
    def parents(self) -> frozenset[QueueName]:
        """The queues that have others below them."""
        return frozenset(queue.parent for queue in self.policy.queues if queue.parent is not None)

    @cached_property
    def lent_in_part(self) -> frozenset[GpuType]:
        """The types of which some queue keeps back a part of its guarantee for itself."""
        entries = (entry for queue in self.policy.queues for entry in queue.quota)
        return frozenset(entry.gpu_type for entry in entries if entry.lendable is not None)

    @cached_property
    def _classes(self) -> dict[str, PriorityClass]:
        return {known.name: known for known in self.policy.priority_classes}

    def path(self, name: str) -> tuple[Queue, ...]:
        """A queue and those above it."""
        if name not in self._paths:
            path: list[Queue] = []
            queue = self.queues.get(name)
            while queue is not None and queue not in path:
                path.append(queue)
                queue = self.queues.get(queue.parent) if queue.parent else None
            self._paths[name] = tuple(path)
        return self._paths[name]

    def lines(self, name: str, gpu_type: GpuType) -> tuple[QuotaLine, ...]:
        """The lines of a type on the path of a queue, from it up."""
        found = self._lines.get((name, gpu_type))
        if found is None:
            found = self._lines[name, gpu_type] = tuple(QuotaLine(queue.name, gpu_type) for queue in self.path(name))
        return found

    def limits_host(self, name: str) -> bool:
        """Whether a queue, or one above it, limits CPU or memory: whether a job keeps to that takes sums of both to say."""
        entries = (entry for queue in self.path(name) for entry in queue.host_quota)
        return any(entry.max is not None or entry.per_user is not None for entry in entries)

    def shares_from(self, name: str, gpu_type: GpuType) -> QueueName | None:
        """The highest queue above one that shares its guarantee of a type with all below it."""
        for queue in reversed(self.path(name)[1:]):
            if any(entry.shared and entry.gpu_type == gpu_type for entry in queue.quota):
                return queue.name
        return None

    def host_shares_from(self, name: str, resource: Resource) -> QueueName | None:
        """The highest queue above one that shares its guarantee of CPU or memory with all below it."""
        for queue in reversed(self.path(name)[1:]):
            entry = queue.host_quota_for(resource)
            if entry is not None and entry.shared:
                return queue.name
        return None

    def yields_by_value(self, victim: Job, preemptor: Job) -> bool:
        """Whether what a job borrowed leaves for one of another queue that says below which value, and both values compare."""
        said = (known.reclaim_below for known in self.path(preemptor.spec.queue))
        below = next((value for value in said if value is not None), None)
        mine, theirs = self.class_of(victim) or _NO_CLASS, self.class_of(preemptor) or _NO_CLASS
        both = mine.scope == theirs.scope == "cluster"
        return below is not None and both and mine.value < below and mine.value < theirs.value

    def yields_inside(self, queue: str, victim: Job, preemptor: Job) -> bool:
        """Whether a preemptible job of a queue leaves for one of the same queue that waits, by value, or by age."""
        within = next((known.preempt_within for known in self.path(queue) if known.preempt_within), "lower-priority")
        mine, theirs = self.class_of(victim) or _NO_CLASS, self.class_of(preemptor) or _NO_CLASS
        if within == "never":
            return False
        if mine.value != theirs.value:
            return mine.value < theirs.value
        return owner_of(victim.name) != victim.name or self._is_newer(within, victim, preemptor)

    @staticmethod
    def _is_newer(within: str, victim: Job, preemptor: Job) -> bool:
        return within == "lower-or-newer" and victim.submitted_at > preemptor.submitted_at

    def on_path(self, name: str) -> frozenset[QueueName]:
        """The names of a queue and of those above it."""
        if name not in self._names:
            self._names[name] = frozenset(queue.name for queue in self.path(name))
        return self._names[name]

    def class_of(self, job: Job) -> PriorityClass | None:
        """The class a job runs under: its own, else the policy's default; None where it names one that does not exist."""
        name = job.spec.priority_class or self.policy.scheduling.default_priority_class
        return self._classes.get(name) if name else _NO_CLASS

    def added_up(self, use: Iterable[tuple[str, GpuType, int]]) -> Counter[QuotaLine]:
        """What queues themselves hold of each type, counted for every queue on their paths."""
        own: Counter[tuple[str, GpuType]] = Counter()
        for name, gpu_type, milli in use:
            own[name, gpu_type] += milli
        total: Counter[QuotaLine] = Counter()
        for (name, gpu_type), milli in own.items():
            for queue in self.path(name):
                total[QuotaLine(queue.name, gpu_type)] += milli
        return total


_NO_CLASS = PriorityClass("")
