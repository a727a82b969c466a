"""Gangs that run on nodes which are not ready, or under pressure: what they and their pods are told of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from reconciler.kubernetes.objects.jobs import MemberPod, PodGang
from reconciler.kubernetes.objects.node_troubles import Departure, NodeTrouble, comes_of_it, departure_of
from reconciler.kubernetes.objects.wire import Pod
from solver.model.cluster import NodeName
from solver.model.workload import JobName

AFTERWARDS: Final = (
    "a gang that loses a pod by it takes in the one that comes for it, and is released whole where it is not whole in time "
    "(startDeadline)"
)


class GangTrouble(NamedTuple):
    """A gang with pods on such a node: those there, and when the first of them is evicted for it."""

    gang: PodGang
    trouble: NodeTrouble
    pods: tuple[MemberPod, ...]
    leaves: Departure | None

    @property
    def sentence(self) -> str:
        """All that is to be said of it."""
        there = f"{len(self.pods)} of its {len(self.gang.members)} pods"
        end = f"; {AFTERWARDS}" if len(self.gang.members) > 1 else ""
        return f"{self.trouble.words}; {there} run there: {comes_of_it(self.trouble, self.leaves)}{end}"


def gang_troubles(
    gangs: Mapping[JobName, PodGang], pods: Mapping[tuple[str, str], Pod], troubles: Collection[NodeTrouble]
) -> Iterator[GangTrouble]:
    """Of every gang with pods on one of these nodes, sorted by gang and node."""
    if not troubles:
        return
    bad = {trouble.node: trouble for trouble in troubles}
    for name in sorted(gangs):
        gang = gangs[name]
        if gang.job is None or not any(task.node in bad for task in gang.job.placement):
            continue
        there: dict[NodeName, list[tuple[MemberPod, Pod]]] = {}
        for member in gang.members:
            pod = pods.get((member.namespace, member.name))
            if pod is not None and pod.holds and pod.metadata.uid == member.uid and pod.spec.node_name in bad:
                there.setdefault(NodeName(pod.spec.node_name), []).append((member, pod))
        for node in sorted(there):
            members = tuple(member for member, _ in there[node])
            yield GangTrouble(gang, bad[node], members, _first(bad[node], (pod for _, pod in there[node])))


def _first(trouble: NodeTrouble, pods: Iterable[Pod]) -> Departure | None:
    """The earliest of their departures; of pods that all stay, that they do."""
    all_of = [departure_of(trouble, pod.spec.tolerations) for pod in pods]
    known = [one for one in all_of if one is not None]
    times = [one.at for one in known if one.at is not None]
    return Departure(min(times, default=None)) if known else None
