"""Pods that ask where other pods are, started by one round on a real API server: each is right beside those that start with it."""

from __future__ import annotations

import asyncio
from typing import Any

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects.resource import NODES, PODS
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, session
from tests.kubernetes.test_run import a_worker, bound, gpu_nodes, running, until_bound

pytestmark = REAL

HOST = "kubernetes.io/hostname"
RACK = "cloud.provider.com/topology-rack"
APP = {"app": "web"}
TERM = {"labelSelector": {"matchLabels": APP}}
POLICY = {
    "policies/queues.yaml": (
        "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: research}\n"
        "spec: {quota: [{gpuType: H100-SXM5-80GB, guaranteed: 64}]}\n"
    ),
}


def affinity(kind: str, key: str) -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, **TERM}]}}}


async def a_member(api: Api, space: str, name: str, spec: dict[str, Any], *, gang: str = "", **said: Any) -> None:
    """A pod of a gang of as many as `size` says, or of its own."""
    pod = a_worker(name, gang or name, said.get("size", 1), gpus=said.get("gpus", 1))
    pod["metadata"]["labels"] = APP
    pod["spec"] |= spec
    await api.create(PODS.path(space), pod)


async def labelled(api: Api, nodes: list[str], racks: str = "") -> None:
    """As kubelets label their nodes; and, where racks are named by a letter for each node, with these."""
    for number, node in enumerate(nodes):
        rack = {RACK: racks[number]} if racks else {}
        await api.patch(NODES.path("", node), {"metadata": {"labels": {HOST: node, **rack}}})


async def until_said(api: Api, space: str, pod: str, word: str) -> str:
    """What the condition of a waiting pod says, once that word is in it."""
    async with asyncio.timeout(SOON_S):
        while True:
            found = await api.get(PODS.path(space, pod), dict[str, Any])
            for condition in found["status"].get("conditions", ()):
                if word in condition.get("message", ""):
                    return str(condition["message"])
            await asyncio.sleep(0.05)


def test_pods_that_keep_each_other_away_start_on_nodes_of_their_own(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 3, "apart") as nodes:
            await labelled(api, nodes)
            space = await a_namespace(api)
            for number in range(3):
                await a_member(api, space, f"w{number}", affinity("podAntiAffinity", HOST))
            async with running(plane, shipped):
                assert sorted((await until_bound(api, space, 3)).values()) == sorted(nodes)

    asyncio.run(story())


def test_a_pod_waits_for_the_one_that_keeps_it_away_and_names_it(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "alone") as nodes:
            await labelled(api, nodes)
            space = await a_namespace(api)
            for number in range(2):
                await a_member(api, space, f"w{number}", affinity("podAntiAffinity", HOST))
            async with running(plane, shipped):
                await until_bound(api, space, 1)
                (first,) = await bound(api, space)
                (second,) = {"w0", "w1"} - {first}
                assert HOST in await until_said(api, space, second, f"pod {space}/{first}")
                assert set(await bound(api, space)) == {first}
                await api.delete(PODS.path(space, first))
                async with asyncio.timeout(SOON_S):
                    while set(await bound(api, space)) != {second}:
                        await asyncio.sleep(0.05)

    asyncio.run(story())


def test_pods_are_spread_though_they_start_in_one_round(shipped: Cluster, plane: ControlPlane) -> None:
    constraint = {"topologyKey": HOST, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **TERM}

    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 2, "spread") as nodes:
            await labelled(api, nodes)
            space = await a_namespace(api)
            for number in range(4):
                await a_member(api, space, f"w{number}", {"topologySpreadConstraints": [constraint]})
            async with running(plane, shipped):
                assert sorted((await until_bound(api, space, 4)).values()) == sorted([*nodes, *nodes])

    asyncio.run(story())


def test_pods_that_want_each_other_near_start_in_one_rack(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 2, "near") as nodes:
            await labelled(api, nodes, racks="ab")
            space = await a_namespace(api)
            for number in range(2):
                await a_member(api, space, f"w{number}", affinity("podAffinity", RACK), gpus=4)
            async with running(plane, shipped):
                (node,) = (await until_bound(api, space, 1)).values()
                (first,) = await bound(api, space)
                (second,) = {"w0", "w1"} - {first}
                await until_said(api, space, second, "waits: ")
                assert set(await bound(api, space)) == {first}
                # A node more in the rack of the first.
                await labelled(api, [one for one in nodes if one != node], racks="ab"[nodes.index(node)])
                assert set(await until_bound(api, space, 2)) == {first, second}

    asyncio.run(story())


def test_gangs_of_one_pod_on_each_node_keep_to_it_when_they_start_and_when_a_pod_is_replaced(
    shipped: Cluster, plane: ControlPlane
) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 4, "hosts") as nodes:
            await labelled(api, nodes)
            space = await a_namespace(api)
            for name in ("a-0", "a-1", "b-0", "b-1"):
                await a_member(api, space, name, affinity("podAntiAffinity", HOST), gang=name[0], size=2)
            async with running(plane, shipped):
                before = await until_bound(api, space, 4)
                assert sorted(before.values()) == sorted(nodes)
                await api.delete(PODS.path(space, "a-1"))
                await a_member(api, space, "a-2", affinity("podAntiAffinity", HOST), gang="a", size=2)
                async with asyncio.timeout(SOON_S):
                    while "a-2" not in (after := await bound(api, space)):
                        await asyncio.sleep(0.05)
                assert after == {"a-0": before["a-0"], "a-2": before["a-1"], "b-0": before["b-0"], "b-1": before["b-1"]}

    asyncio.run(story())
