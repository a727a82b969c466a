"""Where the API server gives every pod a PriorityClass, that is no class of the policy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.control.cluster_cache import PRIORITY_CLASSES
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import PODS
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.sessions import REAL, a_namespace, gone_afterwards, session
from tests.kubernetes.test_run import a_worker, gpu_nodes, running, until_bound
from tests.reconciler.gitops.source.origin import Origin

pytestmark = REAL

_V1 = "apiVersion: quorate.dev/v1\nkind: "
POLICY = {
    "policies/training.yaml": _V1 + "PriorityClass\nmetadata: {name: training}\nspec: {value: 1}\n",
    "policies/scheduling.yaml": _V1
    + "SchedulingPolicy\nmetadata: {name: cluster}\nspec: {defaultPriorityClass: training}\n",
    "policies/q.yaml": _V1
    + "Queue\nmetadata: {name: q}\n"
    + "spec: {priorityClasses: [training], quota: [{gpuType: H100-SXM5-80GB, guaranteed: 8}]}\n",
}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    origin = Origin(tmp_path / "policy")
    origin.commit(POLICY)
    made = ControlPlane(origin.folder, tmp_path / "state")
    yield made
    made.end()


def test_pods_with_the_clusters_default_class_have_the_policys(shipped: Cluster, plane: ControlPlane) -> None:
    async def story() -> None:
        usual = {"metadata": {"name": "usual"}, "value": 10, "globalDefault": True}
        async with (
            session(shipped) as api,
            gpu_nodes(api, 1, "default"),
            gone_afterwards(api, PRIORITY_CLASSES.path("", "usual")),
            running(plane, shipped),
        ):
            await api.create(PRIORITY_CLASSES.path(), usual)
            space = await a_namespace(api)
            await api.create(PODS.path(space), a_worker("labelled", "labelled", 1, queue="q") | _of_class("usual"))
            for number in range(2):
                await api.create(PODS.path(space), a_worker(f"w{number}", "plain", 2, queue="q"))
            written = await api.get(PODS.path(space, "w0"), dict[str, Any])
            assert written["spec"]["priorityClassName"] == "usual"
            assert set(await until_bound(api, space, 2)) == {"w0", "w1"}

    asyncio.run(story())


def _of_class(name: str) -> dict[str, Any]:
    """A job that names it as a class of Quorate's, which it is not: it is refused, and holds up no other."""
    notes = {names.GANG: "labelled", names.GANG_SIZE: "1", names.QUEUE: "q", names.PRIORITY_CLASS: name}
    return {"metadata": {"name": "labelled", "annotations": notes}}
