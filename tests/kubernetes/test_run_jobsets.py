"""`quorate run --kubernetes` beside the controllers of JobSets and of Kubeflow Trainer themselves, with their own webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.components import place
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import PODS, Resource
from reconciler.kubernetes.objects.workloads import WORKLOADS
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes import gang_controllers
from tests.kubernetes.gang_controllers import (
    JOBSET,
    TRAINER,
    a_template,
    beside,
    followed,
    needs,
    pods_of,
    until_jobs,
    until_made,
    until_needs,
    until_on_a_node,
)
from tests.kubernetes.kueue import MANAGER, QUEUE_LABEL, queues, real
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, gone_afterwards, session
from tests.kubernetes.test_run import a_worker, gpu_nodes, running
from tests.kubernetes.test_run_affinity import until_said
from tests.kubernetes.test_run_kueue import H100

pytestmark = [*REAL, pytest.mark.long, needs(JOBSET, TRAINER)]

POLICY = gang_controllers.POLICY
JOBSETS = Resource("jobset.x-k8s.io/v1alpha2", "jobsets")
TRAIN_JOBS = Resource("trainer.kubeflow.org/v1alpha1", "trainjobs")
RUNTIMES = Resource("trainer.kubeflow.org/v1alpha1", "clustertrainingruntimes")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with beside(tmp_path_factory.mktemp("beside"), (JOBSET, TRAINER)) as made:
        yield made


def a_replicated(name: str, replicas: int, parallelism: int, gpus: int, **said: Any) -> dict[str, Any]:
    template = a_template(gpus)
    template["spec"]["restartPolicy"] = "Never"
    job = {"parallelism": parallelism, "completions": parallelism, "backoffLimit": 0, "template": template}
    return {"name": name, "replicas": replicas, "template": {"spec": job}, **said}


def a_jobset(name: str, *replicated: Mapping[str, Any], **said: Any) -> dict[str, Any]:
    spec = {"replicatedJobs": list(replicated), "failurePolicy": {"maxRestarts": 5}, **said}
    return {"apiVersion": JOBSETS.version, "kind": "JobSet", "metadata": {"name": name}, "spec": spec}


def test_a_jobset_is_one_gang_that_is_evicted_whole_and_comes_again(cluster: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(cluster) as api, gpu_nodes(api, 1, "jobset"), running(plane, cluster):
            space = await a_namespace(api)
            jobset = a_jobset("llm", a_replicated("driver", 1, 1, 0), a_replicated("worker", 2, 2, 1))
            async with followed(api, JOBSETS, space, jobset):
                first = await until_needs(api, space, ["1/5", *["4/5"] * 4])
                await until_jobs(plane, space, {"jobset.llm": "running"})
                await api.create(PODS.path(space), a_worker("first", "first", 1, gpus=4, queue="owner"))
                await until_on_a_node(api, space, "first")
                await api.delete(PODS.path(space, "first"), {"gracePeriodSeconds": 0})
                again = await until_needs(api, space, ["1/5", *["4/5"] * 4])
                assert not set(first.values()) & set(again.values())

    asyncio.run(story())


def test_a_jobset_that_can_never_fit_is_told_so(cluster: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(cluster) as api, gpu_nodes(api, 1, "large"), running(plane, cluster):
            space = await a_namespace(api)
            async with followed(api, JOBSETS, space, a_jobset("large", a_replicated("worker", 3, 2, 1))):
                said = await until_said(api, space, await until_new(api, space, {}), "room for")
                assert "group worker needs 6 x 1 H100-SXM5-80GB; the empty cluster has room for 4 such tasks" in said

    asyncio.run(story())


def is_new(pod: Mapping[str, Any], first: Mapping[str, str]) -> bool:
    return pod["metadata"]["uid"] not in first.values()


async def until_new(api: Api, space: str, first: Mapping[str, str]) -> str:
    """The name of a pod that was not there at first."""
    async with asyncio.timeout(SOON_S):
        while not (new := [pod for pod in await pods_of(api, space) if is_new(pod, first)]):
            await asyncio.sleep(0.05)
    return str(new[0]["metadata"]["name"])


async def released(api: Api, space: str) -> None:
    """Pods that a finalizer has kept may go."""
    for pod in await pods_of(api, space):
        if pod["metadata"].get("finalizers") and "slow" in pod["metadata"]["name"]:
            await api.patch(PODS.path(space, pod["metadata"]["name"]), {"metadata": {"finalizers": None}})


def test_a_jobset_that_restarts_starts_whole_again(cluster: Cluster, plane: ControlPlane) -> None:
    """Its controller makes one Job anew while pods of the other are still ending."""

    async def story() -> None:
        async with session(cluster) as api, gpu_nodes(api, 1, "restart"), running(plane, cluster):
            space = await a_namespace(api)
            slow = a_replicated("slow", 1, 2, 1)
            slow["template"]["spec"]["template"]["metadata"]["finalizers"] = ["quorate.dev/test"]
            async with followed(api, JOBSETS, space, a_jobset("llm", a_replicated("quick", 1, 2, 1), slow)):
                first = await until_needs(api, space, ["2/4"] * 4)
                await until_jobs(plane, space, {"jobset.llm": "running"})
                failed = next(name for name in first if "quick" in name)
                await api.patch(PODS.path(space, failed, "status"), {"status": {"phase": "Failed"}})
                waits = await until_new(api, space, first)
                assert "are ending: all of it starts anew" in await until_said(api, space, waits, "its gang")
                assert not any(pod["spec"].get("nodeName") for pod in await pods_of(api, space) if is_new(pod, first))
                await released(api, space)
                again = await until_needs(api, space, ["2/4"] * 4)
                assert not set(first.values()) & set(again.values())
                await released(api, space)

    asyncio.run(story())


def test_stages_of_a_jobset_start_one_after_the_other(cluster: Cluster, plane: ControlPlane) -> None:
    """By its own controller: nodes once the data is Complete, the launcher once the nodes are Ready."""
    after = [{"name": "data", "status": "Complete"}]
    jobset = a_jobset(
        "mpi",
        a_replicated("data", 1, 1, 0),
        a_replicated("node", 2, 1, 1, dependsOn=after),
        a_replicated("launcher", 1, 1, 0, dependsOn=[{"name": "node", "status": "Ready"}]),
    )

    async def story() -> None:
        async with session(cluster) as api, gpu_nodes(api, 1, "turn"), running(plane, cluster):
            space = await a_namespace(api)
            async with followed(api, JOBSETS, space, jobset):
                data = await until_needs(api, space, ["1/1"])
                await api.patch(PODS.path(space, next(iter(data)), "status"), {"status": {"phase": "Succeeded"}})
                await until_needs(api, space, ["1/1", "1/1", "2/2", "2/2"])
                await until_jobs(plane, space, {"jobset.mpi:node": "running", "jobset.mpi:launcher": "running"})

    asyncio.run(story())


def a_runtime(name: str, *replicated: Mapping[str, Any], **said: Any) -> dict[str, Any]:
    """For PyTorch, as Kubeflow ships its own: the nodes are the ReplicatedJob `node`, whose container has that name."""
    policy = {"numNodes": 1, "torch": {}}
    spec = {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": list(replicated)}}, **said}
    labels = {"trainer.kubeflow.org/framework": "torch"}
    return {
        "apiVersion": RUNTIMES.version,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }


def a_step(role: str, step: str, **said: Any) -> dict[str, Any]:
    made = a_replicated(role, 1, 1, 0, **said)
    made["template"]["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": step}}
    made["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = role
    return made


def a_train_job(name: str, runtime: str, nodes: int, gpus: int) -> dict[str, Any]:
    limits = {names.GPU: str(gpus), "cpu": "1"}
    spec = {
        "runtimeRef": {"name": runtime},
        "trainer": {"numNodes": nodes, "resourcesPerNode": {"requests": limits, "limits": limits}},
    }
    return {"apiVersion": TRAIN_JOBS.version, "kind": "TrainJob", "metadata": {"name": name}, "spec": spec}


@asynccontextmanager
async def with_runtime(api: Api, runtime: Mapping[str, Any]) -> AsyncIterator[None]:
    async with gone_afterwards(api, RUNTIMES.path("", runtime["metadata"]["name"])):
        await until_made(api, RUNTIMES, "", runtime)
        yield


def test_a_train_job_is_one_gang_that_stops_and_starts_again(cluster: Cluster, plane: ControlPlane) -> None:
    """By Trainer's controller, which makes a JobSet of it."""

    async def story() -> None:
        async with (
            session(cluster) as api,
            gpu_nodes(api, 1, "train"),
            running(plane, cluster),
            with_runtime(api, a_runtime("torch", a_step("node", "trainer"))),
        ):
            space = await a_namespace(api)
            async with followed(api, TRAIN_JOBS, space, a_train_job("llm", "torch", 2, 2)):
                first = await until_needs(api, space, ["2/2", "2/2"])
                await until_jobs(plane, space, {"jobset.llm": "running"})
                await api.patch(TRAIN_JOBS.path(space, "llm"), {"spec": {"suspend": True}})
                await until_needs(api, space, [])
                await api.patch(TRAIN_JOBS.path(space, "llm"), {"spec": {"suspend": False}})
                again = await until_needs(api, space, ["2/2", "2/2"])
                assert not set(first.values()) & set(again.values())

    asyncio.run(story())


