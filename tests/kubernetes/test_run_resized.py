"""`quorate run --kubernetes` and jobs that are made larger and smaller while they run. Their controller is imitated."""

from __future__ import annotations

import asyncio
from typing import Any

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import PODS
from solver.model.workload import JobName
from tests.e2e.control_plane import ControlPlane
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

    asyncio.run(story())
