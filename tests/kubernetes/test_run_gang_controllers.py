"""`quorate run --kubernetes` beside the real controllers of JobSets, LeaderWorkerSets and TrainJobs, with their own webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import PODS, Resource
from solver.model.workload import JobName
from tests.e2e.control_plane import ControlPlane, until
from tests.kubernetes.gang_controllers import JOBSET, LWS, TRAINER, beside, followed, needs, pods_of, until_made
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, gone_afterwards, session
from tests.kubernetes.test_run import a_worker, gpu_nodes, running
from tests.kubernetes.test_run_affinity import until_said

pytestmark = [*REAL, needs(JOBSET, LWS, TRAINER)]

_V1 = "apiVersion: quorate.dev/v1\nkind: "
POLICY = {
    "policies/scheduling.yaml": _V1
    + "SchedulingPolicy\nmetadata: {name: cluster}\nspec: {startDeadline: 30s, evictions: {backOff: 1s}}\n",
    "policies/batch.yaml": _V1
    + "PriorityClass\nmetadata: {name: batch}\nspec: {value: 1, protection: {minRuntime: 0s}}\n",
    **{
        f"policies/{queue}.yaml": _V1 + f"Queue\nmetadata: {{name: {queue}}}\n"
        f"spec: {{quota: [{{gpuType: H100-SXM5-80GB, guaranteed: {guaranteed}}}]}}\n"
        for queue, guaranteed in (("owner", 4), ("research", 0))
    },
}
JOBSETS = Resource("jobset.x-k8s.io/v1alpha2", "jobsets")
SETS = Resource("leaderworkerset.x-k8s.io/v1", "leaderworkersets")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with beside(tmp_path_factory.mktemp("beside"), (JOBSET, LWS, TRAINER)) as made:
        yield made


def a_template(gpus: int) -> dict[str, Any]:
    """Of a pod."""
    requests = {"cpu": "1", "memory": "1Gi", **({names.GPU: str(gpus)} if gpus else {})}
    container = {"name": "main", "image": "none", "resources": {"requests": requests, "limits": requests}}
    spec = {"schedulerName": names.SCHEDULER, "containers": [container], "terminationGracePeriodSeconds": 0}
    return {"metadata": {"labels": {names.QUEUE: "research", names.PRIORITY_CLASS: "batch"}}, "spec": spec}


def a_replicated(name: str, replicas: int, parallelism: int, gpus: int, **said: Any) -> dict[str, Any]:
    template = a_template(gpus)
    template["spec"]["restartPolicy"] = "Never"
    job = {"parallelism": parallelism, "completions": parallelism, "backoffLimit": 0, "template": template}
    return {"name": name, "replicas": replicas, "template": {"spec": job}, **said}


def a_jobset(name: str, *replicated: Mapping[str, Any], **said: Any) -> dict[str, Any]:
    spec = {"replicatedJobs": list(replicated), "failurePolicy": {"maxRestarts": 5}, **said}
    return {"apiVersion": JOBSETS.version, "kind": "JobSet", "metadata": {"name": name}, "spec": spec}


async def until_needs(api: Api, space: str, needs: Sequence[str]) -> dict[str, str]:
    """The uids of the pods on nodes by their names, once these say with how many they were bound."""
    said: list[str] | None = None
    there: list[dict[str, Any]] = []
    async with asyncio.timeout(SOON_S):
        while said != sorted(needs):
            await asyncio.sleep(0.05)
            there = [pod for pod in await pods_of(api, space) if pod["spec"].get("nodeName")]
            there = [pod for pod in there if not pod["metadata"].get("deletionTimestamp")]
            said = sorted(pod["metadata"].get("annotations", {}).get(names.NEEDS, "") for pod in there)
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in there}


async def until_on_a_node(api: Api, space: str, pod: str) -> None:
    async with asyncio.timeout(SOON_S):
        while not (await api.get(PODS.path(space, pod), dict[str, Any]))["spec"].get("nodeName"):
            await asyncio.sleep(0.1)


def until_state(plane: ControlPlane, job: JobName, state: str) -> None:
    with plane.client() as client:
        until(f"{job} is {state}", lambda: client.job(job).state == state)


def test_a_jobset_is_one_gang_that_is_evicted_whole_and_comes_again(cluster: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(cluster) as api, gpu_nodes(api, 1, "jobset"), running(plane, cluster):
            space = await a_namespace(api)
            jobset = a_jobset("llm", a_replicated("driver", 1, 1, 0), a_replicated("worker", 2, 2, 1))
            async with followed(api, JOBSETS, space, jobset):
                first = await until_needs(api, space, ["1/5", *["4/5"] * 4])
                job = JobName(f"{space}.jobset.llm")
                await asyncio.to_thread(until_state, plane, job, "running")
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
                async with asyncio.timeout(SOON_S):
                    while len(await pods_of(api, space)) < 6:
                        await asyncio.sleep(0.1)
                pod = (await pods_of(api, space))[0]["metadata"]["name"]
                print(await until_said(api, space, pod, "room for"))

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
                await asyncio.to_thread(until_state, plane, JobName(f"{space}.jobset.llm"), "running")
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


def test_what_a_jobset_makes_in_turn_starts_in_turn(cluster: Cluster, plane: ControlPlane) -> None:
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
                with plane.client() as client:
                    there = {view.name.removeprefix(f"{space}.") for view in client.jobs().items}
                print(there)

    asyncio.run(story())


def a_set(name: str, replicas: int, size: int, **said: Any) -> dict[str, Any]:
    """A LeaderWorkerSet whose pods have a GPU each."""
    group = {"size": size, "workerTemplate": a_template(1), "restartPolicy": "RecreateGroupOnPodRestart"}
    spec = {"replicas": replicas, "leaderWorkerTemplate": group, **said}
    return {"apiVersion": SETS.version, "kind": "LeaderWorkerSet", "metadata": {"name": name}, "spec": spec}


async def jobs_of(plane: ControlPlane, space: str) -> dict[str, str]:
    """The state of each of its jobs, without the namespace before its name."""

    def asked() -> dict[str, str]:
        with plane.client() as client:
            return {view.name: view.state for view in client.jobs().items}

    known = await asyncio.to_thread(asked)
    return {name.removeprefix(f"{space}."): state for name, state in known.items() if name.startswith(f"{space}.")}


async def until_jobs(plane: ControlPlane, space: str, jobs: Mapping[str, str]) -> None:
    async with asyncio.timeout(SOON_S):
        while (known := await jobs_of(plane, space)) != jobs:
            await asyncio.sleep(0.2)


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
                    while not {"serve-2", "serve-2-1"} <= {pod["metadata"]["name"] for pod in await pods_of(api, space)}:
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


TRAIN_JOBS = Resource("trainer.kubeflow.org/v1alpha1", "trainjobs")
RUNTIMES = Resource("trainer.kubeflow.org/v1alpha1", "clustertrainingruntimes")


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
