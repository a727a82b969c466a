"""`quorate run --kubernetes` and a gang that runs: a pod that joins it is bound only to a node that its own spec allows."""

from __future__ import annotations

import asyncio
from typing import Any

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects.resource import NODES, PODS
from reconciler.kubernetes.status.conditions import REFUSED
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, session
from tests.kubernetes.test_run import POLICY as QUEUES
from tests.kubernetes.test_run import a_worker, bound, gpu_nodes, running, until_bound

pytestmark = REAL


POLICY = QUEUES


def of_gang(number: int, gang: str) -> dict[str, Any]:
    """An elastic gang that runs on one pod and selects nodes for it."""
    pod = a_worker(f"{gang}-{number}", gang, 1)
    pod["spec"]["nodeSelector"] = {"team": "vision"}
    return pod


async def until_refused(api: Api, space: str, pod: str) -> None:
    async with asyncio.timeout(SOON_S):
        while REFUSED not in await _reasons(api, space, pod):
            await asyncio.sleep(0.05)


async def _reasons(api: Api, space: str, pod: str) -> set[str]:
    found = await api.get(PODS.path(space, pod), dict[str, Any])
    return {known.get("reason", "") for known in found["status"].get("conditions", ())}


def test_what_joins_a_gang_where_no_node_is_left_waits_refused_until_there_is_one(
    shipped: Cluster, plane: ControlPlane
) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 2, "joins") as nodes, running(plane, shipped):
            space = await a_namespace(api)
            await api.patch(NODES.path("", nodes[0]), {"metadata": {"labels": {"team": "vision"}}})
            await api.create(PODS.path(space), of_gang(0, "grows"))
            assert await until_bound(api, space, 1) == {"grows-0": nodes[0]}
            await api.patch(NODES.path("", nodes[0]), {"metadata": {"labels": {"team": "speech"}}})
            await api.create(PODS.path(space), of_gang(1, "grows"))
            await until_refused(api, space, "grows-1")
            # A round after the refusal decides about another pod: by then the refused one would have been bound.
            await api.create(PODS.path(space), a_worker("after", "after", 1))
            await until_bound(api, space, 2)
            assert set(await bound(api, space)) == {"grows-0", "after"}
            await api.patch(NODES.path("", nodes[1]), {"metadata": {"labels": {"team": "vision"}}})
            there = await until_bound(api, space, 3)
            assert (there["grows-0"], there["grows-1"]) == (nodes[0], nodes[1])

    asyncio.run(story())
