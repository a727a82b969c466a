"""`quorate run --kubernetes` and nodes that are not well: gangs leave by policy, and are told of nodes that fail."""

from __future__ import annotations

import asyncio

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import NODES, PODS
from reconciler.kubernetes.status.events import EVENTS
from solver.model.workload import JobName
from tests.e2e.control_plane import ControlPlane, until
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, session
from tests.kubernetes.test_run import POLICY as QUEUES
from tests.kubernetes.test_run import a_worker, gpu_nodes, running, until_bound
from tests.kubernetes.test_run_limits import listed, told

pytestmark = REAL

HEALTH = (
    "apiVersion: quorate.dev/v1\nkind: HealthPolicy\nmetadata: {name: health}\n"
    "spec: {maxUnhealthy: 50%, conditions: [{type: XIDError, action: drain}]}\n"
)
POLICY = {**QUEUES, "policies/health.yaml": HEALTH}
SINCE = "2026-11-20T08:00:00Z"


async def says(api: Api, node: str, ready: str = "True", **conditions: str) -> None:
    """The node's conditions are these, since then."""
    told_of = [
        {"type": kind, "status": status, "lastTransitionTime": SINCE, "reason": "Seen", "message": "by a test"}
        for kind, status in {"Ready": ready, **conditions}.items()
    ]
    await api.patch(f"{NODES.path('', node)}/status", {"status": {"conditions": told_of}})


async def until_told_of_node(api: Api, node: str, reason: str) -> str:
    """The note of the Event."""
    async with asyncio.timeout(SOON_S):
        while True:
            for one in await listed(api, EVENTS.path("default")):
                if (one["regarding"]["name"], one["reason"]) == (node, reason):
                    return str(one["note"])
            await asyncio.sleep(0.05)


async def until_gone(api: Api, space: str, pod: str) -> None:
    async with asyncio.timeout(SOON_S):
        while pod in {one["metadata"]["name"] for one in await listed(api, PODS.path(space))}:
            await asyncio.sleep(0.05)


def test_a_gang_leaves_a_node_that_says_it_is_broken_and_nothing_starts_there(
    shipped: Cluster, plane: ControlPlane
) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 2, "sick") as nodes, running(plane, shipped):
            space = await a_namespace(api)
            await api.create(PODS.path(space), a_worker("first", "first", 1, gpus=4))
            place = (await until_bound(api, space, 1))["first"]
            (other,) = set(nodes) - {place}
            await says(api, place, XIDError="True")
            assert "its condition XIDError is True since" in await until_told_of_node(api, place, "NodeDrained")
            await until_gone(api, space, "first")
            assert await told(api, space, "Evicting", 1) == {"first"}
            (evicting,) = [one for one in await listed(api, EVENTS.path(space)) if one["reason"] == "Evicting"]
            assert evicting["note"].startswith(f"node {place} is drained (its condition XIDError is True since")
            await says(api, place, XIDError="False")
            await api.create(PODS.path(space), a_worker("again", "again", 1, gpus=4))
            assert await until_bound(api, space, 1) == {"again": other}, "what was found counts for a day"
            await asyncio.to_thread(_is_shown, plane, place)
            await api.create(PODS.path(space), a_worker("third", "third", 1, gpus=4))
            await asyncio.to_thread(_uncordon, plane, place)
            assert (await until_bound(api, space, 2))["third"] == place

    asyncio.run(story())


def _is_shown(plane: ControlPlane, node: str) -> None:
    with plane.client() as client:
        (view,) = [one for one in client.nodes().items if one.node.name == node]
        assert [(part.part, part.state) for part in view.health] == [("", "drained")]
        assert view.node.cordoned


def _uncordon(plane: ControlPlane, node: str) -> None:
    with plane.client() as client:
        client.by_hand.uncordon(node)


def test_a_gang_on_a_node_that_fails_is_told_and_goes_on_with_what_comes_for_the_pod_it_loses(
    shipped: Cluster, plane: ControlPlane
) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 3, "fails") as nodes, running(plane, shipped):
            space = await a_namespace(api)
            for index in range(2):
                await api.create(PODS.path(space), a_worker(f"w{index}", "train", 2, gpus=4))
            there = await until_bound(api, space, 2)
            lost = there["w1"]
            await _until_whole(api, space)
            taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": SINCE}
            await says(api, lost, "Unknown")
            await api.patch(NODES.path("", lost), {"spec": {"taints": [taint]}})
            assert await told(api, space, "NodeNotReady", 2) == {"w0", "w1"}
            words = await asyncio.to_thread(_why, plane, JobName(f"{space}.gang.train"))
            assert words.startswith(f"node {lost} is not ready: its condition Ready is Unknown since {SINCE} (Seen)")
            assert "Kubernetes evicts what runs there at 2026-11-20T08:05:00Z" in words
            # What the controllers of nodes and of the job do then.
            await api.delete(PODS.path(space, "w1"), {"gracePeriodSeconds": 0})
            await api.create(PODS.path(space), a_worker("w2", "train", 2, gpus=4))
            (free,) = set(nodes) - set(there.values())
            assert await until_bound(api, space, 2) == {"w0": there["w0"], "w2": free}

    asyncio.run(story())


async def _until_whole(api: Api, space: str) -> None:
    """The plan of its start is over, and all of it runs."""
    async with asyncio.timeout(SOON_S):
        while True:
            pods = await listed(api, PODS.path(space))
            begun = all(pod["status"].get("phase") == "Running" for pod in pods)
            if begun and not any(names.GANG_PLAN in pod["metadata"].get("annotations", {}) for pod in pods):
                return
            await asyncio.sleep(0.05)


def _why(plane: ControlPlane, job: JobName) -> str:
    """The first sentence, once it is about a node: the pass that has seen it may not be over."""
    with plane.client() as client:
        until("it says so", lambda: client.why(job).words[0].startswith("node "))
        return client.why(job).words[0]
