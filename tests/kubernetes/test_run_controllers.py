"""Pods as other projects' controllers make them, on a real API server. The controllers are imitated, by their objects alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects.held_back import VOLCANO_JOBS
from reconciler.kubernetes.objects.resource import NODES, PODS, Resource
from reconciler.kubernetes.status.events import EVENTS
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
JOBS = Resource("batch/v1", "jobs")
VOLCANO_GROUPS = Resource("scheduling.volcano.sh/v1beta1", "podgroups")


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


def of_yunikorn(name: str, group: str, groups: Mapping[str, int], style: str = "", gpus: int = 1) -> dict[str, Any]:
    said = [{"name": each, "minMember": members, "minResource": {"cpu": 1}} for each, members in groups.items()]
    notes = {"yunikorn.apache.org/task-group-name": group, "yunikorn.apache.org/task-groups": json.dumps(said)}
    notes |= {"yunikorn.apache.org/schedulingPolicyParameters": f"gangSchedulingStyle={style}"} if style else {}
    return a_made_pod(name, {"applicationId": name.partition("-")[0]}, notes, gpus)


def test_task_groups_of_yunikorn_are_followed_or_told_at_once(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 2, "yunikorn"), running(plane, shipped):
            space = await a_namespace(api)
            await put(api, space, [of_yunikorn("train-0", "t", {"t": 2}, gpus=3)])
            await until_said(api, space, "train-0", "waiting for 1 of 2 pods")
            spark = {"driver": 1, "executor": 4}
            await put(
                api, space, [of_yunikorn("soft-0", "driver", spark), of_yunikorn("hard-0", "driver", spark, "Hard")]
            )
            assert "gangSchedulingStyle=Hard forbids" in await until_said(api, space, "hard-0", "refused:")
            assert set(await until_bound(api, space, 1)) == {"soft-0"}
            await put(api, space, [of_yunikorn("train-1", "t", {"t": 2}, gpus=3)])
            assert set(await until_bound(api, space, 3)) == {"soft-0", "train-0", "train-1"}
            async with asyncio.timeout(SOON_S):
                while not (found := await told(api, space)):
                    await asyncio.sleep(0.1)
            ((name, note),) = found
            assert (name, "its task groups of YuniKorn are not followed" in note) == ("soft-0", True)

    asyncio.run(story())


def test_executors_of_spark_come_while_their_driver_runs(shipped: Cluster, plane: ControlPlane) -> None:
    def of_spark(role: str, number: int) -> dict[str, Any]:
        return a_made_pod(f"etl-{role}-{number}", {"spark-role": role, "spark-app-selector": "spark-1"})

    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "spark"), running(plane, shipped):
            space = await a_namespace(api)
            await put(api, space, [of_spark("driver", 0)])
            await until_bound(api, space, 1)
            await put(api, space, [of_spark("executor", number) for number in range(4)])
            assert "etl-driver-0" in await until_bound(api, space, 4)
            (late,) = {f"etl-executor-{number}" for number in range(4)} - (await bound(api, space)).keys()
            await until_said(api, space, late, "waits:")
            await api.delete(PODS.path(space, next(name for name in await bound(api, space) if "executor" in name)))
            async with asyncio.timeout(SOON_S):
                while late not in await bound(api, space):
                    await asyncio.sleep(0.05)

    asyncio.run(story())


def test_topology_of_kai_on_a_job_keeps_its_pods_in_one_rack(shipped: Cluster, plane: ControlPlane) -> None:
    rack = "cloud.provider.com/topology-rack"
    asked = {"kai.scheduler/topology": "default", "kai.scheduler/topology-required-placement": rack}

    def of_job(number: int) -> dict[str, Any]:
        labels = {"batch.kubernetes.io/job-name": "train", "batch.kubernetes.io/job-completion-index": str(number)}
        return a_made_pod(f"train-{number}", labels, gpus=4)

    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 3, "kai") as nodes, running(plane, shipped):
            for node, where in zip(nodes, ("a", "b", "b"), strict=True):
                await api.patch(NODES.path("", node), {"metadata": {"labels": {rack: where}}})
            space = await a_namespace(api)
            template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
            spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": template}
            job = {"metadata": {"name": "train", "annotations": asked}, "spec": spec}
            await api.create(JOBS.path(space), job)
            await put(api, space, [of_job(0), of_job(1)])
            assert sorted((await until_bound(api, space, 2)).values()) == nodes[1:]

    asyncio.run(story())


def test_a_vcjob_without_pods_is_told_what_it_waits_for(shipped: Cluster, plane: ControlPlane) -> None:
    def of_vcjob(number: int) -> dict[str, Any]:
        return a_made_pod(f"train-worker-{number}", {}, {"scheduling.k8s.io/group-name": "train-1"}, gpus=2)

    async def notes(api: Api, space: str) -> list[tuple[str, str]]:
        found = await api.get(EVENTS.path(space), dict[str, Any])
        of_it = [one for one in found["items"] if one["regarding"]["apiVersion"] == VOLCANO_JOBS.version]
        return [(one["reason"], one["note"]) for one in of_it]

    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "vcjob"), running(plane, shipped):
            space = await a_namespace(api)
            vcjob = {
                "apiVersion": VOLCANO_JOBS.version,
                "kind": "Job",
                "metadata": {"name": "train"},
                "spec": {"schedulerName": "quorate", "minAvailable": 2},
                "status": {"state": {"phase": "Pending"}},
            }
            await api.create(VOLCANO_JOBS.path(space), vcjob)
            await an_object(api, space, VOLCANO_GROUPS, "PodGroup", "train-1", {"minMember": 2})
            async with asyncio.timeout(SOON_S):
                while not (found := await notes(api, space)):
                    await asyncio.sleep(0.1)
            ((reason, note),) = found
            assert (reason, "once its PodGroup is Inqueue" in note) == ("Waiting", True)
            # Volcano's scheduler, where it runs, says so; then its controller makes the pods, of whichever scheduler.
            await put(api, space, [of_vcjob(0), of_vcjob(1)])
            assert len(await until_bound(api, space, 2)) == 2

    asyncio.run(story())
