"""Which Kubernetes namespaces may use which queues, as all queues of a policy say it together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, NamedTuple

from solver.model.workload import Job, KubernetesNamespace, QueueName
from solver.policy.policy import NamespaceAccess, Policy, Queue, UnlistedNamespaces

BarKind = Literal["other-queues", "closed-queue", "unlisted", "class"]
"""The namespace is listed by other queues; the queue lists others; no queue lists it, which is refused; its class is not let in."""


class NamespaceBar(NamedTuple):
    """Why a namespace may not use a queue, and the place in Git. `classes`: those that would do, where only its class is wrong."""

    kind: BarKind
    origin: str
    classes: tuple[str, ...] = ()


class QueueEntry(NamedTuple):
    """An entry of `access.namespaces` with the queue that it stands in."""

    queue: QueueName
    access: NamespaceAccess


@dataclass(frozen=True)
class NamespaceRules:
    """A namespace that is listed may use the queues that list it, and those below; a queue that lists some is open to no others.

    `unlisted`: whether those that no queue lists may use the queues on whose paths no queue lists any.
    """

    entries: tuple[QueueEntry, ...] = ()
    unlisted: UnlistedNamespaces = "allowed"
    unlisted_origin: str = ""
    _covering: dict[KubernetesNamespace, tuple[QueueEntry, ...]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, policy: Policy) -> NamespaceRules:
        """What a policy says."""
        entries = tuple(QueueEntry(queue.name, entry) for queue in policy.queues for entry in queue.access.namespaces)
        return cls(entries, policy.scheduling.unlisted_namespaces, policy.scheduling.origin)

    @property
    def say_something(self) -> bool:
        """Whether any namespace is treated differently from another."""
        return bool(self.entries) or self.unlisted == "refused"

    def covering(self, namespace: KubernetesNamespace) -> tuple[QueueEntry, ...]:
        """The entries that mean a namespace, the closest first; (): no queue lists it."""
        if not self.entries:
            return ()
        if namespace not in self._covering:
            found = [
                *self._by_name.get(namespace.name, ()),
                *(one for one in self._of_many if one.access.covers(namespace)),
            ]
            self._covering[namespace] = tuple(sorted(found, key=lambda entry: entry.access.closeness, reverse=True))
        return self._covering[namespace]

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[QueueEntry]]:
        """There may be thousands: most mean one namespace."""
        found: dict[str, list[QueueEntry]] = {}
        for entry in self.entries:
            if entry.access.selector is None:
                found.setdefault(entry.access.name, []).append(entry)
        return found

    @cached_property
    def _of_many(self) -> Sequence[QueueEntry]:
        """Those that mean namespaces by their labels, or by how their names begin."""
        return [entry for entry in self.entries if entry.access.selector is not None or entry.access.name.endswith("*")]

    def bar(self, path: Sequence[Queue], namespace: KubernetesNamespace, priority_class: str) -> NamespaceBar | None:
        """Why jobs of a namespace and class may not be in the queue from which `path` leads up; None: they may."""
        listed = self.covering(namespace)
        if not listed:
            return self._bar_of_unlisted(path)
        names = {queue.name for queue in path}
        here = [entry.access for entry in listed if entry.queue in names]
        if not here:
            return NamespaceBar("other-queues", listed[0].access.origin)
        if any(access.priority_classes is None or priority_class in access.priority_classes for access in here):
            return None
        classes = sorted({name for access in here for name in access.priority_classes or ()})
        return NamespaceBar("class", here[0].origin, tuple(classes))

    def default_queue(self, namespace: KubernetesNamespace) -> QueueName | None:
        """The queue of its pods that name none."""
        return next((entry.queue for entry in self.covering(namespace) if entry.access.default), None)

    def local_queue(self, namespace: KubernetesNamespace, name: str) -> QueueName | None:
        """The queue that a namespace calls by a name of its own; None: it calls none so."""
        return next((entry.queue for entry in self.covering(namespace) if name in entry.access.local_queues), None)

    def queue_of(self, job: Job) -> QueueName:
        """The queue that a job's pods mean; "": they name none, and their namespace has none by default."""
        if job.queue_called is None:
            return job.spec.queue
        if job.queue_called:
            return self.local_queue(job.kubernetes_namespace, job.queue_called) or QueueName(job.queue_called)
        return self.default_queue(job.kubernetes_namespace) or QueueName("")

    def _bar_of_unlisted(self, path: Sequence[Queue]) -> NamespaceBar | None:
        if self.unlisted == "refused":
            return NamespaceBar("unlisted", self.unlisted_origin)
        closed = next((queue for queue in path if queue.access.namespaces), None)
        return NamespaceBar("closed-queue", closed.access.namespaces[0].origin) if closed else None


NO_RULES: Final = NamespaceRules()
"""Every namespace may use every queue."""
