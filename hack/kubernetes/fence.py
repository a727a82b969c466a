"""The shipped fence and scope in a cluster of tests and benchmarks, and who leads there."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from hack.kubernetes.shipped import ACCOUNT, BASE, DEPLOY, objects_in, path_of
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.leader import LEASE, NAMESPACE, Leadership
from reconciler.kubernetes.client.refusals import NotFoundError, RefusedError
from reconciler.kubernetes.objects.names import FENCED
from reconciler.kubernetes.objects.resource import LEASES, PODS, Resource

QUORATE = ACCOUNT
"""Whom the fence knows as Quorate."""
NAMESPACES = Resource("v1", "namespaces")
IN_FORCE_S = 60.0
"""A moment; the API server looks at new policies about once a second."""
LOOK_EVERY_S = 0.05


def policies(*files: str) -> list[dict[str, Any]]:
    """What is shipped in these files, document by document."""
    return [each for name in files for each in objects_in((BASE / f"{name}.yaml").read_text())]


async def install_pod_label(admin: Api) -> None:
    """Pods bear Quorate's label from then on. Returns when it is so. Raises TimeoutError."""
    for policy in objects_in((DEPLOY / "pod-label" / "policy.yaml").read_text()):
        await admin.create(path_of(policy), policy)
    container = {"name": "main", "image": "none"}
    tried = {"metadata": {"name": "none"}, "spec": {"schedulerName": "quorate", "containers": [container]}}
    async with asyncio.timeout(IN_FORCE_S):
        while FENCED not in (await admin.create(f"{PODS.path('default')}?dryRun=All", tried))["metadata"].get(
            "labels", {}
        ):
            await asyncio.sleep(LOOK_EVERY_S)


async def install(admin: Api, quorate: Api) -> None:
    """Returns when all of it is in force. `quorate` asks as Quorate's user. Raises TimeoutError."""
    await admin.create(NAMESPACES.path(), {"metadata": {"name": NAMESPACE}})
    for policy in policies("fence", "scope"):
        await admin.create(path_of(policy), policy)
    await until_in_force(admin, quorate)


async def until_in_force(admin: Api, quorate: Api) -> None:
    """Returns when what was made of it refuses what it is to refuse. Raises TimeoutError."""
    container = {"name": "main", "image": "none"}
    spec = {"schedulerName": "quorate", "nodeName": "none", "containers": [container]}
    pod = {"metadata": {"name": "none"}, "spec": spec}
    tries = [(quorate, _BINDING, _binding(fenced=True)), (quorate, _BINDING, _binding(fenced=False))]
    tries += [(admin, PODS.path("default"), pod)]
    async with asyncio.timeout(IN_FORCE_S):
        for who, path, body in tries:
            while "ValidatingAdmissionPolicy" not in await _refusal(who, path, body):
                await asyncio.sleep(LOOK_EVERY_S)


async def lead(admin: Api, quorate: Api, leadership: Leadership | None) -> None:
    """The Lease says so, or is gone; returns when the fence has seen it. Raises TimeoutError."""
    with suppress(NotFoundError):
        await admin.delete(LEASES.path(NAMESPACE, LEASE))
    says = "no params found"
    if leadership:
        holder, epoch = leadership.holder, leadership.epoch
        spec = {"holderIdentity": holder, "leaseTransitions": epoch, "leaseDurationSeconds": 3600}
        await admin.create(LEASES.path(NAMESPACE), {"metadata": {"name": LEASE}, "spec": spec})
        says = f"which is {holder or 'nobody'} in epoch {epoch}"
    async with asyncio.timeout(IN_FORCE_S):
        while says not in await _refusal(quorate, _BINDING, _binding(fenced=True)):
            await asyncio.sleep(LOOK_EVERY_S)


_BINDING = PODS.path("default", "none", "binding")


def _binding(*, fenced: bool) -> dict[str, Any]:
    """Of no pod, and not signed by anybody."""
    labels = {FENCED: "true"} if fenced else {}
    return {"metadata": {"name": "none", "labels": labels}, "target": {"kind": "Node", "name": "none"}}


async def _refusal(who: Api, path: str, body: object) -> str:
    try:
        await who.create(path, body)
    except RefusedError as refused:
        return refused.message
    return ""
