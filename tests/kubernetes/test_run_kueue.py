"""`quorate run --kubernetes` admits jobs of Kueue: those beside an imitation of its integrations, and beside its own manager."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.components import place
from hack.kubernetes.shipped import ACCOUNT, GROUPS
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import NotAllowedError
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.objects.workloads import WORKLOADS
from reconciler.kubernetes.status.events import EVENTS
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.controllers import CONTROLLERS
from tests.kubernetes.kueue import JOBS, MANAGER, Imitation, a_job, queues, real
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, session
from tests.kubernetes.test_run import a_worker, bound, gpu_nodes, running, until_bound

pytestmark = REAL

_V1 = "apiVersion: quorate.dev/v1\nkind: "
POLICY = {
    "policies/scheduling.yaml": _V1 + "SchedulingPolicy\nmetadata: {name: cluster}\nspec: {evictions: {backOff: 1s}}\n",
    "policies/batch.yaml": _V1
    + "PriorityClass\nmetadata: {name: batch}\nspec: {value: 1, protection: {minRuntime: 0s}}\n",
    **{
        f"policies/{queue}.yaml": _V1 + f"Queue\nmetadata: {{name: {queue}}}\n"
        f"spec: {{quota: [{{gpuType: H100-SXM5-80GB, guaranteed: {guaranteed}}}]}}\n"
        for queue, guaranteed in (("owner", 4), ("research", 0))
    },
}
H100 = {names.PRODUCT: "NVIDIA-H100-80GB-HBM3"}


async def until_told(api: Api, space: str, workload: str, words: str) -> None:
    async with asyncio.timeout(SOON_S):
        while not any(words in note for note in await _notes(api, space, workload)):
            await asyncio.sleep(0.1)


async def _notes(api: Api, space: str, workload: str) -> list[str]:
    found = await api.get(EVENTS.path(space), dict[str, Any])
    return [one["note"] for one in found["items"] if one["regarding"].get("name") == workload]


async def until_suspended(api: Api, space: str, job: str, suspended: bool) -> None:
    async with asyncio.timeout(SOON_S):
        while (await api.get(JOBS.path(space, job), dict[str, Any]))["spec"]["suspend"] != suspended:
            await asyncio.sleep(0.1)


async def until_has_pods(api: Api, space: str, job: str, count: int) -> dict[str, str]:
    """So many pods of a job have nodes: where each is."""
    there: dict[str, str] = {}
    async with asyncio.timeout(SOON_S):
        while len(there) != count:
            await asyncio.sleep(0.1)
            there = {name: node for name, node in (await bound(api, space)).items() if name.startswith(f"{job}-")}
    return there


def test_a_suspended_job_is_admitted_when_all_of_it_can_start_and_waits_in_line_until_then(
    shipped: Cluster, plane: ControlPlane
) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "kueue"), running(plane, shipped):
            space = await a_namespace(api)
            async with queues(api, space, "research", "h100", H100), asyncio.TaskGroup() as tasks:
                kueue = Imitation(api, space)
                following = tasks.create_task(kueue.follow())
                await api.create(PODS.path(space), a_worker("other", "other", 1, gpus=2))
                await until_bound(api, space, 1)
                await kueue.suspended(a_job("large", 4))
                await until_told(api, space, "job-large", "waits:")
                await kueue.suspended(a_job("small", 2))
                await until_has_pods(api, space, "small", 2)
                status = await kueue.status("small")
                (assigned,) = status["admission"]["podSetAssignments"]
                usage = {"cpu": "2", "memory": str(2 * 2**30), "nvidia.com/gpu": "2"}
                assert (status["admission"]["clusterQueue"], assigned["count"]) == ("research", 2)
                assert (assigned["flavors"], assigned["resourceUsage"]) == (dict.fromkeys(usage, "h100"), usage)
                assert (await kueue.status("large")) == {}
                for pod in await bound(api, space):
                    await api.delete(PODS.path(space, pod), {"gracePeriodSeconds": 0})
                await until_has_pods(api, space, "large", 4)
                following.cancel()

    asyncio.run(story())


def test_a_job_that_is_evicted_is_suspended_and_admitted_again_later(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "evicted"), running(plane, shipped):
            space = await a_namespace(api)
            async with queues(api, space, "research", "h100", H100), asyncio.TaskGroup() as tasks:
                kueue = Imitation(api, space)
                following = tasks.create_task(kueue.follow())
                await kueue.suspended(a_job("low", 4))
                await until_has_pods(api, space, "low", 4)
                first = a_worker("first", "first", 1, gpus=4, queue="owner")
                await api.create(PODS.path(space), first)
                async with asyncio.timeout(SOON_S):
                    while "first" not in await bound(api, space):
                        await asyncio.sleep(0.1)
                await until_suspended(api, space, "low", True)
                assert "admission" not in await kueue.status("low")
                await api.delete(PODS.path(space, "first"), {"gracePeriodSeconds": 0})
                await until_has_pods(api, space, "low", 4)
                following.cancel()

    asyncio.run(story())


def test_what_can_not_be_admitted_is_told_at_its_workload(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "refused"), running(plane, shipped):
            space = await a_namespace(api)
            async with queues(api, space, "research", "h100", H100):
                kueue = Imitation(api, space)
                await kueue.suspended(a_job("gated", 1), preemptionGates=[{"name": "kueue.x-k8s.io/multikueue"}])
                await until_told(api, space, "job-gated", "refused: it may be sent to other clusters")

    asyncio.run(story())


def test_its_account_admits_no_workload_of_another_scheduler(
    shipped: Cluster,
) -> None:
    async def story() -> None:
        async with session(shipped) as api, session(shipped, ACCOUNT, GROUPS) as ours:
            space = await a_namespace(api)
            async with queues(api, space, "research", "h100", H100):
                kueue = Imitation(api, space)
                for name, scheduler in (("own", "quorate"), ("other", "default-scheduler")):
                    job = a_job(name, 1, schedulerName=scheduler)
                    await kueue.suspended(job)
                at = {name: WORKLOADS[0].path(space, f"job-{name}") for name in ("own", "other")}
                admission = {"status": {"admission": {"clusterQueue": "research", "podSetAssignments": []}}}
                await ours.patch(f"{at['own']}/status", admission)
                with pytest.raises(NotAllowedError, match="only Workloads with pods whose schedulerName is quorate"):
                    await ours.patch(f"{at['other']}/status", admission)

    asyncio.run(story())


def _is_built() -> bool:
    where = place()
    return where.has(MANAGER) and where.has(CONTROLLERS)


@pytest.mark.skipif(not _is_built(), reason="needs python -m hack.kubernetes --with kueue,kube-controller-manager")
def test_beside_kueues_own_manager_its_jobs_are_admitted_run_and_suspended_again(
    shipped: Cluster, plane: ControlPlane, tmp_path: Path
) -> None:
    """Of one pod: the controller of Jobs takes an evicted pod for a failed one, and waits the longer the more there were."""

    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "real"), running(plane, shipped):
            space = await a_namespace(api)
            async with queues(api, space, "research", "h100", H100), real(place(), shipped, tmp_path):
                await api.create(JOBS.path(space), a_job("low", 1, gpus=4))
                await until_has_pods(api, space, "low", 1)
                (workload,) = (await api.get(WORKLOADS[0].path(space), dict[str, Any]))["items"]
                assert workload["status"]["admission"]["podSetAssignments"][0]["flavors"]["nvidia.com/gpu"] == "h100"
                first = a_worker("first", "first", 1, gpus=4, queue="owner")
                await api.create(PODS.path(space), first)
                await until_suspended(api, space, "low", True)
                await api.delete(PODS.path(space, "first"), {"gracePeriodSeconds": 0})
                await until_has_pods(api, space, "low", 1)
                await until_suspended(api, space, "low", False)
                at = WORKLOADS[0].path(space, workload["metadata"]["name"])
                await api.patch(at, {"spec": {"active": False}})
                await until_suspended(api, space, "low", True)
                await until_has_pods(api, space, "low", 0)

    asyncio.run(story())
