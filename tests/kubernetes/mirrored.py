"""A mirror of the test cluster, followed for as long as a test needs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import structlog

from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.kind_watch import WatchContext
from reconciler.kubernetes.control.cluster_cache import ClusterCache
from reconciler.kubernetes.objects.resource import Resource
from reconciler.model.clock import SystemClock
from tests.kubernetes.sessions import SOON_S

CRDS = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions")


def a_mirror(api: Api) -> ClusterCache:
    return ClusterCache(WatchContext(api, SystemClock(), Random(1), structlog.get_logger()))


@asynccontextmanager
async def mirrored(api: Api) -> AsyncIterator[ClusterCache]:
    """Ready at the beginning of the block."""
    mirror = a_mirror(api)
    running = asyncio.create_task(mirror.run())
    ready = asyncio.create_task(mirror.ready())
    try:
        async with asyncio.timeout(SOON_S):
            await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        yield mirror
    finally:
        ready.cancel()
        running.cancel()
        await asyncio.gather(running, ready, return_exceptions=True)


async def seen(mirror: ClusterCache, true: Callable[[], bool]) -> None:
    """Rests until that is so, looking each time that the mirror has changed."""
    async with asyncio.timeout(SOON_S):
        while not true():
            await mirror.changed.wait()
            mirror.changed.clear()


def a_definition(group: str, version: str, kind: str, plural: str) -> dict[str, Any]:
    """Of a kind of objects in namespaces that may hold anything."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {
            "name": f"{plural}.{group}",
            # What ends with k8s.io is guarded: KEP-1111, "API approval".
            "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }
