"""Nodes that do not work as they should for what runs there, and what comes of that for its pods. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from reconciler.kubernetes.objects.node_signs import condition_words, instant_of, since_of
from reconciler.kubernetes.objects.selectors import tolerates
from reconciler.kubernetes.objects.wire import KubeCondition, KubeNode, Taint, Toleration
from solver.model.cluster import NodeName
from solver.model.quantities import Instant

_PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
_TOLD: Final = {
    "MemoryPressure": "its kubelet evicts pods until there is memory again, those first that use more than they ask for",
    "DiskPressure": "its kubelet evicts pods until there is room on its disk again",
    "PIDPressure": "its kubelet evicts pods until there are process ids again",
    "NetworkUnavailable": "its network is not set up, so that tasks there may not reach others",
}
"""What a condition means for pods that run there (kubernetes.io, "Node-pressure Eviction")."""


class NodeTrouble(NamedTuple):
    """A node that is not ready (`conditions` begin with that) or under pressure. `taints`: those of effect NoExecute.

    `is_away`: it is not ready.
    """

    node: NodeName
    conditions: tuple[KubeCondition, ...]
    taints: tuple[Taint, ...]
    is_away: bool

    @property
    def words(self) -> str:
        """`node n1 is not ready: its condition Ready is Unknown since 2026-11-20T08:00:00Z (NodeStatusUnknown)`."""
        state = "is not ready" if self.is_away else "is under pressure"
        said = ", ".join(map(condition_words, self.conditions)) or "it has no condition Ready"
        return f"node {self.node} {state}: {said}"


class Departure(NamedTuple):
    """When Kubernetes evicts a pod by a taint of its node; `at` None: never, since the pod tolerates it for as long as it lasts."""

    at: Instant | None


def trouble_of(node: KubeNode) -> NodeTrouble | None:
    """What of a node is to be told to what runs there; None: nothing."""
    known = {one.type: one for one in node.status.conditions}
    ready = known.get("Ready")
    is_away = ready is None or ready.status != "True"
    bad = [known[kind] for kind in _PRESSURES if kind in known and known[kind].status == "True"]
    if not (is_away or bad):
        return None
    first = [ready] if is_away and ready is not None else []
    taints = tuple(taint for taint in node.spec.taints if taint.effect == "NoExecute")
    return NodeTrouble(NodeName(node.metadata.name), (*first, *bad), taints, is_away)


def departure_of(trouble: NodeTrouble, tolerations: Iterable[Toleration]) -> Departure | None:
    """When a pod with these tolerations is evicted for the node's taints; None: no taint of the node evicts anything yet.

    Of several taints the first to evict counts; of several tolerations that tolerate one, the shortest, as Kubernetes has it.
    """
    if not trouble.taints:
        return None
    known, ends = tuple(tolerations), list[Instant]()
    for taint in trouble.taints:
        fitting = [one for one in known if tolerates(one, taint)]
        spans_s = [one.toleration_seconds for one in fitting if one.toleration_seconds is not None]
        since = instant_of(taint.time_added) or _since(trouble)
        if since is not None and (spans_s or not fitting):
            ends.append(since.after(1_000 * max(0, min(spans_s, default=0))))
    return Departure(min(ends, default=None))


def comes_of_it(trouble: NodeTrouble, leaves: Departure | None) -> str:
    """What follows for a pod there, as a clause."""
    if not trouble.is_away:
        return "; ".join(dict.fromkeys(_TOLD[one.type] for one in trouble.conditions))
    if leaves is None:
        return "Kubernetes evicts what runs there once it has tainted the node and that is tolerated no longer"
    if leaves.at is None:
        return "what runs there tolerates that, and stays until the node is back or is deleted"
    return f"Kubernetes evicts what runs there at {leaves.at}, when that is tolerated no longer"


def _since(trouble: NodeTrouble) -> Instant | None:
    return since_of(trouble.conditions[0]) if trouble.conditions else None
