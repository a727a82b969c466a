"""Whether a selector means a pod, and whether a pod may be on a node: labels, node affinity, taints.

As the scheduler decides it: kubernetes.io, "Assigning Pods to Nodes" and "Taints and Tolerations".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from reconciler.kubernetes.objects.names import ONLY
from reconciler.kubernetes.objects.wire import (
    KubeNode,
    LabelSelector,
    NodeLimit,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    SelectorRequirement,
    Taint,
    Toleration,
)

CONDITION_TAINTS: Final = frozenset(
    f"node.kubernetes.io/{condition}"
    for condition in (
        "not-ready",
        "unreachable",
        "unschedulable",
        "memory-pressure",
        "disk-pressure",
        "pid-pressure",
        "network-unavailable",
    )
)
"""They say how a node is at the moment: it is closed for new work, whatever tolerates them."""


def holds(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Whether labels meet a requirement; an operator that is not known is met by none."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector means a pod with these labels: an empty one means all, none at all means none."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        holds(requirement, labels) for requirement in selector.match_expressions
    )


def meets(term: NodeSelectorTerm, node: KubeNode) -> bool:
    """Whether a node meets a term; one that requires nothing is met by none."""
    fields = {"metadata.name": node.metadata.name}
    return bool(term.match_expressions or term.match_fields) and (
        all(holds(requirement, node.metadata.labels) for requirement in term.match_expressions)
        and all(holds(requirement, fields) for requirement in term.match_fields)
    )


def may_be_on(spec: PodSpec, node: KubeNode) -> bool:
    """Whether a node is one of those that `nodeSelector` and the required node affinity name."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    required = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
    return required is None or any(meets(term, node) for term in required.node_selector_terms)


def limited_to(pod: Pod, limit: NodeLimit) -> Pod:
    """The pod as if it could be on these nodes alone, of those that it may be on."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, limits=(*pod.spec.limits, limit)))


def tolerates_all(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Whether every hard taint is tolerated. PreferNoSchedule is none; that a node is Quorate's only keeps away pods of others."""
    known = tuple(tolerations)
    soft = CONDITION_TAINTS | {ONLY}
    hard = (taint for taint in taints if taint.effect != "PreferNoSchedule" and taint.key not in soft)
    return all(any(tolerates(toleration, taint) for toleration in known) for taint in hard)


def disliked(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> int:
    """How many soft taints (PreferNoSchedule) are not tolerated."""
    known = tuple(tolerations)
    soft = (taint for taint in taints if taint.effect == "PreferNoSchedule")
    return sum(not any(tolerates(toleration, taint) for toleration in known) for taint in soft)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a pod with this toleration puts up with the taint, for however long."""
    if toleration.effect not in ("", taint.effect) or (toleration.key and toleration.key != taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.operator in ("", "Equal") and toleration.value == taint.value


def _compares(requirement: SelectorRequirement, value: str | None) -> bool:
    try:
        there, limit = int(value or ""), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return there > limit if requirement.operator == "Gt" else there < limit