def test_nodes_of_a_train_job_start_once_its_data_is_there(cluster: Cluster, plane: ControlPlane) -> None:
    after = [{"name": "dataset-initializer", "status": "Complete"}]
    data, node = a_step("dataset-initializer", "dataset-initializer"), a_step("node", "trainer", dependsOn=after)

    async def story() -> None:
        async with (
            session(cluster) as api,
            gpu_nodes(api, 1, "data"),
            running(plane, cluster),
            with_runtime(api, a_runtime("tune", data, node)),
        ):
            space = await a_namespace(api)
            async with followed(api, TRAIN_JOBS, space, a_train_job("llm", "tune", 2, 2)):
                (pod,) = await until_needs(api, space, ["1/1"])
                await api.patch(PODS.path(space, pod, "status"), {"status": {"phase": "Succeeded"}})
                await until_needs(api, space, ["1/1", "2/2", "2/2"])

    asyncio.run(story())


def test_a_pod_group_of_trainer_that_counts_what_comes_later_keeps_nothing_waiting(
    cluster: Cluster, plane: ControlPlane
) -> None:
    """It counts the initializers in, and never would be whole."""
    after = [{"name": "dataset-initializer", "status": "Complete"}]
    data, node = a_step("dataset-initializer", "dataset-initializer"), a_step("node", "trainer", dependsOn=after)

    async def story() -> None:
        async with (
            session(cluster) as api,
            gpu_nodes(api, 1, "grouped"),
            running(plane, cluster),
            with_runtime(api, a_runtime("grouped", data, node, podGroupPolicy={"coscheduling": {}})),
        ):
            space = await a_namespace(api)
            async with followed(api, TRAIN_JOBS, space, a_train_job("llm", "grouped", 2, 2)):
                (pod,) = await until_needs(api, space, ["1/1"])
                await api.patch(PODS.path(space, pod, "status"), {"status": {"phase": "Succeeded"}})
                await until_needs(api, space, ["1/1", "2/2", "2/2"])
                await until_jobs(plane, space, {"coscheduling.llm:node": "running"})

    asyncio.run(story())


