"""How many volumes nodes can have mounted, and which they have: what a pod takes of that is a resource of its node like others.

A volume is mounted on a node once, however many of its pods have it. A pod that has no node yet counts each of its volumes, though
another may have it mounted where it will be: it may wait for longer than it had to, and never gets a node that can't mount them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from reconciler.kubernetes.objects.storage import CsiNode
from solver.model.amounts import VOLUME_PREFIX

Key = tuple[str, str]
Mountable = Callable[[str, Mapping[str, int]], bool]
"""Is told of a node how many volumes pods may have there in all, by resource; whether that makes a difference."""


class Mount(NamedTuple):
    """A volume of a pod: who mounts it, and which it is among all that this driver mounts."""

    driver: str
    volume: str


class VolumeLimits:
    """Told of nodes, and of which pods are on them with which volumes; tells `mountable` what follows from that."""

    def __init__(self, mountable: Mountable) -> None:
        self._mountable = mountable
        self._limits: dict[str, dict[str, int]] = {}
        self._mounts: dict[str, dict[Key, tuple[Mount, ...]]] = defaultdict(dict)
        self._node_of: dict[Key, str] = {}
        self._limiting: Counter[str] = Counter()
        """By on how many nodes each driver has a limit."""

    @property
    def limiting(self) -> Collection[str]:
        """Drivers that have a limit on some node: volumes of no others are counted."""
        return self._limiting.keys()

    def node(self, before: CsiNode | None, after: CsiNode | None) -> bool:
        """What drivers say of a node; whether that makes a difference."""
        for known, by in ((before, -1), (after, 1)):
            for driver in known.limits if known else ():
                self._limiting[driver] += by
                if not self._limiting[driver]:
                    del self._limiting[driver]
        if before:
            self._limits.pop(before.metadata.name, None)
        if after and after.limits:
            self._limits[after.metadata.name] = after.limits
        known = after or before
        return known is not None and self._tell(known.metadata.name)

    def mounted(self, pod: Key, node: str, mounts: tuple[Mount, ...]) -> bool:
        """A pod has these volumes on this node; "": on none, or none any more. Whether that makes a difference."""
        before = self._node_of.pop(pod, "")
        if before:
            self._mounts[before].pop(pod, None)
            if not self._mounts[before]:
                del self._mounts[before]
        if node and mounts:
            self._node_of[pod] = node
            self._mounts[node][pod] = mounts
        told = [self._tell(name) for name in {before, self._node_of.get(pod, "")} - {""}]
        return any(told)

    def _tell(self, node: str) -> bool:
        """Each pod of a node counts all of its volumes: those that several of them have are there as often as they are counted."""
        counted = [mount for mounts in self._mounts.get(node, {}).values() for mount in mounts]
        again = Counter(mount.driver for mount in counted)
        again.subtract(mount.driver for mount in set(counted))
        limits = self._limits.get(node, {})
        return self._mountable(
            node, {f"{VOLUME_PREFIX}{driver}": limit + again[driver] for driver, limit in limits.items()}
        )
