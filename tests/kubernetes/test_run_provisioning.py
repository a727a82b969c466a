"""`quorate run --kubernetes` asks an autoscaler for nodes that gangs wait for. The autoscaler is imitated by what it writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from hack.kubernetes.cluster import Cluster
from reconciler.client import ApiError
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import ConflictError, NotFoundError
from reconciler.kubernetes.objects.resource import NODES, PODS
from reconciler.kubernetes.provisioning.requests import KINDS, TEMPLATES
from solver.model.workload import JobName
from tests.e2e.control_plane import ControlPlane, until
from tests.kubernetes.kubelet import kubelet
from tests.kubernetes.mirrored import CRDS
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, gone_afterwards, session
from tests.kubernetes.test_run import GPU_NODE, H100S, a_worker, bound, gpu_nodes, running, until_bound
from tests.kubernetes.test_run_limits import listed
from tests.kubernetes.test_teller import scheduled

pytestmark = REAL

_V1 = "apiVersion: quorate.dev/v1\nkind: "
POLICY = {
    "policies/scheduling.yaml": _V1 + "SchedulingPolicy\nmetadata: {name: cluster}\nspec:\n"
    "  provisioning: {after: 0s, maxRequests: 1, maxNodes: 2, retryAfter: 1s, holdFor: 20m, validFor: 10m}\n",
    "policies/q.yaml": _V1
    + "Queue\nmetadata: {name: research}\nspec: {quota: [{gpuType: H100-SXM5-80GB, guaranteed: 64}]}\n",
}
REQUESTS = KINDS[0]
SINCE = "2026-11-20T08:00:00Z"

_NAMED = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "maxLength": 253}}}
_POD_SET = {
    "type": "object",
    "required": ["count", "podTemplateRef"],
    "properties": {"count": {"type": "integer", "minimum": 1}, "podTemplateRef": _NAMED},
}
_CONDITION = {
    "type": "object",
    "required": ["lastTransitionTime", "message", "reason", "status", "type"],
    "properties": {
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        **{key: {"type": "string"} for key in ("message", "reason", "status", "type")},
    },
}
_SPEC = {
    "type": "object",
    "required": ["podSets", "provisioningClassName"],
    "properties": {
        "podSets": {"type": "array", "minItems": 1, "maxItems": 32, "items": _POD_SET},
        "provisioningClassName": {"type": "string", "maxLength": 253},
        "parameters": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 255}},
    },
}
_STATUS = {
    "type": "object",
    "properties": {
        "conditions": {
            "type": "array",
            "items": _CONDITION,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        }
    },
}
DEFINITION = {
    "metadata": {
        "name": "provisioningrequests.autoscaling.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
    },
    "spec": {
        "group": "autoscaling.x-k8s.io",
        "scope": "Namespaced",
        "names": {
            "kind": "ProvisioningRequest",
            "listKind": "ProvisioningRequestList",
            "plural": "provisioningrequests",
            "singular": "provisioningrequest",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {"spec": _SPEC, "status": _STATUS},
                    }
                },
            }
        ],
    },
}


async def with_requests(api: Api) -> None:
    """The definition, in the shape that cluster-autoscaler documents; it is served once this returns."""
    with suppress(ConflictError):
        await api.create(CRDS.path(), DEFINITION)
    async with asyncio.timeout(SOON_S):
        while not await _is_served(api):
            await asyncio.sleep(0.05)


async def _is_served(api: Api) -> bool:
    try:
        await listed(api, REQUESTS.path())
    except NotFoundError:
        return False
    return True


@asynccontextmanager
async def provisioned(api: Api, name: str) -> AsyncIterator[None]:
    """A node like the others that comes now."""
    async with gone_afterwards(api, NODES.path("", name)), kubelet(api, [name], GPU_NODE):
        await api.patch(NODES.path("", name), H100S)
        yield


async def the_request(api: Api, space: str, fits: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
    """The only one of a namespace, once there is one that fits."""
    async with asyncio.timeout(SOON_S):
        while True:
            found = await listed(api, REQUESTS.path(space))
            if len(found) == 1 and fits(found[0]):
                return found[0]
            await asyncio.sleep(0.05)


async def says(api: Api, request: dict[str, Any], *conditions: tuple[str, str, str]) -> None:
    """The autoscaler says so of it, by type, reason and time."""
    meta = request["metadata"]
    told = [
        {"type": kind, "status": "True", "reason": reason, "message": "by a test", "lastTransitionTime": at}
        for kind, reason, at in conditions
    ]
    await api.patch(REQUESTS.path(meta["namespace"], meta["name"], "status"), {"status": {"conditions": told}})


async def until_none(api: Api, space: str) -> None:
    async with asyncio.timeout(SOON_S):
        while await listed(api, REQUESTS.path(space)) or await listed(api, TEMPLATES.path(space)):
            await asyncio.sleep(0.05)


def told_of(plane: ControlPlane, job: str, words: str) -> None:
    def said() -> bool:
        with suppress(ApiError):  # its pods may not have been seen yet
            return any(words in known for known in client.why(JobName(job)).words)
        return False

    with plane.client() as client:
        until(words, said)


def test_nodes_are_asked_for_kept_for_the_gang_that_asked_and_the_request_ends_with_its_start(
    shipped: Cluster, plane: ControlPlane
) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "asks") as (old,):
            await with_requests(api)
            async with running(plane, shipped):
                space = await a_namespace(api)
                await api.create(PODS.path(space), a_worker("runs", "runs", 1, gpus=4))
                await until_bound(api, space, 1)
                for index in range(2):
                    await api.create(PODS.path(space), a_worker(f"w{index}", "train", 2, gpus=4))
                request = await the_request(api, space)
                await _asks_as_it_should(api, space, request)
                async with asyncio.timeout(SOON_S):
                    while (await scheduled(api, space)).get("w0") != "AwaitsNodes":
                        await asyncio.sleep(0.05)
                await says(api, request, ("Accepted", "Accepted", SINCE))
                # Another job would fit the first node that comes, and does not get it.
                await api.create(PODS.path(space), a_worker("other", "other", 1, gpus=4))
                async with provisioned(api, "came0"):
                    gang = f"{space}.gang.train"
                    await asyncio.to_thread(told_of, plane, gang, "1 node that came is kept for it until")
                    await asyncio.to_thread(told_of, plane, f"{space}.gang.other", f"Reservation provisioned.{gang}")
                    assert set(await bound(api, space)) == {"runs"}
                    async with provisioned(api, "came1"):
                        there = await until_bound(api, space, 3)
                        assert {there["w0"], there["w1"]} == {"came0", "came1"}
                        assert there["runs"] == old
                        other = await the_request(
                            api, space, lambda one: one["metadata"]["name"] != request["metadata"]["name"]
                        )
                        assert other["metadata"]["annotations"]["quorate.dev/provisioning-job"] == f"{space}.gang.other"
                        await api.delete(PODS.path(space, "other"), {"gracePeriodSeconds": 0})
                        await until_none(api, space)

    asyncio.run(story())


async def _asks_as_it_should(api: Api, space: str, request: dict[str, Any]) -> None:
    assert request["spec"]["provisioningClassName"] == "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    assert request["spec"]["parameters"] == {"ValidUntilSeconds": "600"}
    (pods,) = request["spec"]["podSets"]
    assert pods["count"] == 2
    template = await api.get(TEMPLATES.path(space, pods["podTemplateRef"]["name"]), dict[str, Any])
    (container,) = template["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["nvidia.com/gpu"] == "4"


def test_a_request_that_fails_is_told_with_its_reason_and_made_again_and_bounds_are_kept(
    shipped: Cluster, plane: ControlPlane
) -> None:
    async def story() -> None:
        async with session(shipped) as api, gpu_nodes(api, 1, "fails-to-ask"):
            await with_requests(api)
            async with running(plane, shipped):
                space = await a_namespace(api)
                await api.create(PODS.path(space), a_worker("runs", "runs", 1, gpus=4))
                await until_bound(api, space, 1)
                await api.create(PODS.path(space), a_worker("first", "first", 1, gpus=4))
                request = await the_request(api, space)
                for index in range(3):
                    await api.create(PODS.path(space), a_worker(f"big{index}", "big", 3, gpus=4))
                gang = f"{space}.gang.big"
                await asyncio.to_thread(told_of, plane, gang, "1 request of maxRequests 1 are open")
                far = "2999-01-01T00:00:00Z"
                await says(api, request, ("Accepted", "Accepted", SINCE), ("Failed", "OutOfQuota", far))
                why = "Failed: OutOfQuota: by a test"
                await asyncio.to_thread(told_of, plane, f"{space}.gang.first", why)
                await asyncio.to_thread(told_of, plane, gang, "it takes 3 nodes more than 0 that are asked for")
                await says(api, request, ("Accepted", "Accepted", SINCE), ("Failed", "OutOfQuota", SINCE))
                again = await the_request(api, space, lambda one: one["metadata"]["name"].endswith("-2"))
                assert again["metadata"]["annotations"]["quorate.dev/provisioning-try"] == "2"
                await api.delete(PODS.path(space, "first"), {"gracePeriodSeconds": 0})
                await until_none(api, space)

    asyncio.run(story())
