"""`quorate run --kubernetes` keeps limits: of who runs for too long, told beforehand, and of who joins a gang and never begins."""

from __future__ import annotations

import asyncio
from typing import Any

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import NODES, PODS
from reconciler.kubernetes.status.events import EVENTS
from solver.model.quantities import Instant
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.kubelet import Kubelet
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, gone_afterwards, session
from tests.kubernetes.test_run import GPU_NODE, H100S, a_worker, gpu_nodes, running, until_bound
from tests.kubernetes.test_run_eviction import notes_on, until_noted

pytestmark = REAL

_V1 = "apiVersion: quorate.dev/v1\nkind: "
POLICY = {
    "policies/short.yaml": _V1 + "PriorityClass\nmetadata: {name: short}\nspec: {value: 1, defaultTimeLimit: 6s}\n",
    "policies/scheduling.yaml": _V1 + "SchedulingPolicy\nmetadata: {name: cluster}\nspec: {startDeadline: 3s}\n",
    "policies/q.yaml": _V1 + "Queue\nmetadata: {name: q}\nspec: {quota: [{gpuType: H100-SXM5-80GB, guaranteed: 8}]}\n",
}


def test_a_gang_is_told_that_its_time_limit_is_near_and_ends_when_it_is_over(
    shipped: Cluster, plane: ControlPlane
) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "limits"), running(plane, shipped):
            space = await a_namespace(api)
            for index in range(2):
                pod = a_worker(f"limited-{index}", "limited", 2, queue="q")
                pod["metadata"]["annotations"] |= {names.PRIORITY_CLASS: "short", names.CHECKPOINT_GRACE: "4s"}
                await api.create(PODS.path(space), pod)
            await api.create(PODS.path(space), a_worker("unlimited", "unlimited", 1, queue="q"))
            await until_bound(api, space, 3)
            for pod_name in ("limited-0", "limited-1"):
                await until_noted(api, space, pod_name, names.CHECKPOINT_BY)
            notes = await notes_on(api, space, "limited-0")
            assert notes[names.LIMIT] == "6s"
            pods = [(await api.get(PODS.path(space, f"limited-{n}"), dict[str, Any]))["status"] for n in range(2)]
            over_at = min(Instant.parse(pod["startTime"]) for pod in pods) + 6_000
            assert Instant.parse(notes[names.CHECKPOINT_BY]) == over_at
            saved = {"metadata": {"annotations": {names.CHECKPOINTED: "2999-01-01T00:00:00Z"}}}
            for number in range(2):
                await api.patch(PODS.path(space, f"limited-{number}"), saved)
            await until_left(api, space, {"unlimited"})
            # Whoever has saved runs on until then.
            assert await told(api, space, "TimeLimitReached", 2) == {"limited-0", "limited-1"}
            assert await told(api, space, "TimeLimitNear", 1) == {"limited-0"}
            assert all(at >= over_at for at in await told_at(api, space, "TimeLimitReached"))

    asyncio.run(story())


def test_a_pod_that_joins_a_running_gang_and_never_begins_leaves_alone(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "alive") as (alive,), running(plane, shipped):
            space = await a_namespace(api)
            for index in range(2):
                await api.create(PODS.path(space), a_worker(f"elastic-{index}", "elastic", 2, gpus=2, queue="q"))
            await until_bound(api, space, 2)
            async with gone_afterwards(api, NODES.path("", "dead")):
                await Kubelet(api, ["dead"]).register(GPU_NODE)  # nothing begins there
                await api.patch(NODES.path("", "dead"), H100S)
                await api.create(PODS.path(space), a_worker("elastic-2", "elastic", 2, gpus=2, queue="q"))
                there = await until_bound(api, space, 3)
                assert there == {"elastic-0": alive, "elastic-1": alive, "elastic-2": "dead"}
                await until_left(api, space, {"elastic-0", "elastic-1"})
                assert await told(api, space, "Evicted", 1) == {"elastic-2"}
                assert not await said_of(api, space, "Released")

    asyncio.run(story())


async def until_left(api: Api, space: str, names_left: set[str]) -> None:
    async with asyncio.timeout(SOON_S):
        while {one["metadata"]["name"] for one in await listed(api, PODS.path(space))} != names_left:
            await asyncio.sleep(0.05)


async def told(api: Api, space: str, reason: str, count: int) -> set[str]:
    """The pods of which this was said, once it was of so many: each of them has an Event of its own."""
    async with asyncio.timeout(SOON_S):
        while len(found := await said_of(api, space, reason)) < count:
            await asyncio.sleep(0.05)
    return found


async def said_of(api: Api, space: str, reason: str) -> set[str]:
    return {one["regarding"]["name"] for one in await listed(api, EVENTS.path(space)) if one["reason"] == reason}


async def told_at(api: Api, space: str, reason: str) -> list[Instant]:
    return [Instant.parse(one["eventTime"]) for one in await listed(api, EVENTS.path(space)) if one["reason"] == reason]


async def listed(api: Api, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.get(path, dict[str, Any]))["items"]
    return found
