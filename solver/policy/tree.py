"""The quota tree, indexed once per round: ancestors, children and leaves of each queue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from solver.model.cluster import GpuType
from solver.model.workload import QueueName
from solver.policy.host_share import Resource, resource_of
from solver.policy.namespace_rules import NamespaceRules
from solver.policy.ordering import Ordering
from solver.policy.policy import Policy, Queue


class QuotaLine(NamedTuple):
    """One limit line of the tree: a queue and a GPU type."""

    queue: QueueName
    gpu_type: GpuType


@dataclass(frozen=True)
class QueueTree:
    """Queues by name and by parent. A parent that does not exist makes its child a root: nothing is lost from view.

    `orderings`: those that were asked for (policy/precedence). `namespaces`: which of them may use which queues.
    """

    by_name: dict[QueueName, Queue]
    children: dict[QueueName | None, tuple[Queue, ...]]
    orderings: dict[QueueName, Ordering] = field(default_factory=dict)
    namespaces: NamespaceRules = field(default_factory=NamespaceRules)
    _paths: dict[QueueName, tuple[QueueName, ...]] = field(default_factory=dict)
    _lines: dict[tuple[QueueName, GpuType], tuple[QuotaLine, ...]] = field(default_factory=dict)
    _below_lines: dict[QuotaLine, tuple[QuotaLine, ...]] = field(default_factory=dict)
    _sharing: dict[QuotaLine, QuotaLine | None] = field(default_factory=dict)
    _upwards: dict[GpuType, tuple[tuple[QuotaLine, tuple[QuotaLine, ...]], ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, policy: Policy) -> QueueTree:
        """Index a policy's queues."""
        by_name = {queue.name: queue for queue in policy.queues}
        children: dict[QueueName | None, list[Queue]] = {None: []}
        for queue in policy.queues:
            parent = queue.parent if queue.parent in by_name else None
            children.setdefault(parent, []).append(queue)
        below = {parent: tuple(queues) for parent, queues in children.items()}
        return cls(by_name, below, namespaces=NamespaceRules.of(policy))

    def path(self, name: QueueName) -> tuple[QueueName, ...]:
        """The queue and its ancestors, from the queue up to its root; () for a queue that does not exist."""
        if name not in self._paths:
            self._paths[name] = tuple(self._climb(name))
        return self._paths[name]

    def lines(self, name: QueueName, gpu_type: GpuType) -> tuple[QuotaLine, ...]:
        """The limit lines of one type on the path of a queue, from the queue up."""
        known = self._lines.get((name, gpu_type))
        if known is None:
            known = self._lines[QuotaLine(name, gpu_type)] = tuple(
                QuotaLine(queue, gpu_type) for queue in self.path(name)
            )
        return known

    def lines_below(self, line: QuotaLine) -> tuple[QuotaLine, ...]:
        """Those of the queues right below a line's; () at a leaf."""
        known = self._below_lines.get(line)
        if known is None:
            children = self.children.get(line.queue, ())
            known = self._below_lines[line] = tuple(QuotaLine(child.name, line.gpu_type) for child in children)
        return known

    @cached_property
    def shares_any(self) -> bool:
        """Whether any queue shares a guarantee with those below it."""
        return any(entry.shared for queue in self.by_name.values() for entry in queue.quota)

    @cached_property
    def shares_host(self) -> bool:
        """Whether any queue shares a guarantee of CPU or memory with those below it."""
        return any(entry.shared for queue in self.by_name.values() for entry in queue.host_quota)

    def host_sharing(self, name: QueueName, resource: Resource) -> QueueName | None:
        """The queue above one that shares its guarantee of CPU or memory with all below it; of several the highest."""
        for above in reversed(self.path(name)[1:]) if self.shares_host else ():
            entry = self.by_name[above].host_quota_for(resource)
            if entry is not None and entry.shared:
                return above
        return None

    @cached_property
    def host_resources(self) -> tuple[Resource, ...]:
        """Of CPU and memory those of which some queue says anything."""
        return tuple(sorted({resource_of(entry) for queue in self.by_name.values() for entry in queue.host_quota}))

    @cached_property
    def divides_host(self) -> bool:
        """Whether any queue says anything of CPU or memory: then both are divided among jobs without GPUs."""
        return bool(self.host_resources)

    @cached_property
    def reclaims_by_value(self) -> bool:
        """Whether any queue takes back what others borrowed by its value."""
        return any(queue.reclaim_below is not None for queue in self.by_name.values())

    def sharing(self, line: QuotaLine) -> QuotaLine | None:
        """The line above one whose guarantee the queues below it share; of several the highest."""
        if line not in self._sharing:
            above = self.lines(*line)[1:]
            entries = ((known, self.by_name[known.queue].quota_for(line.gpu_type)) for known in reversed(above))
            self._sharing[line] = next((known for known, entry in entries if entry is not None and entry.shared), None)
        return self._sharing[line]

    def origin_of(self, line: QuotaLine) -> str:
        """Where in Git a queue speaks of a type; "" where it does not."""
        entry = self.by_name[line.queue].quota_for(line.gpu_type)
        return entry.origin if entry else ""

    def upwards(self, gpu_type: GpuType) -> tuple[tuple[QuotaLine, tuple[QuotaLine, ...]], ...]:
        """All lines of a type, each after those right below it, which stand beside it."""
        known = self._upwards.get(gpu_type)
        if known is None:
            lines = self.roots(gpu_type)
            for line in lines:
                lines += self.lines_below(line)
            known = self._upwards[gpu_type] = tuple((line, self.lines_below(line)) for line in reversed(lines))
        return known

    def roots(self, gpu_type: GpuType) -> list[QuotaLine]:
        """The lines of a type with none above them."""
        return [QuotaLine(root.name, gpu_type) for root in self.children.get(None, ())]

    def parting(self, one: QueueName, other: QueueName) -> tuple[QueueName, QueueName, QueueName | None]:
        """Where the paths of two queues part: the last queue of each that is only on its own, and the first that both share.

        None for the latter: they meet in the cluster itself, above the roots.
        """
        theirs = set(self.path(other))
        shared = next((name for name in self.path(one) if name in theirs), None)
        apart = [next((n for n in reversed(self._below(queue, shared))), queue) for queue in (one, other)]
        return apart[0], apart[1], shared

    def _below(self, queue: QueueName, ancestor: QueueName | None) -> tuple[QueueName, ...]:
        path = self.path(queue)
        return path if ancestor is None else path[: path.index(ancestor)]

    def is_leaf(self, name: QueueName) -> bool:
        """Nothing lies below it, so jobs may be submitted to it."""
        return name in self.by_name and name not in self.children

    def _climb(self, name: QueueName) -> Iterator[QueueName]:
        seen: set[QueueName] = set()
        step: QueueName | None = name
        while step is not None and step in self.by_name and step not in seen:
            seen.add(step)
            yield step
            step = self.by_name[step].parent
