"""`quorate run --kubernetes` takes back what was lent: the borrower saves its work, the leader is killed, another one goes on."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.shipped import ACCOUNT, GROUPS
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.control.cluster_cache import BUDGETS
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import PODS
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, session
from tests.kubernetes.test_run import a_worker, gpu_nodes, running, until_bound
from tests.kubernetes.test_run_affinity import until_said

pytestmark = REAL

_V1 = "apiVersion: quorate.dev/v1\nkind: "
POLICY = {
    "policies/batch.yaml": _V1
    + "PriorityClass\nmetadata: {name: batch}\nspec: {value: 1, protection: {minRuntime: 0s}}\n",
    **{
        f"policies/{queue}.yaml": _V1 + f"Queue\nmetadata: {{name: {queue}}}\n"
        f"spec: {{quota: [{{gpuType: H100-SXM5-80GB, guaranteed: {guaranteed}}}]}}\n"
        for queue, guaranteed in (("owner", 4), ("borrower", 0))
    },
}


async def a_gang_of(api: Api, space: str, queue: str, **annotations: str) -> None:
    for index in range(2):
        pod = a_worker(f"{queue}-{index}", queue, 2, gpus=2, queue=queue)
        pod["metadata"]["annotations"] |= {names.PRIORITY_CLASS: "batch", **annotations}
        await api.create(PODS.path(space), pod)


async def notes_on(api: Api, space: str, pod: str) -> dict[str, str]:
    found: dict[str, str] = (await api.get(PODS.path(space, pod), dict[str, Any]))["metadata"].get("annotations", {})
    return found


async def until_noted(api: Api, space: str, pod: str, key: str) -> None:
    async with asyncio.timeout(SOON_S):
        while key not in await notes_on(api, space, pod):
            await asyncio.sleep(0.05)


def test_what_was_lent_is_taken_back_by_whoever_leads_by_then(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "lent") as (node,):
            space = await a_namespace(api)
            async with running(plane, shipped):
                await a_gang_of(api, space, "borrower", **{names.CHECKPOINT_GRACE: "10m"})
                await until_bound(api, space, 2)
                await a_gang_of(api, space, "owner")
                for pod in ("borrower-0", "borrower-1"):
                    await until_noted(api, space, pod, names.CHECKPOINT_BY)
                await until_noted(api, space, "owner-0", names.PROMISE)
                await asyncio.to_thread(plane.signal, signal.SIGKILL)
                kubeconfig = shipped.kubeconfig(ACCOUNT, GROUPS)
                await asyncio.to_thread(plane.start, "--kubernetes", "--kubeconfig", str(kubeconfig))
                for pod in ("borrower-0", "borrower-1"):
                    saved = {"metadata": {"annotations": {names.CHECKPOINTED: "2999-01-01T00:00:00Z"}}}
                    await api.patch(PODS.path(space, pod), saved)
                assert await until_gone(api, space) == {"owner-0": node, "owner-1": node}
            for pod in ("owner-0", "owner-1"):  # the next test has these GPUs for itself
                await api.delete(PODS.path(space, pod), {"gracePeriodSeconds": 0})

    asyncio.run(story())


def test_a_job_that_waits_for_an_eviction_names_the_budget_that_forbids_it(
    shipped: Cluster, plane: ControlPlane
) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "budget"), running(plane, shipped):
            space = await a_namespace(api)
            await a_gang_of(api, space, "borrower")
            await until_bound(api, space, 2)
            spec = {"minAvailable": "100%", "selector": {}}
            made = await api.create(BUDGETS.path(space), {"metadata": {"name": "keep-all"}, "spec": spec})
            allowed = {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2}
            status = {**allowed, "observedGeneration": made["metadata"]["generation"]}
            await api.patch(BUDGETS.path(space, "keep-all", "status"), {"status": status})
            await a_gang_of(api, space, "owner")
            said = await until_said(api, space, "owner-0", "PodDisruptionBudget")
            assert f"PodDisruptionBudget {space}/keep-all does not allow it now" in said
            for pod in ("owner-0", "owner-1", "borrower-0", "borrower-1"):
                await api.delete(PODS.path(space, pod), {"gracePeriodSeconds": 0})

    asyncio.run(story())


async def until_gone(api: Api, space: str) -> dict[str, str]:
    """Where the pods are once the borrower's are gone and all others have a node."""
    async with asyncio.timeout(SOON_S):
        while True:
            found = (await api.get(PODS.path(space), dict[str, Any]))["items"]
            there = {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in found}
            if not any(name.startswith("borrower") for name in there) and all(there.values()):
                return there
            await asyncio.sleep(0.05)
