"""All objects of a cluster as they are now, changed one by one, and what they mean together."""

from __future__ import annotations

from reconciler.backends.kubernetes.objects.cluster import Cluster, cluster_of
from reconciler.backends.kubernetes.objects.controllers import Controller
from reconciler.backends.kubernetes.objects.podgroups import Group
from reconciler.backends.kubernetes.objects.wire import Node, Pod


class World:
    """Told of objects that came, changed and went; `cluster()` says what they mean. Nothing is returned twice: see `Cluster`."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._pods: dict[tuple[str, str], Pod] = {}
        self._groups: dict[tuple[str, str, str], Group] = {}
        self._controllers: dict[tuple[str, str, str], Controller] = {}

    def node(self, before: Node | None, after: Node | None) -> None:
        """A node came (`before` None), changed, or went (`after` None)."""
        if before:
            self._nodes.pop(before.metadata.name, None)
        if after:
            self._nodes[after.metadata.name] = after

    def pod(self, before: Pod | None, after: Pod | None) -> None:
        """A pod came, changed, or went."""
        if before:
            self._pods.pop(before.key, None)
        if after:
            self._pods[after.key] = after

    def group(self, before: Group | None, after: Group | None) -> None:
        """A PodGroup came, changed, or went."""
        if before:
            self._groups.pop((before.source, before.namespace, before.name), None)
        if after:
            self._groups[after.source, after.namespace, after.name] = after

    def controller(self, before: Controller | None, after: Controller | None) -> None:
        """An object that makes pods came, changed, or went."""
        if before:
            self._controllers.pop((before.source, before.namespace, before.name), None)
        if after:
            self._controllers[after.source, after.namespace, after.name] = after

    def cluster(self) -> Cluster:
        """What they all mean."""
        return cluster_of(self._nodes.values(), self._pods.values(), self._groups.values(), self._controllers.values())
