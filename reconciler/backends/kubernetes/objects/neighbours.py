"""Which pods a term of affinity means, and who on nodes keeps others away."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from reconciler.backends.kubernetes.objects.selectors import selects
from reconciler.backends.kubernetes.objects.wire import Pod, PodTerm


class Repelling(NamedTuple):
    """Whom pods of a namespace, which are on nodes, keep away."""

    term: PodTerm
    namespace: str
    pods: tuple[Pod, ...]


def repelling(pods: Iterable[Pod]) -> tuple[Repelling, ...]:
    """Who is on a node and keeps others away. Thousands of pods say the same: each term is there once in a namespace."""
    terms: dict[tuple[str, bytes], tuple[PodTerm, list[Pod]]] = {}
    for pod in pods:
        affinity = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity and pod.holds else None
        for term in affinity.required if affinity else ():
            terms.setdefault((pod.metadata.namespace, msgspec.json.encode(term)), (term, []))[1].append(pod)
    return tuple(Repelling(term, namespace, tuple(those)) for (namespace, _), (term, those) in terms.items())


def means(term: PodTerm, namespace: str, other: Pod) -> bool:
    """Whether a term of a pod of a namespace means another pod."""
    everywhere = term.namespace_selector is not None
    named = other.metadata.namespace in (term.namespaces or (namespace,))
    return (everywhere or named) and selects(term.label_selector, other.metadata.labels)
