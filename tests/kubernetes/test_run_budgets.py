"""A tenant's PodDisruptionBudget that allows no eviction delays a guarantee for as long as policy lets it, and then no longer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.status.events import EVENTS
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, session
from tests.kubernetes.test_eviction import budget
from tests.kubernetes.test_run import gpu_nodes, running, until_bound
from tests.kubernetes.test_run_eviction import POLICY as LENT
from tests.kubernetes.test_run_eviction import a_gang_of, until_gone
from tests.reconciler.gitops.source.origin import Origin

pytestmark = REAL


def policy(hold_for: str) -> dict[str, str]:
    """Nothing but budgets protects what runs."""
    limits = f"evictions: {{disruptionBudgetsHoldFor: {hold_for}, grace: 0s}}"
    scheduling = "apiVersion: quorate.dev/v1\nkind: SchedulingPolicy\nmetadata: {name: all}\n"
    return {**LENT, "policies/scheduling.yaml": f"{scheduling}spec: {{{limits}}}\n"}


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    made = Origin(tmp_path / "policy")
    made.commit(policy("30d"))
    return made


def test_a_budget_that_never_allows_an_eviction_holds_for_as_long_as_policy_lets_it(
    shipped: Cluster, origin: Origin, tmp_path: Path
) -> None:
    plane = ControlPlane(origin.folder, tmp_path / "state")

    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "held") as (node,), running(plane, shipped):
            space = await a_namespace(api)
            await a_gang_of(api, space, "borrower")
            await until_bound(api, space, 2)
            for pod in ("borrower-0", "borrower-1"):
                await api.patch(PODS.path(space, pod), {"metadata": {"labels": {"app": "kept"}}})
            await budget(api, space, 0, "keep-all", app="kept")
            await a_gang_of(api, space, "owner")
            told = await until_told(
                api, space, "owner-0", f"PodDisruptionBudget {space}/keep-all does not allow it now"
            )
            assert "it holds until" in told
            assert await until_bound(api, space, 2) == {"borrower-0": node, "borrower-1": node}
            origin.commit(policy("0s"))
            assert await until_gone(api, space) == {"owner-0": node, "owner-1": node}
            for pod in ("borrower-0", "borrower-1"):
                assert f"{space}/keep-all" in await until_event(api, space, pod, "EvictedPastBudgets")
            for pod in ("owner-0", "owner-1"):  # the next test has these GPUs for itself
                await api.delete(PODS.path(space, pod), {"gracePeriodSeconds": 0})

    try:
        asyncio.run(story())
    finally:
        plane.end()


async def until_told(api: Api, space: str, pod: str, what: str) -> str:
    """The message of a waiting pod's condition once it has this in it."""
    said = ""
    async with asyncio.timeout(SOON_S):
        while what not in said:
            status = (await api.get(PODS.path(space, pod), dict[str, Any]))["status"]
            said = "".join(one.get("message", "") for one in status.get("conditions", ()))
    return said


async def until_event(api: Api, space: str, pod: str, reason: str) -> str:
    """The note of the Event about a pod with this reason, once there is one."""
    async with asyncio.timeout(SOON_S):
        while True:
            found = (await api.get(EVENTS.path(space), dict[str, Any]))["items"]
            for one in found:
                if (one["regarding"]["name"], one["reason"]) == (pod, reason):
                    return str(one["note"])
            await asyncio.sleep(0.05)
