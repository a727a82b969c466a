"""Sessions with the test cluster, and what tests do in them again and again."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.kubeconfig import from_kubeconfig
from reconciler.kubernetes.client.pace import RateLimiter, Sleep
from reconciler.kubernetes.client.refusals import NotFoundError
from reconciler.kubernetes.objects.resource import Resource
from reconciler.model.clock import SystemClock

REAL = [pytest.mark.kubernetes]
"""Marks of tests that need the server."""
ADMINS = ("system:masters",)
NAMESPACES = Resource("v1", "namespaces")
CONFIG_MAPS = Resource("v1", "configmaps")
SOON_S = 60.0
"""A test that waits for longer hangs; nothing is judged by it."""

_numbers = itertools.count(1)


@asynccontextmanager
async def session(
    cluster: Cluster,
    user: str = "admin",
    groups: tuple[str, ...] = ADMINS,
    *,
    kubeconfig: Path | None = None,
    pace: RateLimiter | None = None,
    sleep: Sleep = asyncio.sleep,
    kind: type[Api] = Api,
) -> AsyncIterator[Api]:
    """As an administrator at full speed, unless stated."""
    clock = SystemClock()
    credentials = from_kubeconfig(kubeconfig or cluster.kubeconfig(user, groups), clock)
    async with kind(credentials, pace or RateLimiter(10_000, 10_000, clock), Random(1), sleep) as api:
        yield api


async def a_namespace(api: Api) -> str:
    """A new one; it stays, since nobody runs here who would empty it."""
    name = f"test-{next(_numbers)}"
    await api.create(NAMESPACES.path(), {"metadata": {"name": name}})
    return name


@asynccontextmanager
async def gone_afterwards(api: Api, *paths: str) -> AsyncIterator[None]:
    """What is there is deleted however the block ends, so that a test that fails takes no other with it."""
    try:
        yield
    finally:
        for path in paths:
            with suppress(NotFoundError):
                await api.delete(path)


def a_pod(name: str, node: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {"schedulerName": "quorate", "containers": [{"name": "main", "image": "none"}]}
    return {"metadata": {"name": name}, "spec": {**spec, **({"nodeName": node} if node else {})}}


def a_config_map(name: str, value: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"value": value}}


def audited(cluster: Cluster, path: str = "") -> list[dict[str, Any]]:
    """What the server has answered so far under this path, or all of it."""
    events = [json.loads(line) for line in cluster.audit_log.read_text().splitlines()]
    return [event for event in events if not path or event["requestURI"].split("?")[0] == path]


async def until(true: Callable[[], bool]) -> None:
    """Rests until that is so."""
    async with asyncio.timeout(SOON_S):
        while not true():
            await asyncio.sleep(0.01)
