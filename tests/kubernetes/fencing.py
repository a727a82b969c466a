"""Who the users are that the fence of a test's cluster tells apart, and who leads there."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from hack.kubernetes import fence
from hack.kubernetes.cluster import Cluster
from hack.kubernetes.fence import QUORATE
from hack.kubernetes.shipped import GROUPS
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.client.pace import RateLimiter
from tests.kubernetes.sessions import ADMINS, session


def as_quorate(
    cluster: Cluster, kind: type[Api] = Api, pace: RateLimiter | None = None
) -> AbstractAsyncContextManager[Api]:
    """As the service account that is shipped, with the rights that it was given there and no others."""
    return session(cluster, QUORATE, GROUPS, kind=kind, pace=pace)


def as_mighty_quorate(cluster: Cluster) -> AbstractAsyncContextManager[Api]:
    """As somebody with that name who may do anything, for what the fence says to it."""
    return session(cluster, QUORATE, ADMINS)


async def until_in_force(cluster: Cluster) -> None:
    """The fence refuses what it is to refuse."""
    async with session(cluster) as admin, as_quorate(cluster) as quorate:
        await fence.until_in_force(admin, quorate)


async def led_by(cluster: Cluster, leadership: Leadership | None) -> None:
    """The Lease says so, or is gone, and the fence has seen it."""
    async with session(cluster) as admin, as_quorate(cluster) as quorate:
        await fence.lead(admin, quorate, leadership)
