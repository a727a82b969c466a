"""The kubelet of the tests does what later tests count on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import NotFoundError
from reconciler.kubernetes.objects.resource import NODES, PODS
from tests.kubernetes.kubelet import LEASES, LEASES_IN, kubelet
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, a_pod, session

pytestmark = REAL


def test_bound_pods_run_and_deleted_ones_go(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api, kubelet(api, ["k1", "k2"], {"nvidia.com/gpu": "8"}):
            pods = PODS.path(await a_namespace(api))
            for name in ("bound", "pending"):
                await api.create(pods, a_pod(name))
            target = {"apiVersion": "v1", "kind": "Node", "name": "k2"}
            await api.create(f"{pods}/bound/binding", {"metadata": {"name": "bound"}, "target": target})
            await _until_running(api, f"{pods}/bound")
            assert (await api.get(f"{pods}/pending", dict[str, Any]))["status"]["phase"] == "Pending"
            await api.delete(f"{pods}/bound")
            await _until_gone(api, f"{pods}/bound")
            node = await api.get(NODES.path("", "k1"), dict[str, Any])
            assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
            assert "taints" not in node["spec"]

    asyncio.run(story())


def test_leases_are_renewed(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api, kubelet(api, ["k3"], {}) as there:
            lease = LEASES.path(LEASES_IN, "k3")
            before = (await api.get(lease, dict[str, Any]))["spec"]
            await there.renew()
            after = (await api.get(lease, dict[str, Any]))["spec"]
            assert before["holderIdentity"] == after["holderIdentity"] == "k3"
            assert before["renewTime"] < after["renewTime"]

    asyncio.run(story())


async def _until_gone(api: Api, pod: str) -> None:
    with suppress(NotFoundError):
        async with asyncio.timeout(SOON_S):
            while True:
                await api.get(pod, dict[str, Any])


async def _until_running(api: Api, pod: str) -> None:
    async with asyncio.timeout(SOON_S):
        while (await api.get(pod, dict[str, Any]))["status"]["phase"] != "Running":
            await asyncio.sleep(0.01)
