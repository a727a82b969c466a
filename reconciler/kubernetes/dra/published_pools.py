"""The pools that drivers publish, slice by slice, and what of them each node can use: only what has changed is made anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from reconciler.kubernetes.dra.pools import Device, DeviceId, Pool, pool_of
from reconciler.kubernetes.dra.prospects import NodeDevices, node_devices
from reconciler.kubernetes.dra.wire import ResourceSlice
from reconciler.kubernetes.objects.wire import KubeNode

_PoolKey = tuple[str, str]


class PublishedPools:
    """Told of slices and nodes that came (`before` None), changed, and went (`after` None)."""

    def __init__(self) -> None:
        self._slices: dict[_PoolKey, dict[str, ResourceSlice]] = defaultdict(dict)
        self._pools: dict[_PoolKey, Pool] = {}
        self._stale: set[_PoolKey] = set()
        self._of_node: dict[str, set[_PoolKey]] = defaultdict(set)
        self._anywhere: set[_PoolKey] = set()
        self._nodes: dict[str, KubeNode] = {}
        self._there: dict[str, NodeDevices] = {}
        self._version = 0

    def slice(self, before: ResourceSlice | None, after: ResourceSlice | None) -> None:
        """A slice; one that moves to another pool counts for both."""
        if before:
            self._slices[_key(before)].pop(before.metadata.name, None)
            self._stale.add(_key(before))
        if after:
            self._slices[_key(after)][after.metadata.name] = after
            self._stale.add(_key(after))

    def node(self, before: KubeNode | None, after: KubeNode | None) -> None:
        """A node; only its labels make a difference."""
        if before and after and before.metadata.labels == after.metadata.labels:
            return
        if before:
            self._nodes.pop(before.metadata.name, None)
            self._there.pop(before.metadata.name, None)
        if after:
            self._nodes[after.metadata.name] = after

    @property
    def version(self) -> int:
        """Another number once pools are not as they were."""
        self._renew()
        return self._version

    @property
    def pools(self) -> tuple[Pool, ...]:
        """All pools, sorted by driver and name."""
        self._renew()
        return tuple(self._pools[key] for key in sorted(self._pools))

    @property
    def nodes(self) -> tuple[KubeNode, ...]:
        """All nodes, sorted by name."""
        return tuple(self._nodes[name] for name in sorted(self._nodes))

    def device(self, device: DeviceId) -> Device | None:
        """What a device is; None for one that is not published any more."""
        self._renew()
        pool = self._pools.get((device.driver, device.pool))
        return next((one for one in pool.devices if one.id == device), None) if pool else None

    def on(self, node: str) -> NodeDevices | None:
        """What a node can use, the same object for as long as it is the same; None for a node that is not there."""
        self._renew()
        if node not in self._nodes:
            return None
        if node not in self._there:
            keys = sorted(self._of_node.get(node, set()) | self._anywhere)
            self._there[node] = node_devices(self._nodes[node], [self._pools[key] for key in keys])
        return self._there[node]

    def _renew(self) -> None:
        self._version += bool(self._stale)
        for key in sorted(self._stale):
            self._forget(key)
            if parts := self._slices[key]:
                pool = self._pools[key] = pool_of(*key, list(parts.values()))
                for node in _named(pool):
                    self._of_node[node].add(key)
                    self._there.pop(node, None)
                if any(not place.name for place in pool.places):
                    self._anywhere.add(key)
                    self._there.clear()
        self._stale.clear()

    def _forget(self, key: _PoolKey) -> None:
        pool = self._pools.pop(key, None)
        for node in _named(pool) if pool else ():
            self._of_node[node].discard(key)
            self._there.pop(node, None)
        if key in self._anywhere:
            self._anywhere.discard(key)
            self._there.clear()


def _key(part: ResourceSlice) -> _PoolKey:
    return part.spec.driver, part.spec.pool.name


def _named(pool: Pool) -> Iterator[str]:
    return (place.name for place in pool.places if place.name)
