"""A plane that only looks: watches of what is there, and nothing that could write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.followed import Seams
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.kubernetes.control.cluster_cache import ClusterCache
from reconciler.kubernetes.control.connection import ClusterConnection, alongside
from reconciler.kubernetes.control.observer import Observer
from reconciler.kubernetes.control.plane import Handed, PodPlane
from reconciler.kubernetes.control.watch_status import say_what_is_behind


@asynccontextmanager
async def observing(where: ClusterConnection, handed: Handed, observer: Observer) -> AsyncIterator[PodPlane]:
    """The plane, once everything in the cluster was read; what was observed is kept when the block ends.

    Raises KubernetesError where a person has to act, also in the block, and StoreUnusableError.
    """
    clock, chance, log = handed.clock, handed.chance, handed.log
    async with Api(where.credentials, RateLimiter(where.qps, where.burst, clock), chance) as api:
        mirror = ClusterCache(Seams(api, clock, chance, log), whose=observer.whose)
        async with alongside(mirror.run(), say_what_is_behind(mirror, log)):
            await mirror.ready()
            try:
                yield PodPlane(mirror, handed, observer=observer)
            finally:
                await observer.save()
