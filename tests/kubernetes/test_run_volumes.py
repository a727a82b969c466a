"""Volumes of gangs on a real API server: made for the nodes that pods will have, and mounted where they can be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.control.cluster_cache import CSI_NODES, STORAGE_CLASSES, VOLUMES
from reconciler.kubernetes.objects.resource import NODES, PODS, VOLUME_CLAIMS
from reconciler.kubernetes.objects.storage import BIND_COMPLETED, SELECTED_NODE
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, gone_afterwards, session
from tests.kubernetes.test_run import POLICY as QUEUES
from tests.kubernetes.test_run import a_worker, bound, gpu_nodes, running, until_bound
from tests.kubernetes.test_run_affinity import until_said

pytestmark = REAL

HOST = "kubernetes.io/hostname"


POLICY = QUEUES


@asynccontextmanager
async def storage(api: Api, *volumes: str) -> AsyncIterator[None]:
    """A class whose volumes are made for a node; it and these volumes are gone afterwards."""
    made_by = {
        "metadata": {"name": "local"},
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    paths = [STORAGE_CLASSES.path("", "local"), *(VOLUMES.path("", volume) for volume in volumes)]
    async with gone_afterwards(api, *paths):
        await api.create(STORAGE_CLASSES.path(), made_by)
        yield


async def label(api: Api, nodes: list[str]) -> None:
    """As kubelets label their nodes."""
    for node in nodes:
        await api.patch(NODES.path("", node), {"metadata": {"labels": {HOST: node}}})


async def a_claim(api: Api, space: str, name: str) -> None:
    spec = {
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    await api.create(VOLUME_CLAIMS.path(space), {"metadata": {"name": name}, "spec": spec})


async def a_mounting_worker(api: Api, space: str, name: str, gang: str, size: int, claim: str) -> None:
    pod = a_worker(name, gang, size, gpus=4)
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    await api.create(PODS.path(space), pod)


async def provision(api: Api, space: str, claim: str, volume: str, node: str) -> None:
    """What a provisioner and the controller of volumes do for a claim: a volume for a node, by its label, bound to it."""
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "claimRef": {"namespace": space, "name": claim},
        "csi": {"driver": "csi.example.com", "volumeHandle": volume},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    await api.create(VOLUMES.path(), {"metadata": {"name": volume}, "spec": spec})
    at = VOLUME_CLAIMS.path(space, claim)
    await api.patch(at, {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": volume}})
    await api.patch(VOLUME_CLAIMS.path(space, claim, "status"), {"status": {"phase": "Bound"}})


async def selected(api: Api, space: str, claim: str) -> str:
    """The node that the claim says, once it says one."""
    async with asyncio.timeout(SOON_S):
        while True:
            found = await api.get(VOLUME_CLAIMS.path(space, claim), dict[str, Any])
            if node := found["metadata"].get("annotations", {}).get(SELECTED_NODE):
                return str(node)
            await asyncio.sleep(0.05)


def test_volumes_are_made_for_the_nodes_of_a_gang_before_any_of_it_is_bound(
    shipped: Cluster, plane: ControlPlane
) -> None:
    async def story() -> None:
        async with (
            session(shipped) as api,
            gpu_nodes(api, 2, "volume") as nodes,
            storage(api, "volume-0", "volume-1"),
            running(plane, shipped),
        ):
            await label(api, nodes)
            space = await a_namespace(api)
            for number in range(2):
                await a_claim(api, space, f"data-{number}")
                await a_mounting_worker(api, space, f"w{number}", "train", 2, f"data-{number}")
            chosen = [await selected(api, space, f"data-{number}") for number in range(2)]
            assert sorted(chosen) == sorted(nodes)
            # One that could not be made for its node is given back by its provisioner, and may be made for another.
            given_back = {"metadata": {"annotations": {SELECTED_NODE: None}}}
            await api.patch(VOLUME_CLAIMS.path(space, "data-1"), given_back)
            chosen[1] = await selected(api, space, "data-1")
            await provision(api, space, "data-0", "volume-0", chosen[0])
            assert await bound(api, space) == {}
            await provision(api, space, "data-1", "volume-1", chosen[1])
            assert await until_bound(api, space, 2) == {"w0": chosen[0], "w1": chosen[1]}

    asyncio.run(story())


def test_a_pod_goes_where_its_volume_is(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with (
            session(shipped) as api,
            gpu_nodes(api, 3, "mount") as nodes,
            storage(api, "mount-0"),
            running(plane, shipped),
        ):
            await label(api, nodes)
            space = await a_namespace(api)
            await a_mounting_worker(api, space, "w0", "train", 1, "data")
            await a_claim(api, space, "data")
            await provision(api, space, "data", "mount-0", nodes[2])
            assert await until_bound(api, space, 1) == {"w0": nodes[2]}

    asyncio.run(story())


async def a_bound_claim(api: Api, space: str, name: str, mode: str = "ReadWriteOnce") -> None:
    """With a volume of its own, which any node can mount."""
    common = {"accessModes": [mode], "storageClassName": "local"}
    wanted = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": f"{space}-{name}"}
    notes = {"annotations": {BIND_COMPLETED: "yes"}}
    await api.create(VOLUME_CLAIMS.path(space), {"metadata": {"name": name, **notes}, "spec": {**common, **wanted}})
    source = {"csi": {"driver": "csi.example.com", "volumeHandle": name}, "capacity": {"storage": "1Gi"}}
    of = {"claimRef": {"namespace": space, "name": name}}
    await api.create(VOLUMES.path(), {"metadata": {"name": f"{space}-{name}"}, "spec": {**common, **source, **of}})
    await api.patch(VOLUME_CLAIMS.path(space, name, "status"), {"status": {"phase": "Bound"}})


async def a_small_worker(api: Api, space: str, name: str, claim: str) -> None:
    pod = a_worker(name, name, 1)
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    await api.create(PODS.path(space), pod)


def test_no_more_volumes_than_a_node_can_mount_and_a_claim_of_one_pod_one_pod_after_the_other(
    shipped: Cluster, plane: ControlPlane
) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "mounts") as (node,):
            space = await a_namespace(api)
            for claim in ("one", "two"):
                await a_bound_claim(api, space, claim)
            await a_bound_claim(api, space, "once", "ReadWriteOncePod")
            driver = {"name": "csi.example.com", "nodeID": node, "allocatable": {"count": 2}}
            volumes = [VOLUMES.path("", f"{space}-{claim}") for claim in ("one", "two", "once")]
            async with gone_afterwards(api, CSI_NODES.path("", node), *volumes):
                await api.create(CSI_NODES.path(), {"metadata": {"name": node}, "spec": {"drivers": [driver]}})
                for name in ("once-a", "once-b"):
                    await a_small_worker(api, space, name, "once")
                async with running(plane, shipped):
                    (first,) = await until_bound(api, space, 1)
                    (second,) = {"once-a", "once-b"} - {first}
                    assert f"which the pod {first} mounts" in await until_said(api, space, second, "which the pod")
                    await a_small_worker(api, space, "one", "one")
                    await until_bound(api, space, 2)
                    await a_small_worker(api, space, "two", "two")
                    await until_said(api, space, "two", "1 volume of csi.example.com")
                    await api.delete(PODS.path(space, "one"))
                    assert set(await until_bound(api, space, 2)) == {first, "two"}
                    await api.delete(PODS.path(space, first))
                    assert set(await until_bound(api, space, 2)) == {second, "two"}

    asyncio.run(story())
