"""All objects together as a round's world: nodes as they are for Quorate's pods, and every gang."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from reconciler.backends.kubernetes.objects.constraints import Places
from reconciler.backends.kubernetes.objects.controllers import Controller
from reconciler.backends.kubernetes.objects.domains import Position, positions
from reconciler.backends.kubernetes.objects.gangs import Gathered, gathered
from reconciler.backends.kubernetes.objects.jobs import Gang, gang_of
from reconciler.backends.kubernetes.objects.neighbours import repelling
from reconciler.backends.kubernetes.objects.nodes import SeenNode, seen, solver_node
from reconciler.backends.kubernetes.objects.placed import Held, devices_on
from reconciler.backends.kubernetes.objects.podgroups import Group
from reconciler.backends.kubernetes.objects.pods import PodTask
from reconciler.backends.kubernetes.objects.said import Remark
from reconciler.backends.kubernetes.objects.wire import Node as WireNode
from reconciler.backends.kubernetes.objects.wire import Pod
from solver.world.cluster import Node, NodeName
from solver.world.node_sets import NodeSet
from solver.world.workload import Job


class Cluster(NamedTuple):
    """Nodes and gangs, sorted by name, what is to be said of nodes, and the sets of nodes that gangs are limited to."""

    nodes: tuple[Node, ...]
    gangs: tuple[Gang, ...]
    remarks: tuple[tuple[NodeName, Remark], ...]
    node_sets: tuple[NodeSet, ...] = ()

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Those that a round can be asked about."""
        return tuple(gang.job for gang in self.gangs if gang.job is not None)


def cluster_of(
    nodes: Iterable[WireNode],
    pods: Iterable[Pod],
    groups: Iterable[Group] = (),
    controllers: Iterable[Controller] = (),
) -> Cluster:
    """The world that these objects are, whatever order they come in."""
    everybody = tuple(pods)
    gangs = gathered(
        everybody,
        {(group.source, group.namespace, group.name): group for group in groups},
        {(known.source, known.namespace, known.name): known for known in controllers},
    )
    of_node: dict[NodeName, list[Pod]] = defaultdict(list)
    for pod in everybody:
        if pod.holds:
            of_node[NodeName(pod.spec.node_name)].append(pod)
    found = {NodeName(node.metadata.name): seen(node) for node in nodes}
    found = dict(sorted(found.items()))
    held, known_nodes = _nodes(found, of_node, gangs)
    places = Places(found, known_nodes, of_node)
    keeping_away = repelling(everybody)
    said = tuple(gang_of(gang, places, held, keeping_away) for gang in gangs)
    return Cluster(
        nodes=tuple(known_nodes.values()),
        gangs=said,
        remarks=tuple((name, remark) for name, node in found.items() for remark in node.remarks),
        node_sets=sets_of(said),
    )


def sets_of(gangs: Iterable[Gang]) -> tuple[NodeSet, ...]:
    """The sets of nodes that gangs are limited to, each once, sorted by name."""
    return tuple(
        known for _, known in sorted({known.name: known for gang in gangs for known in gang.node_sets}.items())
    )


def _nodes(
    found: dict[NodeName, SeenNode], of_node: dict[NodeName, list[Pod]], gangs: Iterable[Gathered]
) -> tuple[Held, dict[NodeName, Node]]:
    """Who has which device, and the nodes without what pods of no job use: those of others, and of gangs that are refused."""
    tasks: dict[NodeName, list[PodTask]] = defaultdict(list)
    for gang in gangs:
        if gang.holds and not any(gang.refusals()):
            for task in gang.tasks:
                tasks[NodeName(task.pod.spec.node_name)].append(task)
    where = positions({name: node.labels for name, node in found.items()})
    held: Held = {}
    nodes: dict[NodeName, Node] = {}
    for name, node in found.items():
        ours = devices_on(node, tasks[name])
        others = [pod for pod in of_node[name] if pod.key not in ours]
        devices = [device for taken in ours.values() for device in taken]
        nodes[name] = solver_node(node, where.get(name, Position()), others, devices, len(of_node[name]))
        held |= ours
    return held, nodes
