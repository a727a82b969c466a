"""A control plane with tenants: what the API server lets in rounds start or refuse, and what runs goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.shipped import NAMESPACE
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import NotFoundError, RefusedError
from reconciler.kubernetes.control.namespace_publication import CONFIG_MAPS, NAME
from reconciler.kubernetes.objects.queue_names import LOCAL_QUEUES
from reconciler.kubernetes.objects.resource import PODS, Resource
from tests.e2e.control_plane import ControlPlane
from tests.kubernetes.sessions import NAMESPACES, REAL, SOON_S, a_namespace, session
from tests.kubernetes.test_run import a_worker, gpu_nodes, running, until_bound
from tests.reconciler.gitops.source.origin import Origin

pytestmark = REAL

KUEUE = "kueue.x-k8s.io/queue-name"
PATH = CONFIG_MAPS.path(NAMESPACE, NAME)
GROUPS = Resource("scheduling.k8s.io/v1alpha2", "podgroups")


def policy(space: str) -> dict[str, str]:
    """`own` lists a namespace; `other` lists another one."""
    head = "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: %s}\nspec:\n  access:\n    namespaces:\n"
    quota = "  quota: [{gpuType: H100-SXM5-80GB, guaranteed: 4}]\n"
    return {
        "policies/own.yaml": head % "own" + f"      - {{name: {space}, default: true}}\n" + quota,
        "policies/other.yaml": head % "other" + "      - {name: of-nobody}\n" + quota,
    }


def without_a_queue(name: str, **labels: str) -> dict[str, Any]:
    pod = a_worker(name, name, 1, queue="")
    pod["metadata"]["labels"] = labels
    return pod


async def why(api: Api, space: str, name: str, words: str) -> None:
    """Rests until the pod's condition says so."""
    async with asyncio.timeout(SOON_S):
        while True:
            pod = await api.get(PODS.path(space, name), dict[str, Any])
            told = [one for one in pod["status"].get("conditions", ()) if one["type"] == "PodScheduled"]
            if any(words in one.get("message", "") for one in told):
                return
            await asyncio.sleep(0.05)


async def made_once_let_in(api: Api, space: str, pod: dict[str, Any]) -> None:
    """As a controller does, which makes its pod again; a LocalQueue is in force a moment after it was made."""
    async with asyncio.timeout(SOON_S):
        while True:
            try:
                await api.create(PODS.path(space), pod)
            except RefusedError:
                await asyncio.sleep(0.05)
            else:
                return


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin(tmp_path / "policy")


def test_a_tenants_pods_run_in_its_queue_and_go_on_when_its_namespace_is_taken_out(
    shipped: Cluster, origin: Origin, tmp_path: Path
) -> None:
    plane = ControlPlane(origin.folder, tmp_path / "state")

    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "tenants"):
            space = await a_namespace(api)
            origin.commit(policy(space))
            async with running(plane, shipped):
                await api.create(PODS.path(space), without_a_queue("by-default"))
                await until_bound(api, space, 1)
                with pytest.raises(RefusedError, match=f"namespace {space} may not use queue other, only own"):
                    await made_once_refused(api, space, a_worker("other", "other", 1, queue="other"))
                for name, queue in (("team", "own"), ("sly", "other")):
                    body = {"metadata": {"name": name}, "spec": {"clusterQueue": queue}}
                    await api.create(LOCAL_QUEUES.resources[0].path(space), _named(body))
                await made_once_let_in(api, space, without_a_queue("by-local-queue", **{KUEUE: "team"}))
                assert await until_bound(api, space, 2)
                with pytest.raises(RefusedError, match="may not use queue other, only own"):
                    await made_once_refused(api, space, without_a_queue("sly", **{KUEUE: "sly"}))
                group = {"metadata": {"name": "g", "labels": {"quorate.dev/queue": "other"}}}
                await api.create(GROUPS.path(space), {**group, "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}})
                await api.create(PODS.path(space), _of_group(without_a_queue("by-its-group"), "g"))
                await why(
                    api,
                    space,
                    "by-its-group",
                    f"namespace {space} may not use queue other, only own (policies/own.yaml:7)",
                )
                origin.commit(policy("somebody-else"))
                await why(api, space, "by-its-group", "queue other is open to listed namespaces alone")
                assert set(await until_bound(api, space, 2)) == {"by-default", "by-local-queue"}
                origin.commit({"policies/own.yaml": _open("own"), "policies/other.yaml": _open("other")})
                assert set(await until_bound(api, space, 3)) == {"by-default", "by-local-queue", "by-its-group"}
                await gone(api)

    try:
        asyncio.run(story())
    finally:
        plane.end()


def test_pods_run_in_the_queue_that_selects_their_namespaces_labels(
    shipped: Cluster, origin: Origin, tmp_path: Path
) -> None:
    plane = ControlPlane(origin.folder, tmp_path / "state")
    head = "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: labelled}\nspec:\n  access:\n    namespaces:\n"
    entry = "      - {selector: {matchLabels: {team: speech}}, default: true}\n"
    quota = "  quota: [{gpuType: H100-SXM5-80GB, guaranteed: 4}]\n"
    origin.commit({"policies/labelled.yaml": head + entry + quota})

    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "labelled"):
            space = await a_namespace(api)
            at = NAMESPACES.path("", space)
            async with running(plane, shipped):
                with pytest.raises(RefusedError, match="queue labelled is open to listed namespaces alone"):
                    await made_once_refused(api, space, a_worker("early", "early", 1, queue="labelled"))
                await api.create(PODS.path(space), without_a_queue("by-label"))
                await api.patch(at, {"metadata": {"labels": {"team": "speech"}}})
                assert set(await until_bound(api, space, 1)) == {"by-label"}
                await made_once_let_in(api, space, a_worker("named", "named", 1, queue="labelled"))
                assert set(await until_bound(api, space, 2)) == {"by-label", "named"}
                # It fits beside no other, and so waits.
                await made_once_let_in(api, space, a_worker("large", "large", 1, gpus=4, queue="labelled"))
                await why(api, space, "large", "")
                await api.patch(at, {"metadata": {"labels": {"team": None}}})
                await why(api, space, "large", "queue labelled is open to listed namespaces alone")
                assert set(await until_bound(api, space, 2)) == {"by-label", "named"}
            origin.commit({"policies/labelled.yaml": _open("labelled")})

    try:
        asyncio.run(story())
    finally:
        plane.end()


async def made_once_refused(api: Api, space: str, pod: dict[str, Any]) -> None:
    """Tried without effect until it is refused, which it raises: the ConfigMap is in force a moment after it was written."""
    async with asyncio.timeout(SOON_S):
        while True:
            await api.create(f"{PODS.path(space)}?dryRun=All", pod)
            await asyncio.sleep(0.05)


async def gone(api: Api) -> None:
    async with asyncio.timeout(SOON_S):
        while True:
            try:
                await api.get(PATH, dict[str, Any])
            except NotFoundError:
                return
            await asyncio.sleep(0.05)


def _named(body: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": LOCAL_QUEUES.resources[0].version, "kind": LOCAL_QUEUES.name, **body}


def _of_group(pod: dict[str, Any], group: str) -> dict[str, Any]:
    pod["metadata"]["annotations"] = {}
    pod["spec"]["schedulingGroup"] = {"podGroupName": group}
    return pod


def _open(name: str) -> str:
    return (
        f"apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {{name: {name}}}\n"
        "spec: {quota: [{gpuType: H100-SXM5-80GB, guaranteed: 4}]}\n"
    )
