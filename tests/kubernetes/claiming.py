"""A node with MIG devices, claims and pods that use them, on a real API server."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hack.kubernetes import devices
from reconciler.kubernetes.binder.binding import Leads
from reconciler.kubernetes.client.api import Api, Check
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.client.refusals import ConflictError, UnreachableError
from reconciler.kubernetes.dra.allocation import allocation_of
from reconciler.kubernetes.dra.allocator import Allocator, Grant
from reconciler.kubernetes.dra.claim_demand import demand_of
from reconciler.kubernetes.dra.claim_status import Allotment
from reconciler.kubernetes.dra.expressions import Expressions
from reconciler.kubernetes.dra.pools import pools_of
from reconciler.kubernetes.dra.prospects import node_devices
from reconciler.kubernetes.dra.usage import usage_of
from reconciler.kubernetes.dra.wire import (
    CLAIMS,
    CLASSES,
    SLICES,
    Consumer,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.objects.wire import KubeNode, Meta, Pod, read
from reconciler.protocols.backend import Epoch
from tests.kubernetes.sessions import a_pod

NOW = "2026-01-01T00:00:00Z"


def leading(epoch: int = 1, holder: str = "quorate-1") -> Leads:
    lead = Leadership(holder, Epoch(epoch), 1e12)
    return lambda: lead


async def publish(api: Api, slices: Sequence[dict[str, Any]]) -> None:
    """The driver's classes too, if they are not there yet."""
    for known in devices.classes():
        with suppress(ConflictError):
            await api.create(CLASSES.path(), known)
    for part in slices:
        await api.create(SLICES.path(), part)


def using(name: str, *claims: str) -> dict[str, Any]:
    """A pod that uses these claims."""
    pod = a_pod(name)
    pod["spec"]["resourceClaims"] = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    return pod


async def made_claim(api: Api, namespace: str, claim: dict[str, Any]) -> ResourceClaim:
    return read(await api.create(CLAIMS.path(namespace), claim), ResourceClaim)


async def made_pod(api: Api, namespace: str, pod: dict[str, Any]) -> Pod:
    return read(await api.create(PODS.path(namespace), pod), Pod)


def consumer(pod: Pod) -> Consumer:
    return Consumer("pods", pod.metadata.name, pod.metadata.uid)


def allotment(
    claim: ResourceClaim,
    pod: Pod,
    slices: Sequence[dict[str, Any]],
    others: Sequence[ResourceClaim] = (),
    node: str = "n1",
) -> Allotment:
    """What the claim gets on the node."""
    classes = {known["metadata"]["name"]: read(known, DeviceClass) for known in devices.classes()}
    pools = pools_of(read(part, ResourceSlice) for part in slices)
    there = node_devices(KubeNode(Meta(node)), pools)
    grant = Allocator().grant(there, [demand_of(claim, classes, Expressions())], usage_of(pools, others))
    assert isinstance(grant, Grant)
    return Allotment(claim, consumer(pod), allocation_of(claim, grant.picks, classes, node, NOW))


class Breaking(Api):
    """Its writes are done, or not, and nobody hears of it, from the `broken` th on."""

    broken = 1 << 30
    is_done = True
    heard = 0

    async def patch(self, path: str, body: object, check: Check | None = None) -> dict[str, Any]:
        self.heard += 1
        if self.heard < self.broken:
            return await super().patch(path, body, check)
        if self.heard > self.broken:
            raise UnreachableError("the process is gone")
        if self.is_done:
            await super().patch(path, body, check)
        raise UnreachableError("the connection is gone")
