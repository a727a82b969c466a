"""A test's cluster with the fence, as Quorate uses it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from hack.kubernetes import fence
from hack.kubernetes.cluster import Cluster
from hack.kubernetes.fence import QUORATE
from reconciler.backends.kubernetes.api import Api
from reconciler.backends.kubernetes.leader import Leadership
from reconciler.backends.kubernetes.pace import Pace
from tests.kubernetes.sessions import ADMINS, session


def as_quorate(cluster: Cluster, kind: type[Api] = Api, pace: Pace | None = None) -> AbstractAsyncContextManager[Api]:
    """With an administrator's rights: what is tested here is the fence, not RBAC."""
    return session(cluster, QUORATE, ADMINS, kind=kind, pace=pace)


async def install(cluster: Cluster) -> None:
    """All of it is in force."""
    async with session(cluster) as admin, as_quorate(cluster) as quorate:
        await fence.install(admin, quorate)


async def led_by(cluster: Cluster, leadership: Leadership | None) -> None:
    """The Lease says so, or is gone, and the fence has seen it."""
    async with session(cluster) as admin, as_quorate(cluster) as quorate:
        await fence.lead(admin, quorate, leadership)
