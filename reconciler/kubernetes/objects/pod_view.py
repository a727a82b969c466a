"""All pods at one time, and those of them that a pass looks at one by one: few of many, so that no pass goes through all."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Final

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.nodes import used_by
from reconciler.kubernetes.objects.wire import Pod
from solver.model.cluster import NodeName

PodKey = tuple[str, str]
"""Namespace and name."""

NOTES = frozenset({names.GANG_PLAN, names.RELEASE, names.EVICT, names.PROMISE})
"""Annotations by which passes remember what was begun: journals of starts, marks of releases, evictions, promises."""


GONE_MAX: Final = 16_384
"""So many pods that are gone are remembered until somebody takes them: who only stands by takes none."""


class PodView(dict[PodKey, Pod]):
    """All pods by namespace and name; not to be changed.

    `noted`: those with any of NOTES, be it believed or not. `claiming`: those that use ResourceClaims. `gpu_nodes`: where pods of
    any owner hold GPUs that a device plugin offers. `over`: those that have ended and had GPUs.
    """

    __slots__ = ("claiming", "gpu_nodes", "noted", "over")

    noted: Mapping[PodKey, Pod]
    claiming: Mapping[PodKey, Pod]
    over: Mapping[PodKey, Pod]
    gpu_nodes: frozenset[NodeName]


class PodIndex:
    """Told of each pod that came (`before` None), changed, or went (`after` None); `view` says how they are now."""

    def __init__(self) -> None:
        self._all: dict[PodKey, Pod] = {}
        self._noted: dict[PodKey, Pod] = {}
        self._claiming: dict[PodKey, Pod] = {}
        self._over: dict[PodKey, Pod] = {}
        self._gone: deque[Pod] = deque(maxlen=GONE_MAX)
        self._on_gpus: Counter[NodeName] = Counter()
        self._view: PodView | None = None

    def change(self, before: Pod | None, after: Pod | None) -> None:
        """A pod came, changed, or went."""
        self._view = None
        if before and (after is None or after.metadata.uid != before.metadata.uid) and _had_gpus(before):
            self._gone.append(before)
        for key in {known.key for known in (before, after) if known}:
            self._forget(key)
        if after:
            self._all[after.key] = after
            if not NOTES.isdisjoint(after.metadata.annotations):
                self._noted[after.key] = after
            if after.spec.resource_claims:
                self._claiming[after.key] = after
            if after.is_over and _had_gpus(after):
                self._over[after.key] = after
            self._count(after, 1)

    def _forget(self, key: PodKey) -> None:
        gone = self._all.pop(key, None)
        if gone:
            self._noted.pop(key, None)
            self._claiming.pop(key, None)
            self._over.pop(key, None)
            self._count(gone, -1)

    def view(self) -> PodView:
        """All pods as they are now; the same object as long as none changes."""
        if self._view is None:
            self._view = PodView(self._all)
            self._view.noted, self._view.claiming = self._noted.copy(), self._claiming.copy()
            self._view.gpu_nodes = frozenset(self._on_gpus)
            self._view.over = self._over.copy()
        return self._view

    def take_gone(self) -> tuple[Pod, ...]:
        """Pods with GPUs that the server has no more, as they were last: those since this was asked before."""
        gone = tuple(self._gone)
        self._gone.clear()
        return gone

    def _count(self, pod: Pod, by: int) -> None:
        if pod.holds and _uses_gpus(pod):
            node = NodeName(pod.spec.node_name)
            self._on_gpus[node] += by
            if not self._on_gpus[node]:
                del self._on_gpus[node]


def view_of(pods: Iterable[Pod]) -> PodView:
    """These pods, whatever order they come in."""
    index = PodIndex()
    for pod in pods:
        index.change(None, pod)
    return index.view()


def as_view(pods: Mapping[PodKey, Pod]) -> PodView:
    """A view as it is; of any other mapping what it would be."""
    return pods if isinstance(pods, PodView) else view_of(pods.values())


def _had_gpus(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and (names.DEVICES in pod.metadata.annotations or _uses_gpus(pod))


def _uses_gpus(pod: Pod) -> bool:
    """A look at the names first: to read quantities takes longer, and most pods of a large cluster ask for none of these."""
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    named = (name for one in containers for name in (*one.resources.requests, *one.resources.limits))
    return any(map(_is_of_gpus, named)) and any(map(_is_of_gpus, used_by(pod)))


def _is_of_gpus(resource: str) -> bool:
    return resource.startswith("nvidia.com/")
