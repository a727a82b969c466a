"""What a ClusterQueue of Kueue counts: of each resource the flavors that it lends, and the nodes that each of them is.

Written against kueue.x-k8s.io/v1beta2 of Kueue 0.17 (clusterqueue_types.go, resourceflavor_types.go).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeVar

from reconciler.kubernetes.objects.resource import Resource
from reconciler.kubernetes.objects.wire import Labels, Meta, Wire


def _resources(plural: str) -> tuple[Resource, ...]:
    return tuple(Resource(f"kueue.x-k8s.io/{version}", plural) for version in ("v1beta2", "v1beta1"))


CLUSTER_QUEUES: Final = _resources("clusterqueues")
RESOURCE_FLAVORS: Final = _resources("resourceflavors")
T = TypeVar("T", "ClusterQueue", "ResourceFlavor")


class _Quotas(Wire, frozen=True):
    name: str


class _Group(Wire, frozen=True):
    covered_resources: tuple[str, ...] = ()
    flavors: tuple[_Quotas, ...] = ()


class _QueueSpec(Wire, frozen=True):
    resource_groups: tuple[_Group, ...] = ()


class ClusterQueue(Wire, frozen=True):
    """A queue, of which only what it counts matters."""

    metadata: Meta
    spec: _QueueSpec = _QueueSpec()


class _FlavorSpec(Wire, frozen=True):
    node_labels: Labels = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)


class ResourceFlavor(Wire, frozen=True):
    """Nodes by their labels."""

    metadata: Meta
    spec: _FlavorSpec = _FlavorSpec()


class Flavors:
    """Told of queues and flavors that came (`before` None), changed, and went (`after` None)."""

    def __init__(self) -> None:
        self._queues: dict[str, ClusterQueue] = {}
        self._flavors: dict[str, ResourceFlavor] = {}

    def queue(self, before: ClusterQueue | None, after: ClusterQueue | None) -> bool:
        """A queue; rounds do not go by it."""
        _put(self._queues, before, after)
        return False

    def flavor(self, before: ResourceFlavor | None, after: ResourceFlavor | None) -> bool:
        """A flavor; rounds do not go by it."""
        _put(self._flavors, before, after)
        return False

    def assigned(self, queue: str, resources: Collection[str], nodes: Iterable[Labels]) -> Mapping[str, str]:
        """The flavor of each of these resources that is counted by a queue, for pods on nodes with these labels.

        Of each group the first that all these nodes are; what is in no group, or is no flavor's, is left out: Kueue counts it not.
        """
        labels = list(nodes)
        known = self._queues.get(queue)
        found: dict[str, str] = {}
        for group in known.spec.resource_groups if known else ():
            flavor = next((one.name for one in group.flavors if self._is_of(one.name, labels)), "")
            found |= {
                resource: flavor for resource in sorted(resources) if flavor and resource in group.covered_resources
            }
        return found

    def _is_of(self, flavor: str, nodes: Iterable[Labels]) -> bool:
        known = self._flavors.get(flavor)
        return known is not None and all(known.spec.node_labels.items() <= labels.items() for labels in nodes)


def _put(known: dict[str, T], before: T | None, after: T | None) -> None:
    if before:
        known.pop(before.metadata.name, None)
    if after:
        known[after.metadata.name] = after
