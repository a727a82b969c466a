"""A session that dies at one of its writes: what it was to send is not sent any more, or was sent and nobody heard the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api, Check
from reconciler.kubernetes.client.kubeconfig import from_kubeconfig
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.model.clock import SystemClock
from tests.kubernetes.sessions import ADMINS


class Crash(BaseException):
    """The process is killed: nothing that handles errors sees it."""


class CrashingApi(Api):
    """Does so many writes and dies at the next, before it is sent or after it."""

    writes_left = 1_000_000
    heard = True
    writes = 0

    async def create(self, path: str, body: object, check: Check | None = None) -> dict[str, Any]:
        return await self._counted(super().create(path, body, check))

    async def patch(self, path: str, body: object, check: Check | None = None) -> dict[str, Any]:
        return await self._counted(super().patch(path, body, check))

    async def delete(self, path: str, body: object = None, check: Check | None = None) -> dict[str, Any]:
        return await self._counted(super().delete(path, body, check))

    async def _counted(self, write: Any) -> dict[str, Any]:
        last = self.writes >= self.writes_left
        self.writes += 1
        if last and self.heard:
            write.close()
            raise Crash
        answer: dict[str, Any] = await write
        if last:
            raise Crash
        return answer


@asynccontextmanager
async def crashing_session(
    cluster: Cluster, writes: int = 1_000_000, *, heard: bool = True
) -> AsyncIterator[CrashingApi]:
    """Dies after so many writes; not `heard`: with the next one done, but not answered."""
    clock = SystemClock()
    credentials = from_kubeconfig(cluster.kubeconfig("admin", ADMINS), clock)
    async with CrashingApi(credentials, RateLimiter(10_000, 10_000, clock), Random(1)) as api:
        api.writes_left, api.heard = writes, heard
        yield api
