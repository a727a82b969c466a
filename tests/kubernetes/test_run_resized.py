"""`quorate run --kubernetes` and jobs that are made larger and smaller while they run. Their controller is imitated."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import PODS
from solver.model.workload import JobName
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.controllers import controllers, needs_controllers, without_jobs
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, session
from tests.kubernetes.test_run import POLICY as QUEUES
from tests.kubernetes.test_run import a_worker, bound, gpu_nodes, running, until_bound
from tests.kubernetes.test_run_affinity import until_said
from tests.kubernetes.test_run_controllers import JOBS, a_made_pod, put
from tests.kubernetes.test_run_limits import until_left
from tests.kubernetes.test_run_replaced import _until_started

pytestmark = REAL

POLICY = QUEUES | {
    "policies/scheduling.yaml": (
        "apiVersion: quorate.dev/v1\nkind: SchedulingPolicy\nmetadata: {name: cluster}\nspec: {startDeadline: 3s}\n"
    ),
}


def of_job(number: int, gpus: int = 1) -> dict[str, Any]:
    labels = {"batch.kubernetes.io/job-name": "train", "batch.kubernetes.io/job-completion-index": str(number)}
    return a_made_pod(f"train-{number}", labels, gpus=gpus)


async def a_job(api: Api, space: str, parallelism: int) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
    size = {"parallelism": parallelism, "completions": parallelism, "completionMode": "Indexed"}
    await api.create(JOBS.path(space), {"metadata": {"name": "train"}, "spec": {**size, "template": template}})


async def resized(api: Api, space: str, parallelism: int) -> None:
    await api.patch(JOBS.path(space, "train"), {"spec": {"parallelism": parallelism, "completions": parallelism}})


async def until_needs(api: Api, space: str, needs: dict[str, str]) -> None:
    """The pods that run, each with how many it says that its gang needs."""
    said: dict[str, str | None] = {}
    async with asyncio.timeout(SOON_S):
        while said != needs:
            await asyncio.sleep(0.05)
            pods = (await api.get(PODS.path(space), dict[str, Any]))["items"]
            said = {
                pod["metadata"]["name"]: pod["metadata"]["annotations"].get(names.NEEDS)
                for pod in pods
                if pod["metadata"]["name"].startswith("train-") and pod["spec"].get("nodeName")
            }


async def uids(api: Api, space: str) -> dict[str, str]:
    pods = (await api.get(PODS.path(space), dict[str, Any]))["items"]
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


def test_a_job_that_is_made_larger_runs_on_and_grows_when_there_is_room(shipped: Cluster, plane: ControlPlane) -> None:
    """For longer than a start may take: a gang that has lost a pod is released by then."""

    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "larger"), running(plane, shipped):
            space = await a_namespace(api)
            await a_job(api, space, 2)
            await put(api, space, [of_job(0), of_job(1), a_worker("other", "other", 1, gpus=2)])
            short = [a_worker(f"short-{number}", "short", 2, gpus=0) for number in range(2)]
            await put(api, space, short)
            await until_bound(api, space, 5)
            await _until_started(api, space)
            before = await uids(api, space)
            await resized(api, space, 4)
            await put(api, space, [of_job(2), of_job(3)])
            assert "runs on 2 of 4 pods" in await until_said(api, space, "train-3", "which is enough for it")
            with plane.client() as client:
                job = client.job(JobName(f"{space}.job.train"))
            assert job.state == "running"
            await api.delete(PODS.path(space, "short-1"))
            large = a_worker("short-1", "short", 2, gpus=0)
            large["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1000"}}
            await put(api, space, [large])
            await until_left(api, space, {"other", "short-1", *(f"train-{number}" for number in range(4))})
            assert set(await bound(api, space)) == {"train-0", "train-1", "other"}
            await api.delete(PODS.path(space, "other"))
            await until_needs(api, space, {f"train-{number}": "2/2" for number in range(4)})
            after = await uids(api, space)
            assert {name: after[name] for name in ("train-0", "train-1")} == {
                name: before[name] for name in ("train-0", "train-1")
            }
            await without_jobs(api, space)

    asyncio.run(story())


def test_a_job_that_is_made_smaller_gives_up_what_its_controller_ends_and_may_grow_again(
    shipped: Cluster, plane: ControlPlane
) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "smaller"), running(plane, shipped):
            space = await a_namespace(api)
            await a_job(api, space, 3)
            await put(api, space, [of_job(number) for number in range(3)])
            await until_bound(api, space, 3)
            await _until_started(api, space)
            await put(api, space, [a_worker("waits", "waits", 1, gpus=2)])
            await until_said(api, space, "waits", "waits:")
            await resized(api, space, 1)
            await until_needs(api, space, {f"train-{number}": "1/1" for number in range(3)})
            await api.delete(PODS.path(space, "train-2"))
            await api.delete(PODS.path(space, "train-1"))
            assert set(await until_bound(api, space, 2)) == {"train-0", "waits"}
            await resized(api, space, 2)
            await put(api, space, [of_job(1)])
            await until_needs(api, space, {"train-0": "1/1", "train-1": "1/1"})
            await without_jobs(api, space)

    asyncio.run(story())


async def a_real_job(api: Api, space: str, parallelism: int) -> None:
    """Of which Kubernetes' own controller makes the pods."""
    requests = {names.GPU: "1", "cpu": "1", "memory": "1Gi"}
    container = {"name": "main", "image": "none", "resources": {"requests": requests, "limits": requests}}
    spec = {"schedulerName": names.SCHEDULER, "restartPolicy": "Never", "containers": [container]}
    template = {"metadata": {"labels": {"quorate.dev/queue": "research"}}, "spec": spec}
    size = {"parallelism": parallelism, "completions": parallelism, "completionMode": "Indexed"}
    await api.create(JOBS.path(space), {"metadata": {"name": "train"}, "spec": {**size, "template": template}})


