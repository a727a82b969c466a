"""Gangs on the test cluster: made, bound, and seen as a pass sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.objects import wire
from reconciler.kubernetes.objects.cluster import KubernetesCluster
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.resource import NODES, PODS
from reconciler.kubernetes.objects.world import cluster_of
from reconciler.protocols.backend import Epoch
from reconciler.protocols.ledger import NotLeaderError
from solver.model.quantities import Instant
from solver.model.workload import JobName
from tests.kubernetes.sessions import a_pod


@dataclass
class Leads:
    """An election that was won, and may be lost."""

    now: bool = True

    def leadership(self) -> Leadership:
        if not self.now:
            raise NotLeaderError("another", Instant(0))
        return Leadership("here", Epoch(3), 0)


class World(NamedTuple):
    """What a mirror holds: gangs by name, pods by namespace and name."""

    cluster: KubernetesCluster
    pods: dict[tuple[str, str], wire.Pod]

    @property
    def gangs(self) -> dict[JobName, PodGang]:
        return {gang.name: gang for gang in self.cluster.gangs}


class _Pods(wire.Wire, frozen=True):
    items: tuple[wire.Pod, ...]


class _Nodes(wire.Wire, frozen=True):
    items: tuple[wire.KubeNode, ...]


async def seen(api: Api, namespace: str) -> World:
    """All nodes, and the pods of a namespace."""
    pods = (await api.get(PODS.path(namespace), _Pods)).items
    nodes = (await api.get(NODES.path(), _Nodes)).items
    return World(cluster_of(nodes, pods), {pod.key: pod for pod in pods})


async def a_gang(
    api: Api,
    namespace: str,
    name: str,
    nodes: Sequence[str],
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> JobName:
    """A gang with a pod for each of these nodes, bound there; to "": it waits."""
    for number, node in enumerate(nodes):
        pod = a_pod(f"{name}-{number}", node)
        said = {"quorate.dev/gang": name, "quorate.dev/gang-size": str(len(nodes)), **(annotations or {})}
        said |= {"quorate.dev/attempt": "1"} if node else {}
        pod["metadata"] |= {"annotations": said, "labels": {"quorate.dev/queue": "q", "gang": name, **(labels or {})}}
        pod["spec"] |= {"terminationGracePeriodSeconds": 30, **(spec or {})}
        await api.create(PODS.path(namespace), pod)
    return JobName(f"{namespace}.gang.{name}")
