"""`quorate run --kubernetes` has nodes partitioned anew by their MIG manager, which the test plays, and goes on after a crash."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.shipped import ACCOUNT, GROUPS
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.status.events import EVENTS
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.mig_manager import (
    WHOLE,
    label,
    labels_of,
    manage,
    offer,
    until_ended,
    until_labelled,
    with_configs,
)
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, session
from tests.kubernetes.test_run import a_worker, bound, gpu_nodes, running, until_bound

pytestmark = REAL

_V1 = "apiVersion: quorate.dev/v1\nkind: "
POLICY = {
    "policies/queue.yaml": _V1 + "Queue\nmetadata: {name: research}\n"
    "spec: {quota: [{gpuType: H100-SXM5-80GB, guaranteed: 8}]}\n",
    "policies/mig.yaml": _V1 + "MigGeometry\nmetadata: {name: parts}\nspec: {pool: parts, mode: free}\n",
    "cluster-state/pool.yaml": _V1 + "NodePool\nmetadata: {name: parts}\n"
    "spec: {gpuType: H100-SXM5-80GB, gpusPerNode: 4, cpu: 64, memory: 256Gi, nodes: {names: [part0, rest0]}}\n",
}


def asking(name: str, resource: str = "mig-1g.10gb", count: int = 1) -> dict[str, Any]:
    pod = a_worker(name, name, 1)
    requests = {f"nvidia.com/{resource}": str(count), "cpu": "1", "memory": "1Gi"}
    pod["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": requests}
    return pod


@asynccontextmanager
async def a_node(api: Api, prefix: str) -> AsyncIterator[str]:
    """With four whole GPUs that a MIG manager looks after."""
    await with_configs(api)
    async with gpu_nodes(api, 1, prefix) as (node,):
        await manage(api, node)
        yield node


async def until_told(api: Api, name: str, reason: str, space: str = "default") -> str:
    """An Event at the node or pod says so."""
    async with asyncio.timeout(SOON_S):
        while True:
            for event in (await api.get(EVENTS.path(space), dict[str, Any]))["items"]:
                if (event["regarding"]["name"], event["reason"]) == (name, reason):
                    return str(event["note"])
            await asyncio.sleep(0.1)


async def begone(api: Api, space: str, *pods: str) -> None:
    for pod in pods:
        await api.delete(PODS.path(space, pod), {"gracePeriodSeconds": 0})


def test_a_node_is_partitioned_for_who_needs_it_by_whoever_leads_by_then(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(shipped) as api, a_node(api, "part") as node:
            space = await a_namespace(api)
            async with running(plane, shipped):
                await api.create(PODS.path(space), asking("small"))
                asked = await until_labelled(api, node, "first-1g.10gb")
                assert (asked.attempt, asked.fate, asked.slots.count(None), len(asked.slots)) == (1, None, 3, 4)
                assert names.MIG_STATE not in await labels_of(api, node)
                await asyncio.to_thread(plane.signal, signal.SIGKILL)
                await label(api, node, state="pending")
                await offer(api, node, gpu="0")  # the device plugin is away for a while
                await asyncio.to_thread(
                    plane.start, "--kubernetes", "--kubeconfig", str(shipped.kubeconfig(ACCOUNT, GROUPS))
                )
                await api.create(PODS.path(space), a_worker("whole", "whole", 1))
                assert "partitioned" in await until_told(api, "whole", "Waiting", space)
                await label(api, node, state="success")
                assert await bound(api, space) == {}  # its state alone is not enough
                await offer(api, node, **{"gpu": "3", "mig-1g.10gb": "7"})
                assert await until_bound(api, space, 2) == {"small": node, "whole": node}
                made = await until_ended(api, node)
                assert (made.fate, made.attempt, made.config) == ("made", 1, "first-1g.10gb")
                assert "first-1g.10gb" in await until_told(api, node, "Partitioned")
                held = (await api.get(PODS.path(space, "small"), dict[str, Any]))["metadata"]["annotations"]
                assert held[names.DEVICES].startswith(f"{node}/3/1g.10gb@")
            await begone(api, space, "small", "whole")

    asyncio.run(story())


def test_what_fails_is_told_and_rests_and_what_others_do_is_let_be(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(shipped) as api, a_node(api, "rest") as node:
            space = await a_namespace(api)
            async with running(plane, shipped):
                await api.create(PODS.path(space), asking("huge", "mig-7g.80gb"))
                note = await until_told(api, node, "PartitioningRefused")
                assert 'mig-enabled: true, mig-devices: {"7g.80gb": 1}}' in note
                assert (await labels_of(api, node))[names.MIG_CONFIG] == WHOLE
            async with running(plane, shipped):  # another process has not been refused yet
                await begone(api, space, "huge")
                await api.create(PODS.path(space), asking("small"))
                await until_labelled(api, node, "first-1g.10gb")
                await label(api, node, state="failed")
                assert (await until_ended(api, node)).fate == "failed"
                await until_told(api, node, "PartitioningFailed")
                await label(api, node, config="all-1g.10gb", state="success")  # a person does it instead
                assert "Quorate did not write" in await until_told(api, node, "PartitioningTakenOver")
                assert (await until_ended(api, node)).fate == "taken-over"
                await offer(api, node, **{"gpu": None, "mig-1g.10gb": "28"})
                assert await until_bound(api, space, 1) == {"small": node}  # what is there is used as it is
                await api.create(PODS.path(space), asking("pair", count=2))
                assert await until_bound(api, space, 2) == {"small": node, "pair": node}
                held = [
                    (await api.get(PODS.path(space, name), dict[str, Any]))["metadata"]["annotations"][names.DEVICES]
                    for name in ("small", "pair")
                ]
                assert len({device for devices in held for device in devices.split(",")}) == 3
                assert (await labels_of(api, node))[names.MIG_CONFIG] == "all-1g.10gb"
            await begone(api, space, "small", "pair")

    asyncio.run(story())
