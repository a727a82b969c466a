"""Nodes that are there and ready, on which whatever is bound begins to run at once: a kubelet without containers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec
import structlog

from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.informer import Informer, Key
from reconciler.kubernetes.client.refusals import ConflictError, NotFoundError
from reconciler.kubernetes.objects.resource import NODES, PODS, Resource

LEASES = Resource("coordination.k8s.io/v1", "leases")
LEASES_IN = "kube-node-lease"
LEASE_S = 40
"""As long as a kubelet's is, which renews it every 10 seconds."""
RENEW_EVERY_S = 10


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct, rename="camel"):
    phase: str = "Pending"


class BoundPod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec
    status: _Status


class Kubelet:
    """Of several nodes at once."""

    def __init__(self, api: Api, nodes: list[str]) -> None:
        self._api = api
        self._nodes = nodes

    async def register(self, allocatable: dict[str, str]) -> None:
        status = {
            "capacity": allocatable,
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        }
        for node in self._nodes:
            await self._api.create(NODES.path(), {"metadata": {"name": node}, "status": status})
            lease = {"metadata": {"name": node}, "spec": {"holderIdentity": node, "leaseDurationSeconds": LEASE_S}}
            await self._api.create(LEASES.path(LEASES_IN), lease)
        await self.renew()

    async def renew(self) -> None:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        for node in self._nodes:
            await self._api.patch(LEASES.path(LEASES_IN, node), {"spec": {"renewTime": now}})

    async def keep_renewing(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            await self.renew()

    async def run_pods(self) -> None:
        log = structlog.get_logger()
        pods = Informer(self._api, PODS, BoundPod, Random(2), log)
        async with aclosing(pods.changes()) as batches:
            async for changes in batches:
                for change in changes:
                    if change.after and change.after.spec.node_name in self._nodes:
                        await self._move(change.key, change.after)

    async def _move(self, key: Key, pod: BoundPod) -> None:
        try:
            if pod.metadata.deletion_timestamp:
                # A new pod of the same name is another one.
                this = {"preconditions": {"uid": pod.metadata.uid}}
                await self._api.delete(PODS.path(*key), {"gracePeriodSeconds": 0, **this})
            elif pod.status.phase == "Pending":
                now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
                ready = [{"type": "Ready", "status": "True"}]
                running: dict[str, Any] = {"phase": "Running", "startTime": now, "conditions": ready}
                this = {"metadata": {"uid": pod.metadata.uid}}
                await self._api.patch(PODS.path(*key, "status"), {"status": running, **this})
        except (ConflictError, NotFoundError):
            structlog.get_logger().debug("pod-gone", pod=key)


@asynccontextmanager
async def kubelet(api: Api, nodes: list[str], allocatable: dict[str, str]) -> AsyncIterator[Kubelet]:
    """These nodes are ready within the block; they stay afterwards, and nothing more happens on them."""
    there = Kubelet(api, nodes)
    await there.register(allocatable)
    async with asyncio.TaskGroup() as work:
        tasks = [work.create_task(there.keep_renewing()), work.create_task(there.run_pods())]
        yield there
        for task in tasks:
            task.cancel()
