"""`quorate run --kubernetes` with pods that ask for devices by ResourceClaims, on a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hack.kubernetes import devices
from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.dra.check import violations
from reconciler.kubernetes.dra.wire import CLAIMS, SLICES, ResourceClaim, ResourceSlice
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import NODES, PODS
from reconciler.kubernetes.objects.wire import read
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.claiming import publish
from tests.kubernetes.kubelet import kubelet
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, gone_afterwards, session
from tests.kubernetes.test_run import H100S, a_worker, bound, running, until_bound
from tests.kubernetes.test_run import POLICY as QUEUES
from tests.kubernetes.test_run_affinity import until_said

pytestmark = REAL

GEOMETRY = {
    "policies/mig.yaml": (
        "apiVersion: quorate.dev/v1\nkind: MigGeometry\nmetadata: {name: all}\nspec: {pool: cut, mode: free}\n"
    ),
    "cluster-state/pool.yaml": (
        "apiVersion: quorate.dev/v1\nkind: NodePool\nmetadata: {name: cut}\n"
        "spec: {gpuType: H100-SXM5-80GB, gpusPerNode: 2, cpu: 64, memory: 256Gi, nodes: {prefix: mig, count: 1}}\n"
    ),
}


POLICY = {**QUEUES, **GEOMETRY}


@asynccontextmanager
async def nodes_with_devices(api: Api, nodes: list[str], gpus: int) -> AsyncIterator[list[dict[str, Any]]]:
    """Ready nodes whose GPUs a driver publishes, whole and in every place of every profile; gone afterwards."""
    slices = [part for node in nodes for part in devices.mig_slices(node, gpus)]
    published = [SLICES.path("", part["metadata"]["name"]) for part in slices]
    there = gone_afterwards(api, *published, *(NODES.path("", node) for node in nodes))
    async with there, kubelet(api, nodes, {"cpu": "64", "memory": "256Gi", "pods": "110"}):
        for node in nodes:
            await api.patch(NODES.path("", node), {"metadata": {"labels": {names.POOL: "cut"}}})
        await publish(api, slices)
        yield slices


@asynccontextmanager
async def nodes_with_a_plugin(api: Api, nodes: list[str]) -> AsyncIterator[None]:
    """Ready nodes whose 2 GPUs a device plugin offers."""
    offered = {"cpu": "64", "memory": "256Gi", "pods": "110", names.GPU: "2"}
    async with gone_afterwards(api, *(NODES.path("", node) for node in nodes)), kubelet(api, nodes, offered):
        for node in nodes:
            await api.patch(NODES.path("", node), H100S)
        yield


def a_pod_with(name: str, claim: str, gang: str, size: int) -> dict[str, Any]:
    pod = a_worker(name, gang, size, gpus=0)
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
    return pod


def whole(name: str, count: int) -> dict[str, Any]:
    exactly = {"deviceClassName": devices.DRIVER, "count": count}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}


async def claims_in(api: Api, namespace: str) -> dict[str, ResourceClaim]:
    found = await api.get(CLAIMS.path(namespace), dict[str, Any])
    claims = [read(one, ResourceClaim) for one in found["items"]]
    return {claim.metadata.name: claim for claim in claims}


async def until_free(api: Api, namespace: str, claim: str) -> None:
    async with asyncio.timeout(SOON_S):
        while (await claims_in(api, namespace))[claim].status.allocation:
            await asyncio.sleep(0.05)


def test_a_gang_gets_whole_gpus_and_gives_them_back(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        nodes = ["gpus0", "gpus1"]
        async with (
            session(shipped) as api,
            nodes_with_devices(api, nodes, 2) as slices,
            running(plane, shipped),
        ):
            space = await a_namespace(api)
            for index in range(2):
                await api.create(CLAIMS.path(space), whole(f"c{index}", 2))
                await api.create(PODS.path(space), a_pod_with(f"w{index}", f"c{index}", "train", 2))
            there = await until_bound(api, space, 2)
            assert sorted(there.values()) == nodes
            claims = await claims_in(api, space)
            assert violations(claims.values(), [read(part, ResourceSlice) for part in slices]) == ()
            for index in range(2):
                held = (await api.get(PODS.path(space, f"w{index}"), dict[str, Any]))["metadata"]["annotations"]
                node = there[f"w{index}"]
                assert sorted(held[names.DEVICES].split(",")) == [f"GPU-{node}-0", f"GPU-{node}-1"]
            # There is nothing left, until one has ended.
            await api.create(CLAIMS.path(space), whole("late", 1))
            await api.create(PODS.path(space), a_pod_with("late", "late", "late", 1))
            await api.patch(PODS.path(space, "w0", "status"), {"status": {"phase": "Succeeded"}})
            await until_free(api, space, "c0")
            there = await until_bound(api, space, 3)
            assert there["late"] == there["w0"]

    asyncio.run(story())


def test_instances_are_cut_out_where_claims_ask_for_them(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with (
            session(shipped) as api,
            nodes_with_devices(api, ["mig0"], 2) as slices,
            running(plane, shipped),
        ):
            space = await a_namespace(api)
            wanted = {"a": "3g.40gb", "b": "3g.40gb", "c": "1g.10gb", "d": "2g.20gb"}
            for name, profile in wanted.items():
                await api.create(CLAIMS.path(space), devices.an_instance(name, profile))
                await api.create(PODS.path(space), a_pod_with(name, name, name, 1))
            await until_bound(api, space, 4)
            claims = await claims_in(api, space)
            assert violations(claims.values(), [read(part, ResourceSlice) for part in slices]) == ()
            # Both GPUs are cut: a whole one has to wait.
            await api.create(CLAIMS.path(space), whole("whole", 1))
            await api.create(PODS.path(space), a_pod_with("whole", "whole", "whole", 1))
            for name in wanted:
                await api.delete(PODS.path(space, name))
            assert "whole" in await until_bound(api, space, 1)
            assert set(await bound(api, space)) == {"whole"}

    asyncio.run(story())


def test_pods_get_gpus_where_they_are_offered_as_they_ask_for_them(shipped: Cluster, plane: ControlPlane) -> None:
    """By a device plugin, or by claims: a kubelet admits no pod that asks for GPUs of a plugin that is not there."""

    async def story() -> None:
        async with session(shipped) as api, nodes_with_devices(api, ["drv0"], 2), running(plane, shipped):
            space = await a_namespace(api)
            await api.create(PODS.path(space), a_worker("plain", "plain", 1))
            said = await until_said(api, space, "plain", "refused")
            assert "0 whose GPUs a device plugin offers" in said
            async with nodes_with_a_plugin(api, ["plug0"]):
                assert await until_bound(api, space, 1) == {"plain": "plug0"}
                await api.create(CLAIMS.path(space), whole("c", 1))
                await api.create(PODS.path(space), a_pod_with("claims", "c", "claims", 1))
                assert (await until_bound(api, space, 2))["claims"] == "drv0"

    asyncio.run(story())


def test_gpus_that_are_offered_in_both_ways_are_there_once(shipped: Cluster, plane: ControlPlane) -> None:
    """By their device plugin: which of them a claim has the plugin does not know."""
    both = devices.mig_slices("both0", 2)

    async def story() -> None:
        async with (
            session(shipped) as api,
            gone_afterwards(api, *(SLICES.path("", one["metadata"]["name"]) for one in both)),
        ):
            await publish(api, both)
            async with nodes_with_a_plugin(api, ["both0"]), running(plane, shipped):
                space = await a_namespace(api)
                for number in range(3):
                    await api.create(PODS.path(space), a_worker(f"w{number}", f"w{number}", 1))
                await api.create(CLAIMS.path(space), whole("c", 1))
                await api.create(PODS.path(space), a_pod_with("claims", "c", "claims", 1))
                assert "0 whose GPUs a driver publishes for claims" in await until_said(api, space, "claims", "refused")
                there = await until_bound(api, space, 2)
                (late,) = {"w0", "w1", "w2"} - set(there)
                await until_said(api, space, late, "waits: ")
                assert await bound(api, space) == there

    asyncio.run(story())
