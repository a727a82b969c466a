"""The nodes while they and what is on them change: only those are made anew of which something has changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from reconciler.kubernetes.objects.crowd import Crowd, PodKey
from reconciler.kubernetes.objects.device_assignment import Held, devices_on
from reconciler.kubernetes.objects.domains import Position, positions
from reconciler.kubernetes.objects.gangs import LivePods
from reconciler.kubernetes.objects.nodes import (
    PublishedGpus,
    SeenNode,
    offers_any,
    seen_node,
    shape_of,
    solver_node,
    used_by,
)
from reconciler.kubernetes.objects.pods import PodTask
from reconciler.kubernetes.objects.wire import KubeNode
from reconciler.model.declared_nodes import with_declaration
from solver.model.amounts import PLACES, VOLUME_PREFIX, is_port
from solver.model.cluster import GpuType, Node, NodeName


class Renewed(NamedTuple):
    """What has changed: `grounds`, what nodes are by themselves; `pods`, which have other devices; `nodes`, those looked at."""

    grounds: bool
    pods: frozenset[PodKey]
    nodes: Collection[NodeName]


class KubeNodeIndex:
    """Every node: as it is (`seen`) and as the solver is told of it (`nodes`), in no order; `held`: which job has which devices.

    Of resources only those are told that pods of some gang ask for, and places for pods: nodes name a dozen that none does.
    """

    def __init__(self) -> None:
        self.seen: dict[NodeName, SeenNode] = {}
        self.nodes: dict[NodeName, Node] = {}
        self.held: Held = {}
        self._declared: Mapping[NodeName, Node] = {}
        self._published: dict[NodeName, PublishedGpus] = {}
        self._mountable: dict[NodeName, Mapping[str, int]] = {}
        self._positions: dict[NodeName, Position] = {}
        self._tasks: dict[NodeName, dict[PodKey, PodTask]] = {}
        self._held_on: dict[NodeName, Held] = {}
        self._asking: Counter[str] = Counter()
        """By how many gangs each resource is asked for."""
        self._counted: Collection[str] = ()
        self._touched: set[NodeName] = set()
        self._grounds_changed = False

    def declare(self, declared: Mapping[NodeName, Node]) -> None:
        """Git declares these nodes, and no others any more."""
        before, self._declared = self._declared, declared
        for name in before.keys() | declared.keys():
            if name in self.seen and before.get(name) != declared.get(name):
                self.seen[name] = self._seen(self.seen[name].wire)
                self._touched.add(name)
                self._grounds_changed = True

    def publish(self, name: NodeName, gpus: PublishedGpus | None) -> None:
        """A driver publishes these GPUs of a node for claims; None: none any more."""
        if self._published.get(name) == gpus:
            return
        if gpus:
            self._published[name] = gpus
        else:
            del self._published[name]
        if name in self.seen:
            wire = self.seen[name].wire
            self.node(wire, wire)

    def mountable(self, name: NodeName, amounts: Mapping[str, int]) -> bool:
        """How many volumes pods may have on a node, by resource; whether that is another number than before."""
        if self._mountable.get(name, {}) == amounts:
            return False
        self._mountable.pop(name, None)
        if amounts:
            self._mountable[name] = amounts
        self._touched.add(name)
        return True

    def node(self, before: KubeNode | None, after: KubeNode | None) -> None:
        """A node came, changed, or went."""
        was = self.seen.pop(NodeName(before.metadata.name), None) if before else None
        now = self._seen(after) if after else None
        if now:
            self.seen[now.name] = now
        self._grounds_changed |= (was and shape_of(was)) != (now and shape_of(now))
        self._touched |= {known.name for known in (was, now) if known}

    def _seen(self, wire: KubeNode) -> SeenNode:
        name = NodeName(wire.metadata.name)
        return seen_node(wire, _type_of(self._declared.get(name)), self._published.get(name))

    def touch(self, nodes: Iterable[NodeName]) -> None:
        """Other pods are there than before."""
        self._touched |= set(nodes)

    def left(self, gang: LivePods | None) -> None:
        """A gang is gone, or not as it was. Said of all such gangs before any is said to have `joined`: a pod may change gangs."""
        for resource in _asked_by(gang):
            self._asking[resource] -= 1
            if not self._asking[resource]:
                del self._asking[resource]
        for name, task in _tasks_on_nodes(gang):
            del self._tasks[name][task.pod.key]
            if not self._tasks[name]:
                del self._tasks[name]
            self._touched.add(name)

    def joined(self, gang: LivePods | None) -> None:
        """A gang is new, or not as it was."""
        self._asking.update(_asked_by(gang))
        for name, task in _tasks_on_nodes(gang):
            self._tasks.setdefault(name, {})[task.pod.key] = task
            self._touched.add(name)

    def pods_on(self, nodes: Iterable[NodeName]) -> Iterator[PodKey]:
        """Quorate's pods that hold something on these nodes."""
        return (pod for name in nodes for pod in self._tasks.get(name, ()))

    def renew(self, crowd: Crowd) -> Renewed:
        """Make anew what has changed since this was asked last."""
        grounds, self._grounds_changed = self._grounds_changed, False
        if grounds:
            self._find_positions()
        self._count_resources(crowd)
        touched = sorted(self._touched)
        self._touched.clear()
        held_before: Held = {}
        held_now: Held = {}
        for name in touched:
            held_before |= self._held_on.pop(name, {})
            node = self.seen.get(name)
            if node is None:
                self.nodes.pop(name, None)
                continue
            held_now |= self._node(node, crowd)
        pods = frozenset(
            pod for pod in held_before.keys() | held_now.keys() if held_before.get(pod) != held_now.get(pod)
        )
        for pod in held_before.keys() - held_now.keys():
            del self.held[pod]
        self.held |= held_now
        return Renewed(grounds, pods, touched)

    def _count_resources(self, crowd: Crowd) -> None:
        """Once others are asked for than before, the nodes that say something of these are looked at again."""
        counted = sorted({PLACES, *self._asking})
        if counted == self._counted:
            return
        others = set(counted).symmetric_difference(self._counted)
        self._counted = counted
        self._touched.update(name for name, node in self.seen.items() if offers_any(node, others))
        if ports := {name for name in others if is_port(name)}:
            listening = (name for name in self.seen for pod in crowd.on(name) if not ports.isdisjoint(used_by(pod)))
            self._touched.update(listening)
        if any(name.startswith(VOLUME_PREFIX) for name in others):
            self._touched.update(self.seen)

    def _node(self, node: SeenNode, crowd: Crowd) -> Held:
        there = crowd.on(node.name)
        ours = devices_on(node, self._tasks.get(node.name, {}).values())
        others = [pod for pod in there if pod.key not in ours]
        devices = [device for taken in ours.values() for device in taken]
        mountable = self._mountable.get(node.name, {})
        found = solver_node(node, self._positions[node.name], others, devices, self._counted, mountable)
        made = with_declaration(self._declared.get(node.name), found)
        if self.nodes.get(node.name) != made:
            self.nodes[node.name] = made
        if ours:
            self._held_on[node.name] = ours
        return ours

    def _find_positions(self) -> None:
        found = positions({name: node.labels for name, node in self.seen.items()})
        self._touched |= {NodeName(name) for name, at in found.items() if self._positions.get(NodeName(name)) != at}
        self._positions = {NodeName(name): at for name, at in found.items()}


def _type_of(declared: Node | None) -> GpuType | None:
    return declared.gpu_type if declared else None


def _asked_by(gang: LivePods | None) -> Collection[str]:
    """The resources that pods of a gang ask for. Most of its pods ask for the same."""
    return {name for asked in {task.shape.resources for task in gang.tasks} for name in asked} if gang else ()


def _tasks_on_nodes(gang: LivePods | None) -> Iterable[tuple[NodeName, PodTask]]:
    """Those of a gang of which it can be said what it holds, and for whom: any other's are use of their nodes, as others' pods."""
    if gang is None or not (gang.holds and gang.is_counted):
        return ()
    return ((NodeName(task.pod.spec.node_name), task) for task in gang.tasks if task.pod.holds)
