"""Wishes of pods that are not followed are told once, as a gang is bound, on a real API server."""

from __future__ import annotations

import asyncio
from typing import Any

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.control.cluster_cache import PRIORITY_CLASSES
from reconciler.kubernetes.objects.resource import NODES, PODS
from reconciler.kubernetes.status.events import EVENTS
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, gone_afterwards, session
from tests.kubernetes.test_run import a_worker, gpu_nodes, running, until_bound

pytestmark = REAL

_V1 = "apiVersion: quorate.dev/v1\nkind: "
POLICY = {
    "policies/patient.yaml": _V1 + "PriorityClass\nmetadata: {name: patient}\nspec: {value: 1}\n",
    "policies/q.yaml": _V1 + "Queue\nmetadata: {name: research}\n"
    "spec: {quota: [{gpuType: H100-SXM5-80GB, guaranteed: 8}]}\n",
}
NEAR_1 = {
    "weight": 1,
    "preference": {"matchExpressions": [{"key": "wished", "operator": "Exists"}]},
}


async def told(api: Api, space: str) -> list[tuple[str, str]]:
    found = await api.get(EVENTS.path(space), dict[str, Any])
    return sorted(
        (event["regarding"]["name"], event["note"]) for event in found["items"] if event["reason"] == "NotFollowed"
    )


def test_what_is_not_followed_is_told_once_with_the_binding(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        patient = {"metadata": {"name": "patient"}, "value": 1, "preemptionPolicy": "Never"}
        async with (
            session(shipped) as api,
            gpu_nodes(api, 2, "wish") as nodes,
            gone_afterwards(api, PRIORITY_CLASSES.path("", "patient")),
            running(plane, shipped),
        ):
            await api.create(PRIORITY_CLASSES.path(), patient)
            await api.patch(NODES.path("", nodes[1]), {"metadata": {"labels": {"wished": "yes"}}})
            taint = {"key": "slow", "effect": "PreferNoSchedule"}
            await api.patch(NODES.path("", nodes[0]), {"spec": {"taints": [taint]}})
            space = await a_namespace(api)
            for number in range(2):
                pod = a_worker(f"w{number}", "train", 2)
                preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [NEAR_1]}
                pod["spec"] |= {"priorityClassName": "patient", "affinity": {"nodeAffinity": preferred}}
                await api.create(PODS.path(space), pod)
            await api.create(PODS.path(space), a_worker("plain", "plain", 1))
            await until_bound(api, space, 3)
            async with asyncio.timeout(SOON_S):
                while len(found := await told(api, space)) < 2:
                    await asyncio.sleep(0.1)
            (plain, soft), (first, all_of_it) = found
            assert (plain, first) == ("plain", "w0")
            assert soft == "not followed: taints PreferNoSchedule within a GPU type keep pods away from no node"
            assert "preferred node affinity within a GPU type is not followed" in all_of_it
            assert "preemptionPolicy: Never" in all_of_it

    asyncio.run(story())


def test_what_joins_a_gang_that_runs_is_told_what_it_brings_and_not_what_was_told(
    shipped: Cluster, plane: ControlPlane
) -> None:
    """Each pod of the elastic gang wishes what those before it wish, and one thing more, but for the last."""
    notes = {"quorate.dev/checkpoint-interval": "soon", "quorate.dev/checkpoint-grace": "long"}

    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 2, "joins-wish"), running(plane, shipped):
            space = await a_namespace(api)
            for number, more in enumerate(([], [*notes][:1], [*notes], [*notes])):
                pod = a_worker(f"w{number}", "train", 1)
                pod["metadata"]["annotations"] |= {key: notes[key] for key in more}
                await api.create(PODS.path(space), pod)
                await until_bound(api, space, number + 1)
            await api.create(PODS.path(space), a_worker("after", "after", 1))
            async with asyncio.timeout(SOON_S):
                while "after" not in await _scheduled(api, space):
                    await asyncio.sleep(0.1)
            assert [(name, [key in note for key in notes]) for name, note in await told(api, space)] == [
                ("w1", [True, False]),
                ("w2", [False, True]),
            ]

    asyncio.run(story())


async def _scheduled(api: Api, space: str) -> set[str]:
    found = await api.get(EVENTS.path(space), dict[str, Any])
    return {event["regarding"]["name"] for event in found["items"] if event["reason"] == "Scheduled"}
