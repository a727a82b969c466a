"""`quorate run --kubernetes` as a real process on a real API server: pods become gangs, gangs are bound, and people can ask why."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.shipped import ACCOUNT, GROUPS
from reconciler.client import ApiError
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import NotFoundError
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import NODES, PODS
from reconciler.kubernetes.status.events import EVENTS
from reconciler.kubernetes.status.policy_parts import MIRROR
from reconciler.kubernetes.status.queue_status import QUEUES
from solver.model.workload import JobName
from tests.e2e.control_plane import ControlPlane, sh, submit, until
from tests.kubernetes.installing import with_queues
from tests.kubernetes.kubelet import kubelet
from tests.kubernetes.sessions import CONFIG_MAPS, REAL, SOON_S, a_namespace, gone_afterwards, session
from tests.kubernetes.test_teller import scheduled

pytestmark = REAL

POLICY = {
    "policies/queues.yaml": (
        "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: research}\n"
        "spec: {quota: [{gpuType: H100-SXM5-80GB, guaranteed: 8}]}\n"
    ),
}
A_JOB = (
    b"{apiVersion: quorate.dev/v1, kind: Job, metadata: {name: x}, spec: {queue: research, command: [sleep, '1'], "
    b"taskGroups: [{name: worker, replicas: 1, shape: {gpus: 1}}]}}"
)
GPU_NODE = {"cpu": "64", "memory": "256Gi", "pods": "110", names.GPU: "4"}
H100S = {"metadata": {"labels": {names.PRODUCT: "NVIDIA-H100-80GB-HBM3"}}}


def a_worker(name: str, gang: str, size: int, gpus: int = 1, queue: str = "research") -> dict[str, Any]:
    notes = {names.GANG: gang, names.GANG_SIZE: str(size), names.QUEUE: queue}
    requests = {names.GPU: str(gpus), "cpu": "1", "memory": "1Gi"}
    container = {"name": "main", "image": "none", "resources": {"requests": requests, "limits": requests}}
    spec = {"schedulerName": names.SCHEDULER, "containers": [container], "terminationGracePeriodSeconds": 0}
    return {"metadata": {"name": name, "annotations": notes}, "spec": spec}


@asynccontextmanager
async def gpu_nodes(api: Api, count: int, prefix: str) -> AsyncIterator[list[str]]:
    """Ready nodes of 4 H100 each; they are gone afterwards, so that the next test has nodes of its own."""
    nodes = [f"{prefix}{number}" for number in range(count)]
    async with gone_afterwards(api, *(NODES.path("", node) for node in nodes)), kubelet(api, nodes, GPU_NODE):
        for node in nodes:
            await api.patch(NODES.path("", node), H100S)
        try:
            yield nodes
        finally:
            # What still waits would start on the nodes of the next test.
            for pod in (await api.get(PODS.path(), dict[str, Any]))["items"]:
                known = pod["metadata"]
                with suppress(NotFoundError):
                    await api.delete(PODS.path(known["namespace"], known["name"]), {"gracePeriodSeconds": 0})


@asynccontextmanager
async def running(plane: ControlPlane, cluster: Cluster) -> AsyncIterator[None]:
    """With the rights that are shipped, and no others."""
    kubeconfig = cluster.kubeconfig(ACCOUNT, GROUPS)
    await asyncio.to_thread(plane.start, "--kubernetes", "--mirror-policy", "--kubeconfig", str(kubeconfig))
    yield
    assert await asyncio.to_thread(plane.signal, signal.SIGTERM) == 0


async def bound(api: Api, namespace: str) -> dict[str, str]:
    """Where each pod of a namespace is, of those that are somewhere."""
    found = await api.get(PODS.path(namespace), dict[str, Any])
    return {one["metadata"]["name"]: node for one in found["items"] if (node := one["spec"].get("nodeName"))}


async def until_bound(api: Api, namespace: str, count: int) -> dict[str, str]:
    async with asyncio.timeout(SOON_S):
        while len(there := await bound(api, namespace)) < count:
            await asyncio.sleep(0.05)
    return there


def test_a_gang_waits_until_it_is_whole_and_then_starts_whole(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 2, "run") as nodes, running(plane, shipped):
            space = await a_namespace(api)
            await with_queues(api)
            for index in range(3):
                await api.create(PODS.path(space), a_worker(f"w{index}", "train", 4, gpus=2))
            await api.create(PODS.path(space), a_worker("alone", "single", 1))
            await until_bound(api, space, 1)
            assert set(await bound(api, space)) == {"alone"}
            await api.delete(PODS.path(space, "alone"))
            await api.create(PODS.path(space), a_worker("w3", "train", 4, gpus=2))
            there = await until_bound(api, space, 4)
            assert sorted(there.values()) == sorted([*nodes, *nodes])
            await api.create(PODS.path(space), a_worker("late", "late", 1))
            await asyncio.to_thread(_is_told, plane, space)
            await _says_so(api, space)
            devices = [
                (await api.get(PODS.path(space, name), dict[str, Any]))["metadata"]["annotations"][names.DEVICES]
                for name in there
            ]
            assert len({device for each in devices for device in each.split(",")}) == 8
            await _is_shown(api)

    asyncio.run(story())


async def _is_shown(api: Api) -> None:
    """The policy in force, as ConfigMaps."""
    async with asyncio.timeout(SOON_S):
        while True:
            labelled = {"labelSelector": f"{MIRROR}=part"}
            found = await api.get(CONFIG_MAPS.path(names.NAMESPACE), dict[str, Any], labelled)
            if [part["data"] for part in found["items"]] == [{"policies__queues.yaml": POLICY["policies/queues.yaml"]}]:
                return
            await asyncio.sleep(0.1)


async def _says_so(api: Api, space: str) -> None:
    """In the cluster itself: of the late pod why it waits, of the others where they are, of the queue what it holds."""
    async with asyncio.timeout(SOON_S):
        while (await scheduled(api, space)).get("late") != "Unschedulable":
            await asyncio.sleep(0.1)
        while {("w0", "Scheduled"), ("late", "Waiting")} - await _events(api, space):
            await asyncio.sleep(0.1)
        while await _used(api) != [8]:
            await asyncio.sleep(0.1)


async def _events(api: Api, space: str) -> set[tuple[str, str]]:
    listed = await api.get(EVENTS.path(space), dict[str, Any])
    return {(event["regarding"]["name"], event["reason"]) for event in listed["items"]}


async def _used(api: Api) -> list[float]:
    listed = await api.get(QUEUES.path(), dict[str, Any])
    return [queue["status"]["total"]["used"] for queue in listed["items"] if "status" in queue]


def _is_told(plane: ControlPlane, space: str) -> None:
    train, late = JobName(f"{space}.gang.train"), JobName(f"{space}.gang.late")

    def states() -> dict[JobName, str]:
        return {view.name: view.state for view in client.jobs().items if view.name.startswith(f"{space}.")}

    with plane.client() as client:
        until("the gang runs, and the late one is known", lambda: states() == {train: "running", late: "queued"})
        (queue,) = client.queues().items
        assert [(line.guaranteed, line.held) for line in queue.gpus] == [(8000, 8000)]
        assert client.why(late).words
        changes = lambda: client.cancel(late), lambda: submit(client, ["x"], sh("true")), lambda: client.test(A_JOB)
        for change in changes:
            with pytest.raises(ApiError, match="Jobs of this cluster are pods"):
                change()
