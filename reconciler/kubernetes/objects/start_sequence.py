"""Gangs as one round puts them on nodes, one after the other: each has to be right beside those before it.

A round goes by the pods that are on nodes when it begins. What it starts together may keep each other away, be spread together or
want each other near. Here each gang asks again what it asked then (`Company`), with the pods before it where they are to be, as
kube-scheduler decides about one pod after the other. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from reconciler.kubernetes.objects.constraints import Places
from reconciler.kubernetes.objects.gang_index import GangIndex
from reconciler.kubernetes.objects.gangs import LivePods
from reconciler.kubernetes.objects.jobs import fewest_of, parts_of
from reconciler.kubernetes.objects.neighbours import Sayings, keeps_away, means, saying
from reconciler.kubernetes.objects.pod_affinity import Company, hard_spreads, wants_near
from reconciler.kubernetes.objects.units import Part
from reconciler.kubernetes.objects.wire import Meta, Pod
from solver.model.cluster import NodeName
from solver.model.workload import JobName

PodKey = tuple[str, str]

_PLANNED: Final = "/planned"
"""After the name of a pod that is where it is to be. No pod has a slash in its name, so that it stands beside the pod as it is."""


class PlannedPods(NamedTuple):
    """Pods of a gang that are to be on nodes."""

    job: JobName
    nodes: Mapping[PodKey, NodeName]


class Clash(NamedTuple):
    """A gang that can't be where it is planned beside others, and why: which one is in its way."""

    job: JobName
    why: str


class StartSequence:
    """From `put` until `end` pods are where they are planned, beside all others. No change of the world may be told meanwhile."""

    def __init__(self, places: Places, gangs: GangIndex) -> None:
        self._places = places
        self._gangs = gangs
        self._planned: dict[JobName, dict[PodKey, Pod]] = defaultdict(dict)
        self._keeping_away = Sayings()

    def put(self, planned: PlannedPods) -> None:
        """These are there for all gangs that come after. A pod that was planned elsewhere is not there any more."""
        gang = self._gang(planned)
        for task in gang.tasks if gang else ():
            if task.pod.key in planned.nodes:
                pod = _on(task.pod, planned.nodes[task.pod.key])
                self._places.crowd.moved(self._planned[planned.job].get(pod.key), pod)
                self._planned[planned.job][pod.key] = pod
                for term in keeps_away(pod):
                    self._keeping_away.add(saying(term, pod.metadata.namespace), term)

    def clash(self, planned: PlannedPods) -> Clash | None:
        """What stands against these; None: nothing, or they are gone."""
        gang = self._gang(planned)
        if gang is None or not self._is_concerned(gang):
            return None
        own = self._planned.get(planned.job, {})
        for pod in own.values():
            self._places.crowd.moved(pod, None)
        try:
            return self._against(gang, planned)
        finally:
            for pod in own.values():
                self._places.crowd.moved(None, pod)

    def end(self) -> None:
        """All is as it was."""
        for pods in self._planned.values():
            for pod in pods.values():
                self._places.crowd.moved(pod, None)
        self._planned.clear()

    def _gang(self, planned: PlannedPods) -> LivePods | None:
        """As its pods are now; None: they are gone, or another gang's."""
        key = next((key for pod in planned.nodes if (key := self._gangs.gang_of.get(pod))), None)
        gang = self._gangs.gangs.get(key) if key else None
        return gang if gang and gang.key.job == planned.job else None

    def _is_concerned(self, gang: LivePods) -> bool:
        """Whether it asks where other pods are, or pods that are planned keep it away. Most gangs do neither."""
        return any(
            keeps_away(pod) or wants_near(pod) or hard_spreads(pod) or any(self._keeping_away.meaning(pod))
            for pod in (task.pod for task in gang.tasks)
        )

    def _against(self, gang: LivePods, planned: PlannedPods) -> Clash | None:
        parts = parts_of(gang.pods)
        least = {part.name: fewest_of(gang, parts, part) for part in parts}
        everybody = [task.pod for task in gang.tasks]
        for part in parts:
            alike = [task.pod for task in part.tasks]
            nodes = frozenset(planned.nodes[pod.key] for pod in alike if pod.key in planned.nodes)
            found = Company(self._places, everybody, alike, sum(least.values()), least[part.name]).apart(nodes)
            if found.nodes != nodes or found.refusals:
                wrong = nodes - found.nodes or nodes
                return self._explained(planned, part, min(wrong)) if nodes else None
        return None

    def _explained(self, planned: PlannedPods, part: Part, node: NodeName) -> Clash:
        """Names the gang that stands in the way: one on the same node where there is one, else the first that has to do with it."""
        pod = next(task.pod for task in part.tasks if planned.nodes.get(task.pod.key) == node)
        for near in (True, False):  # thousands may be planned: those on other nodes only where none is on this one
            for job, others in self._planned.items():
                for other in others.values() if job != planned.job else ():
                    if (other.spec.node_name == node) == near and (reason := next(_between(pod, other), "")):
                        return Clash(planned.job, f"{reason.format(job)}, which starts first")
        return Clash(planned.job, "what it asks of where other pods are does not go with pods that run")


def _between(pod: Pod, other: Pod) -> Iterator[str]:
    """What two pods ask of each other, with a place for the name of the other's gang."""
    at, of = pod.metadata.namespace, other.metadata.namespace
    asked: Iterable[tuple[str, Iterable[tuple[str, bool]]]] = (
        (
            "its required anti-affinity by {} keeps it away from {{}}",
            ((term.topology_key, means(term, at, other)) for term in keeps_away(pod)),
        ),
        (
            "the required anti-affinity by {} of {{}} keeps it away",
            ((term.topology_key, means(term, of, pod)) for term in keeps_away(other)),
        ),
        (
            "its required affinity by {} wants it near {{}}",
            ((term.topology_key, means(term, at, other)) for term in wants_near(pod)),
        ),
        (
            "it is spread by {} together with {{}}",
            ((term.topology_key, means(term, at, other)) for term in hard_spreads(pod)),
        ),
    )
    for words, terms in asked:
        yield from (words.format(key) for key, is_meant in terms if is_meant)


def _on(pod: Pod, node: NodeName) -> Pod:
    meta: Meta = msgspec.structs.replace(pod.metadata, name=f"{pod.metadata.name}{_PLANNED}")
    return msgspec.structs.replace(pod, metadata=meta, spec=msgspec.structs.replace(pod.spec, node_name=node))
