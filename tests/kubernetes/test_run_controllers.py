"""Pods as other projects' controllers make them, on a real API server. The controllers are imitated, by their objects alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects.resource import PODS, Resource
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, session
from tests.kubernetes.test_run import POLICY as QUEUES
from tests.kubernetes.test_run import a_worker, bound, gpu_nodes, running, until_bound
from tests.kubernetes.test_run_affinity import until_said
from tests.kubernetes.test_run_wishes import told

pytestmark = REAL

POLICY = QUEUES


JOBSET = Resource("jobset.x-k8s.io/v1alpha2", "jobsets")
LWS = Resource("leaderworkerset.x-k8s.io/v1", "leaderworkersets")


async def an_object(api: Api, space: str, of: Resource, kind: str, name: str, spec: Mapping[str, Any]) -> None:
    """What a controller would follow."""
    await api.create(of.path(space), {"apiVersion": of.version, "kind": kind, "metadata": {"name": name}, "spec": spec})


def a_made_pod(name: str, labels: Mapping[str, str], notes: Mapping[str, str] = {}, gpus: int = 1) -> dict[str, Any]:
    """Of the queue `research`, with what its controller writes on it and nothing of Quorate's."""
    pod = a_worker(name, "", 1, gpus)
    pod["metadata"] = {
        "name": name,
        "labels": {"quorate.dev/queue": "research", **labels},
        "annotations": dict(notes),
    }
    return pod


async def put(api: Api, space: str, pods: Iterable[dict[str, Any]]) -> None:
    for pod in pods:
        await api.create(PODS.path(space), pod)


def of_jobset(jobset: str, role: str, number: int = 0, gpus: int = 2) -> dict[str, Any]:
    labels = {"jobset.sigs.k8s.io/jobset-name": jobset, "jobset.sigs.k8s.io/replicatedjob-name": role}
    return a_made_pod(f"{jobset}-{role}-{number}", labels, gpus=gpus)


def test_what_a_jobset_makes_in_turn_starts_in_turn(shipped: Cluster, plane: ControlPlane) -> None:
    """Its launcher comes once its nodes are Ready: they don't wait for it, and it is told what they can't have kept free."""
    replicated = [
        {"name": "node", "template": {"spec": {"parallelism": 2, "completions": 2}}},
        {
            "name": "launcher",
            "dependsOn": [{"name": "node", "status": "Ready"}],
            "template": {"spec": {"parallelism": 1, "completions": 1}},
        },
    ]

    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 2, "jobset"), running(plane, shipped):
            space = await a_namespace(api)
            await an_object(api, space, JOBSET, "JobSet", "mpi", {"replicatedJobs": replicated})
            await put(api, space, [of_jobset("mpi", "node", 0)])
            assert "waiting for 1 of 2 pods" in await until_said(api, space, "mpi-node-0", "of 2 pods")
            await put(api, space, [of_jobset("mpi", "node", 1)])
            assert set(await until_bound(api, space, 2)) == {"mpi-node-0", "mpi-node-1"}
            async with asyncio.timeout(SOON_S):
                while not (found := await told(api, space)):
                    await asyncio.sleep(0.1)
            assert found[0][1] == (
                "not followed: pods of launcher are made once node is Ready: nothing is kept free for them until then"
            )
            await put(api, space, [a_worker("other", "other", 1, gpus=4), of_jobset("mpi", "launcher", gpus=1)])
            waits = await until_said(api, space, "mpi-launcher-0", "waits:")
            assert "waits:" in waits
            await api.delete(PODS.path(space, "other"))
            assert "mpi-launcher-0" in await until_bound(api, space, 3)

    asyncio.run(story())


def of_lws(group: int, worker: int, gpus: int = 1) -> dict[str, Any]:
    labels = {
        "leaderworkerset.sigs.k8s.io/name": "serve",
        "leaderworkerset.sigs.k8s.io/group-index": str(group),
        "leaderworkerset.sigs.k8s.io/worker-index": str(worker),
    }
    return a_made_pod(f"serve-{group}-{worker}", labels, {"leaderworkerset.sigs.k8s.io/size": "3"}, gpus)


def test_a_leader_that_is_to_be_ready_first_starts_without_its_workers(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 2, "lws"), running(plane, shipped):
            space = await a_namespace(api)
            spec = {"replicas": 1, "startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 3}}
            await an_object(api, space, LWS, "LeaderWorkerSet", "serve", spec)
            await put(api, space, [of_lws(0, 0)])
            assert set(await until_bound(api, space, 1)) == {"serve-0-0"}
            await put(api, space, [of_lws(0, 1, gpus=2)])
            await until_said(api, space, "serve-0-1", "waiting for 1 of 2 pods")
            assert set(await bound(api, space)) == {"serve-0-0"}
            await put(api, space, [of_lws(0, 2, gpus=2)])
            assert len(await until_bound(api, space, 3)) == 3

    asyncio.run(story())
