"""What nodes have beside GPUs, CPU and memory, asked for by several pods at once: no round binds more of it than there is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects.resource import NODES, PODS
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.kubelet import kubelet
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, a_pod, gone_afterwards, session
from tests.kubernetes.test_run import GPU_NODE, H100S, a_worker, bound, gpu_nodes, running, until_bound
from tests.kubernetes.test_run_affinity import until_said

pytestmark = REAL

POLICY = {
    "policies/queues.yaml": (
        "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: research}\n"
        "spec: {quota: [{gpuType: H100-SXM5-80GB, guaranteed: 64}]}\n"
    ),
}
FOR = "example.com/for"
PORT = 29_500


@asynccontextmanager
async def a_node(api: Api, name: str, offers: dict[str, str]) -> AsyncIterator[None]:
    """A ready node of 4 H100 for pods that name it."""
    path = NODES.path("", name)
    async with gone_afterwards(api, path), kubelet(api, [name], {**GPU_NODE, **offers}):
        await api.patch(path, {"metadata": {"labels": {**H100S["metadata"]["labels"], FOR: name}}})
        yield


async def ask(
    api: Api, space: str, name: str, *, on: str = "", asks: dict[str, str] | None = None, **said: Any
) -> None:
    """A pod of a gang of as many as `size` says, or of its own. `ports`: those that its container names."""
    pod = a_worker(name, said.get("gang", name), said.get("size", 1), gpus=said.get("gpus", 1))
    (container,) = pod["spec"]["containers"]
    for kind in ("requests", "limits"):
        container["resources"][kind] |= asks or {}
    container["ports"] = said.get("ports", [])
    pod["spec"] |= {"nodeSelector": {FOR: on} if on else {}, "hostNetwork": said.get("host_network", False)}
    await api.create(PODS.path(space), pod)


async def until_there(api: Api, space: str, pods: set[str]) -> None:
    async with asyncio.timeout(SOON_S):
        while set(await bound(api, space)) != pods:
            await asyncio.sleep(0.05)


def test_the_last_of_each_resource_is_had_once(shipped: Cluster, plane: ControlPlane) -> None:
    """Three pods want it, and one gets it, in the same round; once that is gone, another one does."""
    port = {"containerPort": 80, "hostPort": 80}

    async def story() -> None:
        async with (
            session(shipped) as api,
            a_node(api, "nic", {"rdma/hca": "1"}),
            a_node(api, "disk", {"ephemeral-storage": "10Gi"}),
            a_node(api, "place", {"pods": "2"}),
            a_node(api, "port", {}),
        ):
            space, theirs = await a_namespace(api), await a_namespace(api)
            daemon = a_pod("daemon", "place")
            daemon["spec"]["schedulerName"] = "default-scheduler"
            await api.create(PODS.path(theirs), daemon)
            for number in range(3):
                await ask(api, space, f"nic-{number}", on="nic", asks={"rdma/hca": "1"})
                await ask(api, space, f"disk-{number}", on="disk", asks={"ephemeral-storage": "6Gi"})
                await ask(api, space, f"place-{number}", on="place")
                await ask(api, space, f"port-{number}", on="port", ports=[port])
            async with running(plane, shipped):
                there = await until_bound(api, space, 4)
                assert sorted(there.values()) == ["disk", "nic", "place", "port"]
                words = {
                    "nic": "1 rdma/hca",
                    "disk": "6Gi ephemeral-storage",
                    "place": "1 place",
                    "port": "port 80 (TCP)",
                }
                waiting = {f"{kind}-{number}" for kind in words for number in range(3)} - there.keys()
                for name in waiting:
                    await until_said(api, space, name, words[name.partition("-")[0]])
                assert await bound(api, space) == there
                for name in there:
                    await api.delete(PODS.path(space, name))
                after = await until_bound(api, space, 4)
                while not after.keys().isdisjoint(there):
                    after = await until_bound(api, space, 4)
                assert sorted(after.values()) == ["disk", "nic", "place", "port"]

    asyncio.run(story())


def test_of_two_gangs_that_want_the_last_network_cards_one_starts_whole(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with (
            session(shipped) as api,
            a_node(api, "left", {"rdma/hca": "1"}),
            a_node(api, "right", {"rdma/hca": "1"}),
        ):
            space = await a_namespace(api)
            for number in range(2):
                for gang in ("one", "two"):
                    await ask(api, space, f"{gang}-{number}", gang=gang, size=2, asks={"rdma/hca": "1"})
            async with running(plane, shipped):
                there = await until_bound(api, space, 2)
                (started,) = {name.partition("-")[0] for name in there}
                (waits,) = {"one", "two"} - {started}
                assert sorted(there.values()) == ["left", "right"]
                await until_said(api, space, f"{waits}-0", "0 rdma/hca free")
                assert await bound(api, space) == there

    asyncio.run(story())


def test_gangs_on_the_network_of_their_nodes_get_nodes_of_their_own(shipped: Cluster, plane: ControlPlane) -> None:
    """The API server writes a hostPort for each containerPort: two that name the same one can't be on one node."""
    port = {"containerPort": PORT}

    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 5, "host") as nodes:
            space, theirs = await a_namespace(api), await a_namespace(api)
            listens = a_pod("listens", nodes[0])
            listens["spec"]["containers"][0]["ports"] = [port]
            listens["spec"] |= {"hostNetwork": True, "schedulerName": "default-scheduler"}
            await api.create(PODS.path(theirs), listens)
            for gang, gpus in (("one", 2), ("two", 2), ("whole", 4)):
                for number in range(2):
                    said: dict[str, Any] = {
                        "gang": gang,
                        "size": 2,
                        "gpus": gpus,
                        "ports": [port],
                        "host_network": True,
                    }
                    await ask(api, space, f"{gang}-{number}", **said)
            written = await api.get(PODS.path(space, "one-0"), dict[str, Any])
            assert written["spec"]["containers"][0]["ports"][0]["hostPort"] == PORT
            async with running(plane, shipped):
                there = await until_bound(api, space, 4)
                assert sorted(there.values()) == sorted(nodes[1:])
                started = {name.partition("-")[0] for name in there}
                (waits,) = {"one", "two", "whole"} - started
                await until_said(api, space, f"{waits}-0", f"port {PORT} (TCP)")
                assert await bound(api, space) == there
                gone = min(started)
                for number in range(2):
                    await api.delete(PODS.path(space, f"{gone}-{number}"))
                others = started - {gone} | {waits}
                await until_there(api, space, {f"{gang}-{number}" for gang in others for number in range(2)})
                assert sorted((await bound(api, space)).values()) == sorted(nodes[1:])

    asyncio.run(story())