@pytest.mark.skipif(not place().has(MANAGER), reason="needs python -m hack.kubernetes --with kueue")
def test_a_jobset_of_kueue_is_admitted_and_suspended_again_by_kueues_own_manager(
    cluster: Cluster, plane: ControlPlane, tmp_path: Path
) -> None:
    jobset = a_jobset("llm", a_replicated("driver", 1, 1, 0), a_replicated("worker", 2, 2, 1), suspend=True)
    jobset["metadata"]["labels"] = {QUEUE_LABEL: "team"}

    async def story() -> None:
        frameworks = ("jobset.x-k8s.io/jobset",)
        async with session(cluster) as api, gpu_nodes(api, 1, "kueue"), running(plane, cluster):
            space = await a_namespace(api)
            async with (
                queues(api, space, "research", "h100", H100),
                real(place(), cluster, tmp_path, frameworks, jobs=False),
                followed(api, JOBSETS, space, jobset),
            ):
                first = await until_needs(api, space, ["1/5", *["4/5"] * 4])
                (workload,) = (await api.get(WORKLOADS[0].path(space), dict[str, Any]))["items"]
                assert [one["count"] for one in workload["status"]["admission"]["podSetAssignments"]] == [1, 4]
                await api.create(PODS.path(space), a_worker("first", "first", 1, gpus=4, queue="owner"))
                await until_on_a_node(api, space, "first")
                assert (await api.get(JOBSETS.path(space, "llm"), dict[str, Any]))["spec"]["suspend"]
                await api.delete(PODS.path(space, "first"), {"gracePeriodSeconds": 0})
                again = await until_needs(api, space, ["1/5", *["4/5"] * 4])
                assert not set(first.values()) & set(again.values())

    asyncio.run(story())
