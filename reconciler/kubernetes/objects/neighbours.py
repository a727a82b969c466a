"""Which pods a term of affinity means, and terms by the namespaces whose pods they may mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from reconciler.kubernetes.objects.selectors import selects
from reconciler.kubernetes.objects.wire import Pod, PodTerm


class Saying(NamedTuple):
    """A term as pods of a namespace say it: thousands say the same. `written`: the term, as what makes it the same."""

    namespace: str
    written: bytes


def saying(term: PodTerm, namespace: str) -> Saying:
    """The term as pods of a namespace say it."""
    return Saying(namespace, msgspec.json.encode(term))


def keeps_away(pod: Pod) -> tuple[PodTerm, ...]:
    """Pods that a pod on a node keeps away."""
    affinity = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None
    return affinity.required if affinity else ()


def means(term: PodTerm, namespace: str, other: Pod) -> bool:
    """Whether a term of a pod of a namespace means another pod."""
    everywhere = term.namespace_selector is not None
    named = other.metadata.namespace in (term.namespaces or (namespace,))
    return (everywhere or named) and selects(term.label_selector, other.metadata.labels)


class Sayings:
    """Terms that are asked about again and again, found by the namespace of the pods that they may mean."""

    def __init__(self) -> None:
        self._everywhere: dict[Saying, PodTerm] = {}
        self._in: dict[str, dict[Saying, PodTerm]] = {}

    def add(self, said: Saying, term: PodTerm) -> None:
        """One more."""
        for where in self._places(said, term):
            where[said] = term

    def remove(self, said: Saying, term: PodTerm) -> None:
        """One less."""
        for where in self._places(said, term):
            where.pop(said, None)

    def meaning(self, pod: Pod) -> Iterator[tuple[Saying, PodTerm]]:
        """Those that mean a pod."""
        for where in (self._everywhere, self._in.get(pod.metadata.namespace, {})):
            for said, term in where.items():
                if means(term, said.namespace, pod):
                    yield said, term

    def _places(self, said: Saying, term: PodTerm) -> Iterator[dict[Saying, PodTerm]]:
        if term.namespace_selector is not None:
            yield self._everywhere
            return
        for namespace in term.namespaces or (said.namespace,):
            yield self._in.setdefault(namespace, {})
