"""All objects of a cluster while they change one by one, and what they mean together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from reconciler.kubernetes.objects.cluster import ClusterIndex, KubernetesCluster
from reconciler.kubernetes.objects.constraints import Places
from reconciler.kubernetes.objects.controllers import Controller
from reconciler.kubernetes.objects.crowd import Crowd, Question
from reconciler.kubernetes.objects.dependency_index import DependencyIndex
from reconciler.kubernetes.objects.disruption import KubePriorityClass
from reconciler.kubernetes.objects.gang_index import GangIndex
from reconciler.kubernetes.objects.held_back import HeldBackObject, VolcanoJob
from reconciler.kubernetes.objects.inventory import KubeNodeIndex
from reconciler.kubernetes.objects.jobs import PodGang, gang_of
from reconciler.kubernetes.objects.membership import GangKey
from reconciler.kubernetes.objects.neighbours import Saying, means
from reconciler.kubernetes.objects.node_troubles import NodeTrouble, trouble_of
from reconciler.kubernetes.objects.nodes import PublishedGpus
from reconciler.kubernetes.objects.pod_ownership import OURS, PodOwnership
from reconciler.kubernetes.objects.podgroups import Group
from reconciler.kubernetes.objects.queue_names import LocalQueue, NamespaceObject
from reconciler.kubernetes.objects.quotas import ResourceQuota
from reconciler.kubernetes.objects.remarks import Remark
from reconciler.kubernetes.objects.start_sequence import StartSequence
from reconciler.kubernetes.objects.wire import KubeCondition, KubeNode, Meta, Pod, PodTerm
from solver.model.cluster import Node as SolverNode
from solver.model.cluster import NodeName
from solver.model.node_sets import NodeSet
from solver.policy.namespace_rules import NO_RULES, NamespaceRules


@dataclass(slots=True)
class Work:
    """How much has been made anew so far: nodes, gangs gathered from their pods, and gangs that became jobs."""

    nodes: int = 0
    gathered: int = 0
    gangs: int = 0


class ClusterModel:
    """Told of objects that came (`before` None), changed, and went (`after` None); `cluster()` says what they mean.

    What is told in any order, and however often it is asked between, the answer is that of all objects at once. A Node, Gang or Job
    that is as it was is the same object as it was. `whose`: which pods are jobs.
    """

    def __init__(self, whose: PodOwnership = OURS) -> None:
        self._gathering = GangIndex(whose)
        self._inventory = KubeNodeIndex()
        self._asked: DependencyIndex[GangKey, Question] = DependencyIndex()
        self._crowd = Crowd(self._asked)
        self._places = Places(self._inventory.seen, self._inventory.nodes, self._crowd, self._asked)
        self._gangs: dict[GangKey, PodGang] = {}
        self._index = ClusterIndex()
        self._remarks: dict[NodeName, tuple[Remark, ...]] = {}
        self._troubles: dict[NodeName, NodeTrouble] = {}
        self._sets: dict[str, NodeSet] = {}
        self._named: Counter[str] = Counter()
        """By how many gangs each set of nodes is named."""
        self._classes: frozenset[str] = frozenset()
        """Priority classes that the policy has."""
        self._defaults: frozenset[str] = frozenset()
        """Those that the API server gives to pods that name none."""
        self._held_back: dict[tuple[str, str], HeldBackObject] = {}
        self._last: KubernetesCluster | None = None
        self._is_grown = False
        """There are gangs that stand at the end, and not yet in their place."""
        self.work = Work()

    def declare(
        self,
        declared: Iterable[SolverNode],
        classes: Iterable[str] = (),
        namespaces: NamespaceRules = NO_RULES,
    ) -> None:
        """What Git declares now.

        The nodes: what it says of those that are there goes before their labels (`joined`). The priority classes: one that the API
        server gives to pods that name none counts only if it is among them. The namespaces: what pods of theirs call their queues.
        """
        self._gathering.declare(namespaces)
        self._inventory.declare({node.name: node for node in declared})
        self._classes = frozenset(classes)
        self._gathering.stamp(self._defaults - self._classes)

    def priority_class(self, before: KubePriorityClass | None, after: KubePriorityClass | None) -> bool:
        """One of the cluster's own; whether it makes a difference: only what is given to pods that name none does."""
        for known in (before, after):
            self._defaults -= {known.metadata.name} if known else set()
        if after and after.global_default:
            self._defaults |= {after.metadata.name}
        return self._gathering.stamp(self._defaults - self._classes)

    @property
    def local_queues(self) -> tuple[LocalQueue, ...]:
        """Those of Kueue, sorted."""
        return self._gathering.local_queues

    def local_queue(self, before: LocalQueue | None, after: LocalQueue | None) -> bool:
        """A LocalQueue; whether it makes a difference: one does to what pods of its namespace call their queues."""
        return self._gathering.local_queue(before, after)

    def namespace(self, before: NamespaceObject | None, after: NamespaceObject | None) -> bool:
        """A Namespace; whether it makes a difference: its labels do, to which queues its pods may be of."""
        return self._gathering.namespace(before, after)

    def quota(self, before: ResourceQuota | None, after: ResourceQuota | None) -> bool:
        """A ResourceQuota; whether it makes a difference: one does to gangs that wait for pods in its namespace."""
        self._places.quotas.change(before, after)
        known = after or before
        return known is not None and self._asked.changed(("quota", known.metadata.namespace))

    def node(self, before: KubeNode | None, after: KubeNode | None) -> bool:
        """A node; whether it makes a difference."""
        if before and after and _same(before, after):
            return False
        self._inventory.node(before, after)
        return True

    def publish(self, name: NodeName, gpus: PublishedGpus | None) -> None:
        """A driver publishes these GPUs of a node for claims; None: none any more."""
        self._inventory.publish(name, gpus)

    def workload_groups(self, before: tuple[Group, ...] | None, after: tuple[Group, ...] | None) -> bool:
        """The groups of a Workload of Kubernetes 1.35; whether they make a difference."""
        was, now = ({one.name: one for one in known or ()} for known in (before, after))
        told = [self.group(was.get(name), now.get(name)) for name in sorted(was.keys() | now.keys())]
        return any(told)

    def mountable(self, name: str, amounts: Mapping[str, int]) -> bool:
        """How many volumes pods may have on a node, by resource; whether it makes a difference. Of what is not said, any number."""
        return self._inventory.mountable(NodeName(name), amounts)

    def pod(self, before: Pod | None, after: Pod | None) -> bool:
        """A pod; whether it makes a difference. Of those that are no jobs only what they use and which pods they keep away does."""
        touched = self._crowd.moved(before, after)
        self._inventory.touch(touched)
        is_ours = self._gathering.pod(before, after)
        return bool(touched) or (is_ours and not (before and after and _says_the_same(before, after)))

    def group(self, before: Group | None, after: Group | None) -> bool:
        """A PodGroup; whether it makes a difference."""
        self._gathering.group(before, after)
        return before != after

    def admitted(self, key: GangKey, since: str | None) -> bool:
        """The pods of a gang are admitted together; whether that was otherwise."""
        return self._gathering.admitted(key, since)

    def controller(self, before: Controller | None, after: Controller | None) -> bool:
        """An object that makes pods; whether it makes a difference."""
        self._gathering.controller(before, after)
        return before != after

    def volcano_job(self, before: VolcanoJob | None, after: VolcanoJob | None) -> bool:
        """A vcjob; whether it makes a difference: it does to what is said of it, and to no round."""
        was, now = (known.held_back if known else None for known in (before, after))
        for known in (was, now):
            if known:
                self._held_back.pop((known.namespace, known.name), None)
        if now:
            self._held_back[now.namespace, now.name] = now
        if was != now:
            self._last = None
        return was != now

    def cluster(self) -> KubernetesCluster:
        """What they all mean now; the same object as long as that does not change."""
        for key in self._renewed():
            if key in self._gathering.gangs:
                self._derive(key)
            else:
                self._drop(key)
        if self._is_grown:
            self._is_grown = False
            self._gangs = dict(sorted(self._gangs.items()))
            self._index.gangs = dict(sorted(self._index.gangs.items()))
        if self._last is None:
            self._last = KubernetesCluster(
                nodes=tuple(self._index.nodes.values()),
                gangs=tuple(self._gangs.values()),
                remarks=tuple((name, remark) for name in sorted(self._remarks) for remark in self._remarks[name]),
                node_sets=tuple(self._sets[name] for name in sorted(self._sets)),
                held_back=tuple(self._held_back[key] for key in sorted(self._held_back)),
                troubles=tuple(self._troubles[name] for name in sorted(self._troubles)),
                kept=self._index.copy(),
            )
        return self._last

    @contextmanager
    def start_sequence(self) -> Iterator[StartSequence]:
        """To put gangs on nodes one after the other, on trial; the world is as it was once the block ends."""
        sequence = StartSequence(self._places, self._gathering)
        try:
            yield sequence
        finally:
            sequence.end()

    def _renewed(self) -> set[GangKey]:
        """Everything but the gangs is as it is now; those that may mean something else than before."""
        changed = self._gathering.renewed()
        for gang in changed.values():
            self._inventory.left(gang.before)
        for gang in changed.values():
            self._inventory.joined(gang.after)
        for question in self._asked.dropped():
            self._crowd.drop(question)
            self._places.drop(question)
        renewed = self._inventory.renew(self._crowd)
        self._keep_nodes(renewed.nodes)
        pods = set(renewed.pods)
        if renewed.grounds:
            self._places = self._places.anew()
            pods.update(self._inventory.pods_on(renewed.nodes))
        meant = self._meant_by(self._crowd.new_sayings)
        self._crowd.new_sayings.clear()
        self.work.gathered += len(changed)
        self.work.nodes += len(renewed.nodes)
        gang_of_pod = self._gathering.gang_of
        there = {gang_of_pod[pod] for pod in pods if pod in gang_of_pod}
        return changed.keys() | there | meant | self._asked.stale

    def _derive(self, key: GangKey) -> None:
        with self._asked.by(key):
            found = gang_of(self._gathering.gangs[key], self._places, self._inventory.held)
        self.work.gangs += 1
        before = self._gangs.get(key)
        if before == found:
            return
        made = found if before is None or before.job != found.job else found._replace(job=before.job)
        self._gangs[key] = made
        self._is_grown |= before is None
        self._count_sets(before, made)
        self._index.put(made)
        self._last = None

    def _drop(self, key: GangKey) -> None:
        gone = self._gangs.pop(key, None)
        if gone:
            self._asked.leave(key)
            self._count_sets(gone, None)
            self._index.drop(gone.name)
            self._last = None

    def _count_sets(self, before: PodGang | None, after: PodGang | None) -> None:
        for known in after.node_sets if after else ():
            self._sets[known.name] = known
            self._named[known.name] += 1
        for known in before.node_sets if before else ():
            self._named[known.name] -= 1
            if not self._named[known.name]:
                del self._named[known.name], self._sets[known.name]

    def _keep_nodes(self, names: Iterable[NodeName]) -> None:
        nodes, seen, index = self._inventory.nodes, self._inventory.seen, self._index
        is_grown = False
        for name in names:
            node = nodes.get(name)
            remarks = seen[name].remarks if name in seen else ()
            self._keep_trouble(name, trouble_of(seen[name].wire) if name in seen else None)
            if node is index.nodes.get(name) and remarks == self._remarks.get(name, ()):
                continue
            self._last = None
            self._remarks.pop(name, None)
            if remarks:
                self._remarks[name] = remarks
            if node is None:
                index.drop_node(name)
            else:
                is_grown |= name not in index.nodes
                index.put_node(node)
        if is_grown:
            index.nodes = dict(sorted(index.nodes.items()))

    def _keep_trouble(self, name: NodeName, trouble: NodeTrouble | None) -> None:
        if trouble == self._troubles.get(name):
            return
        self._last = None
        self._troubles.pop(name, None)
        if trouble is not None:
            self._troubles[name] = trouble

    def _meant_by(self, sayings: dict[Saying, PodTerm]) -> set[GangKey]:
        """The gangs with pods that these keep away."""
        if not sayings:
            return set()
        return {
            key
            for key, gang in self._gathering.gangs.items()
            for said, term in sayings.items()
            if any(means(term, said.namespace, task.pod) for task in gang.tasks)
        }


