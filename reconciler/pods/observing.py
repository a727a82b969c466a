"""A plane that only looks: watches of what is there, and nothing that could write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reconciler.backends.kubernetes.api import Api
from reconciler.backends.kubernetes.followed import Seams
from reconciler.backends.kubernetes.mirror import Mirror
from reconciler.backends.kubernetes.pace import Pace
from reconciler.pods.connected import Cluster, alongside
from reconciler.pods.observer import Observer
from reconciler.pods.plane import Handed, PodPlane
from reconciler.pods.standing import say_what_is_behind


@asynccontextmanager
async def observing(where: Cluster, handed: Handed, observer: Observer) -> AsyncIterator[PodPlane]:
    """The plane, once everything in the cluster was read; what was observed is kept when the block ends.

    Raises KubernetesError where a person has to act, also in the block, and StoreUnusableError.
    """
    clock, chance, log = handed.clock, handed.chance, handed.log
    async with Api(where.credentials, Pace(where.qps, where.burst, clock), chance) as api:
        mirror = Mirror(Seams(api, clock, chance, log), whose=observer.whose)
        async with alongside(mirror.run(), say_what_is_behind(mirror, log)):
            await mirror.ready()
            try:
                yield PodPlane(mirror, handed, observer=observer)
            finally:
                await observer.save()
