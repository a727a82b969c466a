"""A gang that a ResourceQuota keeps from being whole, on a real API server, which keeps to it when pods are made."""

from __future__ import annotations

import asyncio

import pytest

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.refusals import RefusedError
from reconciler.kubernetes.control.cluster_cache import RESOURCE_QUOTAS
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import PODS
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.sessions import REAL, a_namespace, session
from tests.kubernetes.test_run import POLICY as QUEUES
from tests.kubernetes.test_run import a_worker, gpu_nodes, running
from tests.kubernetes.test_run_affinity import until_said

pytestmark = REAL

POLICY = QUEUES
GPUS = f"requests.{names.GPU}"


def test_the_quota_is_named(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "quota"), running(plane, shipped):
            space = await a_namespace(api)
            await api.create(
                RESOURCE_QUOTAS.path(space), {"metadata": {"name": "compute"}, "spec": {"hard": {GPUS: "1"}}}
            )
            counted = {"hard": {GPUS: "1"}, "used": {GPUS: "0"}}
            await api.patch(RESOURCE_QUOTAS.path(space, "compute", "status"), {"status": counted})
            await api.create(PODS.path(space), a_worker("w0", "train", 2))
            with pytest.raises(RefusedError, match="exceeded quota: compute"):
                await api.create(PODS.path(space), a_worker("w1", "train", 2))
            said = await until_said(api, space, "w0", "ResourceQuota compute")
            assert (
                f"waiting for 1 of 2 pods: ResourceQuota compute lets no more be made, 1 of 1 {GPUS} are used" in said
            )

    asyncio.run(story())
