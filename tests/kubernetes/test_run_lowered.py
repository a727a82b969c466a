"""What a lowered limit means is said on Kubernetes as on bare metal: when it is broken, by when it is kept, and that it is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.objects.resource import PODS
from tests.e2e.control_plane import ControlPlane, until
from tests.kubernetes.sessions import REAL, a_namespace, session
from tests.kubernetes.test_run import a_worker, gpu_nodes, running, until_bound
from tests.reconciler.gitops.source.origin import Origin

pytestmark = REAL


def policy(gpus_max: int) -> dict[str, str]:
    quota = f"[{{gpuType: H100-SXM5-80GB, guaranteed: 0, max: {gpus_max}}}]"
    return {
        "policies/lowered.yaml": "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: lowered}\n"
        f"spec: {{quota: {quota}, convergence: {{within: 1h}}}}\n"
    }


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    made = Origin(tmp_path / "policy")
    made.commit(policy(4))
    return made


def test_a_lowered_limit_is_told_and_that_it_is_kept_again(shipped: Cluster, origin: Origin, tmp_path: Path) -> None:
    plane = ControlPlane(origin.folder, tmp_path / "state")

    def told() -> list[str]:
        return [event.kind for event in plane.events("lowered")]

    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "lowered"), running(plane, shipped):
            space = await a_namespace(api)
            await api.create(PODS.path(space), a_worker("runs", "runs", 1, gpus=4, queue="lowered"))
            await until_bound(api, space, 1)
            assert told() == []
            origin.commit(policy(2))
            await asyncio.to_thread(until, "it is broken", lambda: told() == ["limit-broken"])
            origin.commit(policy(4))
            await asyncio.to_thread(until, "it is kept", lambda: told() == ["limit-broken", "limit-kept"])

    try:
        asyncio.run(story())
    finally:
        plane.end()
