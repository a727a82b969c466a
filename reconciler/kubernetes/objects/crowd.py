"""The pods on each node, and what that says to gangs: which pods a term means, which keep others away.

What gangs asked is kept up to date while pods come and go, and the asker is named once the answer is another
(`DependencyIndex`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple

from reconciler.kubernetes.objects.dependency_index import DependencyIndex
from reconciler.kubernetes.objects.membership import GangKey
from reconciler.kubernetes.objects.neighbours import Saying, Sayings, keeps_away, means, saying
from reconciler.kubernetes.objects.wire import Pod, PodTerm
from solver.model.cluster import NodeName

PodKey = tuple[str, str]
Question = (
    tuple[Literal["meant", "away"], Saying]
    | tuple[Literal["plain"], bytes]
    | tuple[Literal["level"], str]
    | tuple[Literal["grounds"]]
    | tuple[Literal["quota"], str]
)
"""What gangs ask: the first two of the crowd, the others of the places (constraints.py)."""


class Repelling(NamedTuple):
    """Pods that pods on nodes keep away."""

    term: PodTerm
    pods: Sequence[Pod]


class Crowd:
    """Every pod that holds something on a node. `asked`: the askers."""

    def __init__(self, asked: DependencyIndex[GangKey, Question]) -> None:
        self._asked = asked
        self._on: dict[NodeName, dict[PodKey, Pod]] = {}
        self._in: dict[str, dict[PodKey, Pod]] = {}
        self._meant: dict[Saying, tuple[PodTerm, Counter[NodeName]]] = {}
        self._meaning = Sayings()
        self._away: dict[Saying, tuple[PodTerm, dict[PodKey, Pod]]] = {}
        self._keeping_away = Sayings()
        self.new_sayings: dict[Saying, PodTerm] = {}
        """What keeps others away since this was emptied last, and did not before: gangs that are meant could not ask about it."""

    def on(self, node: NodeName) -> Collection[Pod]:
        """The pods that hold something on a node, in no order."""
        return self._on.get(node, {}).values()

    def moved(self, before: Pod | None, after: Pod | None) -> set[NodeName]:
        """A pod came, changed, or went; the nodes where that makes a difference to others."""
        was = before if before and before.holds else None
        now = after if after and after.holds else None
        if was and now and was.spec == now.spec and was.metadata.labels == now.metadata.labels:
            self._put(now)
            return set()
        if was:
            self._count(was, -1)
            self._take(was)
        if now:
            self._put(now)
            self._count(now, 1)
        return {NodeName(pod.spec.node_name) for pod in (was, now) if pod}

    def meant(self, term: PodTerm, namespace: str) -> Counter[NodeName]:
        """How many of the pods that a term of a namespace means there are on each node; not to be changed."""
        said = saying(term, namespace)
        self._asked.note(("meant", said))
        if said not in self._meant:
            counts = Counter(
                NodeName(pod.spec.node_name) for pod in self._able(term, namespace) if means(term, namespace, pod)
            )
            self._meant[said] = term, counts
            self._meaning.add(said, term)
        return self._meant[said][1]

    def repelling(self, pod: Pod) -> list[Repelling]:
        """Pods on nodes that keep this pod away."""
        found: list[Repelling] = []
        for said, term in self._keeping_away.meaning(pod):
            self._asked.note(("away", said))
            found.append(Repelling(term, tuple(self._away[said][1].values())))
        return found

    def drop(self, question: Question) -> None:
        """It is not asked any more. Which pods keep others away is kept for as long as pods say it."""
        if question[0] == "meant":
            self._meaning.remove(question[1], self._meant.pop(question[1])[0])

    def _put(self, pod: Pod) -> None:
        self._on.setdefault(NodeName(pod.spec.node_name), {})[pod.key] = pod
        self._in.setdefault(pod.metadata.namespace, {})[pod.key] = pod
        for said, term in _said_by(pod):
            if said not in self._away:
                self._away[said] = term, {}
                self._keeping_away.add(said, term)
                self.new_sayings[said] = term
            self._away[said][1][pod.key] = pod

    def _take(self, pod: Pod) -> None:
        node = NodeName(pod.spec.node_name)
        self._on[node].pop(pod.key)
        if not self._on[node]:
            del self._on[node]
        self._in[pod.metadata.namespace].pop(pod.key)
        for said, term in _said_by(pod):
            pods = self._away[said][1]
            pods.pop(pod.key)
            if not pods:
                self._keeping_away.remove(said, term)
                self.new_sayings.pop(said, None)
                del self._away[said]

    def _count(self, pod: Pod, by: int) -> None:
        for said, _ in self._meaning.meaning(pod):
            self._meant[said][1][NodeName(pod.spec.node_name)] += by
            self._asked.changed(("meant", said))
        for said, _ in _said_by(pod):
            self._asked.changed(("away", said))

    def _able(self, term: PodTerm, namespace: str) -> Iterable[Pod]:
        """The pods of the namespaces that a term is about."""
        namespaces = self._in if term.namespace_selector is not None else (term.namespaces or (namespace,))
        return (pod for name in set(namespaces) for pod in self._in.get(name, {}).values())


def _said_by(pod: Pod) -> Iterable[tuple[Saying, PodTerm]]:
    """Pods that a pod keeps away, each once, though it may say it twice."""
    return {saying(term, pod.metadata.namespace): term for term in keeps_away(pod)}.items()
