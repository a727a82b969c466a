"""What pods call their queues: by names of their namespace, LocalQueues of Kueue among them, or by none at all."""

from __future__ import annotations

from typing import Final, NamedTuple

from reconciler.kubernetes.objects.object_kinds import ObjectKind
from reconciler.kubernetes.objects.resource import Resource
from reconciler.kubernetes.objects.wire import Meta, Wire
from solver.model.workload import KubernetesNamespace
from solver.policy.namespace_rules import NO_RULES, NamespaceRules


class LocalName(str):
    """A name in Kueue's label: that of a LocalQueue, where the namespace has one so called, else that of the queue itself."""

    __slots__ = ()


class LocalQueue(NamedTuple):
    """What a LocalQueue says: by `name`, pods of the namespace mean the queue that is called as its ClusterQueue."""

    namespace: str
    name: str
    queue: str


class NamespaceObject(Wire, frozen=True):
    """A Namespace."""

    metadata: Meta

    @property
    def labels(self) -> tuple[str, ...]:
        """As rules for namespaces read them, each as KEY=VALUE, sorted; without its name, which the API server writes there too."""
        labels = self.metadata.labels
        return tuple(sorted(f"{key}={value}" for key, value in labels.items() if key != "kubernetes.io/metadata.name"))


class _LocalQueueSpec(Wire, frozen=True):
    cluster_queue: str = ""


def _local_queue(meta: Meta, spec: _LocalQueueSpec) -> LocalQueue:
    return LocalQueue(meta.namespace, meta.name, spec.cluster_queue)


LOCAL_QUEUES: Final = ObjectKind(
    "LocalQueue",
    tuple(Resource(f"kueue.x-k8s.io/{version}", "localqueues") for version in ("v1beta2", "v1beta1")),
    _LocalQueueSpec,
    _local_queue,
)


class QueueNames:
    """The namespaces and LocalQueues of a cluster while they come and go, and what the policy says of namespaces beside them."""

    def __init__(self) -> None:
        self._rules = NO_RULES
        self._local: dict[tuple[str, str], str] = {}
        self._labels: dict[str, tuple[str, ...]] = {}

    @property
    def local_queues(self) -> tuple[LocalQueue, ...]:
        """All that there are, sorted."""
        return tuple(LocalQueue(*key, self._local[key]) for key in sorted(self._local))

    def declare(self, rules: NamespaceRules) -> bool:
        """What the policy says now; whether pods may mean other queues than before."""
        before, self._rules = self._rules, rules
        return _names_in(before) != _names_in(rules)

    def change(self, before: LocalQueue | None, after: LocalQueue | None) -> bool:
        """A LocalQueue came, changed, or went; whether it makes a difference."""
        if before:
            self._local.pop((before.namespace, before.name), None)
        if after and after.queue:
            self._local[after.namespace, after.name] = after.queue
        return before != after

    def change_namespace(self, before: NamespaceObject | None, after: NamespaceObject | None) -> bool:
        """A Namespace came, changed, or went; whether it has other labels."""
        if before:
            self._labels.pop(before.metadata.name, None)
        if after and after.labels:
            self._labels[after.metadata.name] = after.labels
        return (before.labels if before else ()) != (after.labels if after else ())

    def labels_of(self, namespace: str) -> tuple[str, ...]:
        """Those that a namespace has; none of one that is not there, or while Namespaces may not be read."""
        return self._labels.get(namespace, ())

    def is_of_policy(self, namespace: str, name: str) -> bool:
        """Whether the policy may say which queue pods mean by a LocalName: there is no such LocalQueue."""
        return (namespace, name) not in self._local

    def queue_called(self, namespace: str, name: str) -> str:
        """The queue that pods mean by a LocalName. An object goes before the policy, as its own name does before all others."""
        return self._local.get((namespace, name)) or self._rules.local_queue(self._named(namespace), name) or str(name)

    def default_queue(self, namespace: str) -> str:
        """The queue of pods that name none; "": there is none."""
        return self._rules.default_queue(self._named(namespace)) or ""

    def _named(self, namespace: str) -> KubernetesNamespace:
        return KubernetesNamespace(namespace, self.labels_of(namespace))


def _names_in(rules: NamespaceRules) -> list[tuple[str, str, bool, tuple[str, ...]]]:
    return [(queue, access.title, access.default, access.local_queues) for queue, access in rules.entries]