def cluster_of(
    nodes: Iterable[KubeNode],
    pods: Iterable[Pod],
    groups: Iterable[Group] = (),
    controllers: Iterable[Controller] = (),
    declared: Iterable[SolverNode] = (),
    whose: PodOwnership = OURS,
    priority_classes: Iterable[KubePriorityClass] = (),
    classes: Iterable[str] = (),
    namespaces: NamespaceRules = NO_RULES,
    local_queues: Iterable[LocalQueue] = (),
    labelled: Iterable[NamespaceObject] = (),
) -> KubernetesCluster:
    """The world that these objects are, whatever order they come in. `declared`, `classes`, `namespaces`: what Git declares.

    `labelled`: the Namespaces.
    """
    world = ClusterModel(whose)
    world.declare(declared, classes, namespaces)
    for local in local_queues:
        world.local_queue(None, local)
    for namespace in labelled:
        world.namespace(None, namespace)
    for known in priority_classes:
        world.priority_class(None, known)
    for node in nodes:
        world.node(None, node)
    for pod in pods:
        world.pod(None, pod)
    for group in groups:
        world.group(None, group)
    for controller in controllers:
        world.controller(None, controller)
    return world.cluster()


def _same(one: KubeNode, other: KubeNode) -> bool:
    """Nothing differs but the revision, which is another also when something was written that is not read here."""
    return bool(msgspec.structs.replace(one, metadata=_at_revision(one, other)) == other)


def _says_the_same(one: Pod, other: Pod) -> bool:
    """As `_same`; nor does it count why a pod waits, which rounds said themselves."""
    status = msgspec.structs.replace(one.status, conditions=_of_others(one))
    fresh = msgspec.structs.replace(other, status=msgspec.structs.replace(other.status, conditions=_of_others(other)))
    return bool(msgspec.structs.replace(one, metadata=_at_revision(one, other), status=status) == fresh)


def _at_revision(one: KubeNode | Pod, other: KubeNode | Pod) -> Meta:
    return msgspec.structs.replace(one.metadata, resource_version=other.metadata.resource_version)


def _of_others(pod: Pod) -> tuple[KubeCondition, ...]:
    return tuple(one for one in pod.status.conditions if one.type != "PodScheduled" or one.status == "True")
