"""`quorate run --kubernetes` and a gang that runs: a pod that joins it is bound only to a node that its own spec allows."""

from __future__ import annotations

import asyncio
from typing import Any

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import NODES, PODS
from reconciler.kubernetes.status.conditions import REFUSED
from solver.model.workload import JobName
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


async def _until_started(api: Api, space: str) -> None:
    """All of a gang is bound, and the plan of its start is over: what is lost before is another matter."""
    async with asyncio.timeout(SOON_S):
        while True:
            pods = (await api.get(PODS.path(space), dict[str, Any]))["items"]
            if not any(names.GANG_PLAN in pod["metadata"].get("annotations", {}) for pod in pods):
                return
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


def test_a_gang_keeps_what_it_holds_when_a_pod_that_is_refused_takes_the_place_of_one(
    shipped: Cluster, plane: ControlPlane
) -> None:
    """It is another queue's by what the new pod says: nothing of that is the gang's, and its queue is charged as before."""

    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "keeps"), running(plane, shipped):
            space = await a_namespace(api)
            for number in range(2):
                await api.create(PODS.path(space), a_worker(f"w{number}", "train", 2))
            await until_bound(api, space, 2)
            await _until_started(api, space)
            await api.delete(PODS.path(space, "w0"))
            await api.create(PODS.path(space), a_worker("w0", "train", 2, queue="another"))
            await until_refused(api, space, "w0")
            with plane.client() as client:
                job = client.job(JobName(f"{space}.gang.train"))
                assert (job.spec.queue, job.state) == ("research", "starting")
                (queue,) = client.queues().items
                assert [line.held for line in queue.gpus] == [1000]
            assert set(await bound(api, space)) == {"w1"}
            await api.delete(PODS.path(space, "w0"))
            await api.create(PODS.path(space), a_worker("w0", "train", 2))
            assert set(await until_bound(api, space, 2)) == {"w0", "w1"}

    asyncio.run(story())
