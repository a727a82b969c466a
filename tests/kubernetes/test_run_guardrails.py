"""Guardrails of a change on a real API server: what is guaranteed is held against the GPUs that nodes have."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hack.kubernetes.cluster import Cluster
from tests.e2e.control_plane import ControlPlane, until
from tests.kubernetes.sessions import REAL, session
from tests.kubernetes.test_run import gpu_nodes, running
from tests.reconciler.gitops.source.origin import Origin

pytestmark = REAL


def policy(guaranteed: int) -> dict[str, str]:
    quota = f"[{{gpuType: H100-SXM5-80GB, guaranteed: {guaranteed}}}]"
    return {
        "policies/q.yaml": f"apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {{name: q}}\nspec: {{quota: {quota}}}\n",
        "cluster-state/pool.yaml": "apiVersion: quorate.dev/v1\nkind: NodePool\nmetadata: {name: declared}\n"
        "spec: {gpuType: H100-SXM5-80GB, gpusPerNode: 1, cpu: 8, memory: 64Gi, nodes: {prefix: nowhere-, count: 100}}\n",
    }


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    made = Origin(tmp_path / "policy")
    made.commit(policy(4))
    return made


def test_no_more_is_guaranteed_than_is_there(shipped: Cluster, origin: Origin, tmp_path: Path) -> None:
    """A hundred GPUs are declared that no node has; three nodes of four are there."""
    plane = ControlPlane(origin.folder, tmp_path / "state")

    def stands(commit: str) -> str:
        """What the control plane says of a revision: that it is in force, or why not."""
        with plane.client() as client:
            status = client.status()
        stalled = next(one for one in status.conditions if one.type == "Stalled")
        return "in force" if status.last_applied_revision == commit else stalled.message

    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 3, "guard"), running(plane, shipped):
            more = origin.commit(policy(12))
            await asyncio.to_thread(until, "twelve are guaranteed", lambda: stands(more) == "in force")
            beyond = origin.commit(policy(16))
            refused = "4 more H100-SXM5-80GB would be guaranteed than are there"
            await asyncio.to_thread(until, "sixteen are not", lambda: refused in stands(beyond))

    try:
        asyncio.run(story())
    finally:
        plane.end()
