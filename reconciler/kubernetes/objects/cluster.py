"""All objects together as a round's world: nodes as they are for Quorate's pods, and every gang."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from reconciler.kubernetes.objects.held_back import HeldBackObject
from reconciler.kubernetes.objects.jobs import PodGang, is_elastic
from reconciler.kubernetes.objects.node_troubles import NodeTrouble
from reconciler.kubernetes.objects.remarks import Remark
from solver.model.cluster import Node, NodeName
from solver.model.node_sets import NodeSet
from solver.model.workload import Job, JobName

PodKey = tuple[str, str]

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class ClusterIndex:
    """What is looked up in a cluster, kept while nodes and gangs change one by one.

    `gang_of`: by namespace and name of a pod. `open`: gangs that hold nodes and are not all they may be: they start, or may run on
    fewer tasks than they have. `limited`: those that hold nodes for a limited time; `endless`: for as long as they like. `lacking`:
    those with pods that have no node.
    `refused`: those that are refused for what they ask. `incomplete`: those that wait for pods. `outgrown`: those that were told to
    be smaller, and whose pods don't say it yet. `divided`: nodes with instances.
    """

    nodes: dict[NodeName, Node] = field(default_factory=dict)
    gangs: dict[JobName, PodGang] = field(default_factory=dict)
    jobs: dict[JobName, Job] = field(default_factory=dict)
    gang_of: dict[PodKey, JobName] = field(default_factory=dict)
    open: dict[JobName, PodGang] = field(default_factory=dict)
    limited: dict[JobName, PodGang] = field(default_factory=dict)
    endless: dict[JobName, PodGang] = field(default_factory=dict)
    lacking: dict[JobName, PodGang] = field(default_factory=dict)
    refused: dict[JobName, PodGang] = field(default_factory=dict)
    incomplete: dict[JobName, PodGang] = field(default_factory=dict)
    outgrown: dict[JobName, PodGang] = field(default_factory=dict)
    divided: dict[NodeName, Node] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Iterable[Node], gangs: Iterable[PodGang]) -> ClusterIndex:
        """Of these."""
        made = cls()
        for node in nodes:
            made.put_node(node)
        for gang in gangs:
            made.put(gang)
        return made

    def copy(self) -> ClusterIndex:
        """As it is now, whatever changes later."""
        return ClusterIndex(*(getattr(self, name).copy() for name in self.__slots__))

    def put_node(self, node: Node) -> None:
        """It is there, or is so from now on."""
        self.nodes[node.name] = node
        _keep(self.divided, node.name, node, any(gpu.instances for gpu in node.gpus))

    def drop_node(self, name: NodeName) -> None:
        """It is gone."""
        self.nodes.pop(name, None)
        self.divided.pop(name, None)

    def put(self, gang: PodGang) -> None:
        """It is there, or is so from now on."""
        name, job = gang.name, gang.job
        self._forget_members(name)
        self.gangs[name] = gang
        for one in gang.members:
            self.gang_of[one.namespace, one.name] = name
        if job is None:
            self.jobs.pop(name, None)
        else:
            self.jobs[name] = job
        holds = job is not None and bool(job.placement)
        _keep(self.open, name, gang, job is not None and holds and (job.phase == "starting" or is_elastic(job)))
        _keep(self.limited, name, gang, job is not None and holds and job.time_limit is not None)
        _keep(self.endless, name, gang, job is not None and holds and job.time_limit is None)
        _keep(self.lacking, name, gang, gang.bound < len(gang.members))
        _keep(self.refused, name, gang, bool(gang.refusals))
        _keep(self.incomplete, name, gang, gang.missing is not None)
        _keep(self.outgrown, name, gang, bool(gang.outgrown))

    def drop(self, name: JobName) -> None:
        """It is gone."""
        self._forget_members(name)
        some = (self.open, self.limited, self.endless, self.lacking, self.refused, self.incomplete, self.outgrown)
        for known in (self.gangs, *some):
            known.pop(name, None)
        self.jobs.pop(name, None)

    def _forget_members(self, name: JobName) -> None:
        before = self.gangs.get(name)
        for one in before.members if before else ():
            if self.gang_of.get((one.namespace, one.name)) == name:  # it may be another gang's by now
                del self.gang_of[one.namespace, one.name]


@dataclass(frozen=True)
class KubernetesCluster:
    """Nodes and gangs, sorted by name, what is to be said of nodes, and the sets of nodes that gangs are limited to.

    `held_back`: objects whose pods are not made, sorted by namespace and name. `troubles`: nodes that are not ready or
    under pressure, sorted by name. `kept`: the index, where it is at hand.
    """

    nodes: tuple[Node, ...]
    gangs: tuple[PodGang, ...]
    remarks: tuple[tuple[NodeName, Remark], ...]
    node_sets: tuple[NodeSet, ...] = ()
    held_back: tuple[HeldBackObject, ...] = ()
    troubles: tuple[NodeTrouble, ...] = ()
    kept: ClusterIndex | None = field(default=None, compare=False, repr=False)

    @cached_property
    def index(self) -> ClusterIndex:
        """What is looked up in it; not to be changed."""
        return self.kept or ClusterIndex.of(self.nodes, self.gangs)

    @cached_property
    def jobs(self) -> tuple[Job, ...]:
        """Those that a round can be asked about, sorted as the gangs are."""
        return tuple(gang.job for gang in self.gangs if gang.job is not None)

    def with_nodes(self, nodes: Iterable[Node]) -> KubernetesCluster:
        """With these in place of those of their names."""
        index = replace(self.index, nodes=self.index.nodes.copy(), divided=self.index.divided.copy())
        for node in nodes:
            index.put_node(node)
        return replace(self, nodes=tuple(index.nodes.values()), kept=index)

    def in_namespaces(self, namespaces: Iterable[str]) -> Iterator[PodGang]:
        """The gangs of these namespaces, in their order: those of one stand together."""
        for name in sorted(namespaces):
            first, last = (find(self.gangs, name, key=_namespace) for find in (bisect_left, bisect_right))
            yield from self.gangs[first:last]


def in_order(some: Mapping[JobName, PodGang]) -> Iterator[PodGang]:
    """Some of the gangs, in the order of their names."""
    return (some[name] for name in sorted(some))


def _namespace(gang: PodGang) -> str:
    return gang.members[0].namespace


def _keep(known: dict[K, V], name: K, value: V, is_so: bool) -> None:
    if is_so:
        known[name] = value
    else:
        known.pop(name, None)
