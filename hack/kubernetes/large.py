"""A large cluster's objects: nodes in racks and blocks, DaemonSets, gangs and single pods that run, and some that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import NODES, PODS, Resource

NAMESPACES = Resource("v1", "namespaces")
SYSTEM = "kube-system"
TEAMS = 40
GPUS = 8
GANG = 8
NODES_OF_RACK, RACKS_OF_BLOCK = 16, 32
AT_ONCE = 64
"""Requests that make objects at once."""

Sent = dict[str, Any]
T = TypeVar("T")


class Large(NamedTuple):
    """So many nodes with 8 GPUs each, and pods: a quarter of them of DaemonSets, a fifth waiting, the rest on nodes."""

    nodes: int
    pods: int

    def sent_nodes(self) -> Iterator[Sent]:
        """Each as a kubelet, a device plugin and a labeller would write it."""
        for number in range(self.nodes):
            rack = number // NODES_OF_RACK
            labels = {
                "kubernetes.io/hostname": node_name(number),
                names.PRODUCT: "NVIDIA-H100-80GB-HBM3",
                names.GPU_MEMORY: "81559",
                "cloud.provider.com/topology-rack": f"rack-{rack}",
                "cloud.provider.com/topology-block": f"block-{rack // RACKS_OF_BLOCK}",
            }
            offers = {"cpu": "96", "memory": "1Ti", "pods": "110", names.GPU: str(GPUS)}
            ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
            status = {"allocatable": offers, "capacity": offers, "conditions": ready}
            yield {"metadata": {"name": node_name(number), "labels": labels}, "status": status}

    def sent_pods(self) -> Iterator[Sent]:
        """With their namespaces; those that run are made on their nodes, with the annotations of a binding."""
        of_daemons, waiting = self.pods // 4, self.pods // 5
        for number in range(of_daemons):
            asked = {"cpu": "100m", "memory": "100Mi"}
            yield _pod(f"daemon-{number}", SYSTEM, asked, node_name(number % self.nodes), {}, "default-scheduler")
        on_nodes = min(self.pods - of_daemons - waiting, GPUS * self.nodes)
        for number in range(self.pods - of_daemons):
            gang = number // GANG
            # Of five gangs' worth of pods four are gangs, and one is pods of their own.
            said = {names.GANG: f"gang-{gang}", names.GANG_SIZE: str(GANG)} if gang % 5 else {}
            said[names.QUEUE] = "everybody"
            on = node_name(number // GPUS) if number < on_nodes else ""
            if on:
                said |= {names.DEVICES: f"{on}/{number % GPUS}", names.ATTEMPT: "1"}
            asked = {"cpu": "4", "memory": "32Gi", names.GPU: "1"}
            yield _pod(f"pod-{number}", f"team-{gang % TEAMS}", asked, on, said, names.SCHEDULER)


def node_name(number: int) -> str:
    """Of the node of that number."""
    return f"node-{number:05}"


async def make(api: Api, large: Large) -> None:
    """All of it on an API server without any."""
    for team in range(TEAMS):
        await api.create(NAMESPACES.path(), {"metadata": {"name": f"team-{team}"}})
    await at_once(large.sent_nodes(), lambda sent: api.create(NODES.path(), sent))
    await at_once(large.sent_pods(), lambda sent: api.create(PODS.path(sent["metadata"]["namespace"]), sent))


async def at_once(objects: Iterable[T], make_one: Callable[[T], Awaitable[object]]) -> None:
    """One request for each, AT_ONCE of them under way."""
    left = iter(objects)

    async def makes() -> None:
        for sent in left:
            await make_one(sent)

    async with asyncio.TaskGroup() as makers:
        for _ in range(AT_ONCE):
            makers.create_task(makes())


def _pod(name: str, namespace: str, asked: dict[str, str], on: str, said: dict[str, str], scheduler: str) -> Sent:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}, "annotations": said},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": "none", "resources": {"requests": asked, "limits": asked}}],
            "terminationGracePeriodSeconds": 0,
            **({"nodeName": on} if on else {}),
        },
    }