async def until_there(api: Api, space: str, indices: set[str]) -> dict[str, str]:
    """The uids of the pods that run, by their indices, once they are these."""
    there: dict[str, str] = {}
    async with asyncio.timeout(SOON_S):
        while there.keys() != indices:
            await asyncio.sleep(0.1)
            there = {
                pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]: pod["metadata"]["uid"]
                for pod in (await api.get(PODS.path(space), dict[str, Any]))["items"]
                if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
            }
    return there


@needs_controllers
def test_an_elastic_job_of_kubernetes_own_controller_grows_and_shrinks(
    shipped: Cluster, plane: ControlPlane, tmp_path: Path
) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "own"), running(plane, shipped):
            space = await a_namespace(api)
            async with controllers(shipped, tmp_path, api, space):
                await a_real_job(api, space, 2)
                before = await until_there(api, space, {"0", "1"})
                await resized(api, space, 4)
                grown = await until_there(api, space, {"0", "1", "2", "3"})
                await resized(api, space, 1)
                shrunk = await until_there(api, space, {"0"})
                assert (grown["0"], grown["1"], shrunk["0"]) == (before["0"], before["1"], before["0"])

    asyncio.run(story())


@needs_controllers
def test_a_job_whose_pod_group_kubernetes_own_controller_makes_is_one_gang(
    shipped: Cluster, plane: ControlPlane, tmp_path: Path
) -> None:
    """As kube-scheduler's own gangs are made in 1.36: by the feature WorkloadWithJob."""

    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "groups"), running(plane, shipped):
            space = await a_namespace(api)
            async with controllers(shipped, tmp_path, api, space, ("GenericWorkload", "WorkloadWithJob")):
                await put(api, space, [a_worker("other", "other", 1, gpus=2)])
                await until_bound(api, space, 1)
                await a_real_job(api, space, 3)
                async with asyncio.timeout(SOON_S):
                    while len(pods := (await api.get(PODS.path(space), dict[str, Any]))["items"]) < 4:
                        await asyncio.sleep(0.1)
                (group,) = {pod["spec"].get("schedulingGroup", {}).get("podGroupName") for pod in pods} - {None}
                waits = next(pod["metadata"]["name"] for pod in pods if pod["metadata"]["name"] != "other")
                await until_said(api, space, waits, "waits:")
                with plane.client() as client:
                    assert client.job(JobName(f"{space}.podgroup.{group}")).state == "queued"
                await api.delete(PODS.path(space, "other"), {"gracePeriodSeconds": 0})
                await until_there(api, space, {"0", "1", "2"})

    asyncio.run(story())
