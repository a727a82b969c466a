"""`quorate run --kubernetes` beside the controllers of LeaderWorkerSets, Ray clusters and MPIJobs themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects.resource import PODS, Resource
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes import gang_controllers
from tests.kubernetes.gang_controllers import (
    LWS,
    MPI,
    RAY,
    a_template,
    beside,
    followed,
    needs,
    pods_of,
    until_jobs,
    until_needs,
    until_on_a_node,
)
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, session
from tests.kubernetes.test_run import a_worker, gpu_nodes, running
from tests.kubernetes.test_run_affinity import until_said

pytestmark = [*REAL, pytest.mark.long, needs(LWS, RAY, MPI)]

POLICY = gang_controllers.POLICY
SETS = Resource("leaderworkerset.x-k8s.io/v1", "leaderworkersets")
RAY_CLUSTERS = Resource("ray.io/v1", "rayclusters")
MPI_JOBS = Resource("kubeflow.org/v2beta1", "mpijobs")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with beside(tmp_path_factory.mktemp("beside"), (LWS, RAY, MPI)) as made:
        yield made


def a_set(name: str, replicas: int, size: int, **said: Any) -> dict[str, Any]:
    """A LeaderWorkerSet whose pods have a GPU each."""
    group = {"size": size, "workerTemplate": a_template(1), "restartPolicy": "RecreateGroupOnPodRestart"}
    spec = {"replicas": replicas, "leaderWorkerTemplate": group, **said}
    return {"apiVersion": SETS.version, "kind": "LeaderWorkerSet", "metadata": {"name": name}, "spec": spec}


def test_each_group_of_a_leader_worker_set_is_a_gang(cluster: Cluster, plane: ControlPlane) -> None:
    """It comes again when it was evicted, and there are more or fewer of them as the set is told."""

    async def story() -> None:
        async with session(cluster) as api, gpu_nodes(api, 1, "groups"), running(plane, cluster):
            space = await a_namespace(api)
            async with followed(api, SETS, space, a_set("serve", 2, 2)):
                first = await until_needs(api, space, ["1/2"] * 4)
                await until_jobs(plane, space, {"lws.serve-0": "running", "lws.serve-1": "running"})
                await api.patch(SETS.path(space, "serve"), {"spec": {"replicas": 3}})
                async with asyncio.timeout(SOON_S):
                    while not {"serve-2", "serve-2-1"} <= {
                        pod["metadata"]["name"] for pod in await pods_of(api, space)
                    }:
                        await asyncio.sleep(0.1)
                await until_said(api, space, "serve-2", "waits:")
                await api.patch(SETS.path(space, "serve"), {"spec": {"replicas": 2}})
                await until_jobs(plane, space, {"lws.serve-0": "running", "lws.serve-1": "running"})
                await api.create(PODS.path(space), a_worker("first", "first", 1, gpus=4, queue="owner"))
                await until_on_a_node(api, space, "first")
                await api.delete(PODS.path(space, "first"), {"gracePeriodSeconds": 0})
                again = await until_needs(api, space, ["1/2"] * 4)
                assert (first.keys(), set()) == (again.keys(), set(first.values()) & set(again.values()))

    asyncio.run(story())


def test_of_a_set_with_leader_ready_the_leader_starts_alone(cluster: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(cluster) as api, gpu_nodes(api, 1, "leader"), running(plane, cluster):
            space = await a_namespace(api)
            async with followed(api, SETS, space, a_set("serve", 1, 3, startupPolicy="LeaderReady")):
                await until_needs(api, space, ["1/1", "2/2", "2/2"])
                await until_jobs(plane, space, {"lws.serve-0:leader": "running", "lws.serve-0:worker": "running"})
                first = {pod["metadata"]["uid"] for pod in await pods_of(api, space)}
                crashed = {"name": "main", "restartCount": 1, "ready": True, "image": "none", "imageID": ""}
                await api.patch(PODS.path(space, "serve-0-1", "status"), {"status": {"containerStatuses": [crashed]}})
                async with asyncio.timeout(SOON_S):
                    while first & set((await until_needs(api, space, ["1/1", "2/2", "2/2"])).values()):
                        await asyncio.sleep(0.1)

    asyncio.run(story())


def test_a_set_of_another_size_starts_its_groups_anew(cluster: Cluster, plane: ControlPlane) -> None:
    """Its new leader is there while a worker of the one before, in a group of two, is still ending."""

    async def story() -> None:
        async with session(cluster) as api, gpu_nodes(api, 1, "size"), running(plane, cluster):
            space = await a_namespace(api)
            async with followed(api, SETS, space, a_set("serve", 1, 2)):
                first = await until_needs(api, space, ["1/2", "1/2"])
                await until_jobs(plane, space, {"lws.serve-0": "running"})
                worker = PODS.path(space, "serve-0-1")
                await api.patch(worker, {"metadata": {"finalizers": ["quorate.dev/test"]}})
                group = a_set("serve", 1, 3)["spec"]["leaderWorkerTemplate"]
                group["workerTemplate"]["metadata"]["labels"]["changed"] = "true"
                await api.patch(SETS.path(space, "serve"), {"spec": {"leaderWorkerTemplate": group}})
                await until_said(api, space, "serve-0", "its gang")
                assert (await api.get(worker, dict[str, Any]))["metadata"]["uid"] == first["serve-0-1"]
                await api.patch(worker, {"metadata": {"finalizers": None}})
                again = await until_needs(api, space, ["1/3", "2/3", "2/3"])
                assert not set(first.values()) & set(again.values())

    asyncio.run(story())


def a_ray_cluster(name: str, replicas: int) -> dict[str, Any]:
    """A head without GPUs, and workers with one each."""
    workers = {"groupName": "small", "replicas": replicas, "minReplicas": 0, "maxReplicas": 8}
    spec = {
        "rayVersion": "2.52.0",
        "headGroupSpec": {"rayStartParams": {}, "template": a_template(0)},
        "workerGroupSpecs": [{**workers, "rayStartParams": {}, "template": a_template(1)}],
    }
    return {"apiVersion": RAY_CLUSTERS.version, "kind": "RayCluster", "metadata": {"name": name}, "spec": spec}


async def with_workers(api: Api, space: str, replicas: int) -> None:
    spec = a_ray_cluster("ray", replicas)["spec"]
    await api.patch(RAY_CLUSTERS.path(space, "ray"), {"spec": {"workerGroupSpecs": spec["workerGroupSpecs"]}})


def test_a_ray_cluster_is_one_gang_that_grows_and_shrinks_and_comes_again(
    cluster: Cluster, plane: ControlPlane
) -> None:
    async def story() -> None:
        async with session(cluster) as api, gpu_nodes(api, 1, "ray"), running(plane, cluster):
            space = await a_namespace(api)
            async with followed(api, RAY_CLUSTERS, space, a_ray_cluster("ray", 2)):
                first = await until_needs(api, space, ["1/3", "2/3", "2/3"])
                await until_jobs(plane, space, {"ray.ray": "running"})
                await with_workers(api, space, 3)
                grown = await until_needs(api, space, ["1/3", "2/3", "2/3", "2/3"])
                assert first.items() <= grown.items()
                await with_workers(api, space, 1)
                await until_needs(api, space, ["1/2", "1/2"])
                await api.create(PODS.path(space), a_worker("first", "first", 1, gpus=4, queue="owner"))
                await until_on_a_node(api, space, "first")
                await api.delete(PODS.path(space, "first"), {"gracePeriodSeconds": 0})
                again = await until_needs(api, space, ["1/2", "1/2"])
                assert not set(first.values()) & set(again.values())

    asyncio.run(story())


def an_mpi_job(name: str, workers: int, **said: Any) -> dict[str, Any]:
    launcher = {"replicas": 1, "template": a_template(0), "restartPolicy": "OnFailure"}
    roles = {"Launcher": launcher, "Worker": {"replicas": workers, "template": a_template(1)}}
    spec = {"slotsPerWorker": 1, "mpiReplicaSpecs": roles, "runPolicy": {"cleanPodPolicy": "Running"}, **said}
    return {"apiVersion": MPI_JOBS.version, "kind": "MPIJob", "metadata": {"name": name}, "spec": spec}


def test_an_mpi_job_is_one_gang_or_two_where_its_launcher_waits(cluster: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(cluster) as api, gpu_nodes(api, 1, "mpi"), running(plane, cluster):
            space = await a_namespace(api)
            async with followed(api, MPI_JOBS, space, an_mpi_job("ring", 2)):
                await until_needs(api, space, ["1/3", "2/3", "2/3"])
                await until_jobs(plane, space, {"kubeflow.ring": "running"})
            waits = an_mpi_job("late", 2, launcherCreationPolicy="WaitForWorkersReady")
            async with followed(api, MPI_JOBS, space, waits):
                await until_needs(api, space, ["1/1", "2/2", "2/2"])
                await until_jobs(plane, space, {"kubeflow.late:launcher": "running", "kubeflow.late:worker": "running"})

    asyncio.run(story())
