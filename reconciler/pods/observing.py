"""A plane that only looks: watches of what is there, and nothing that could write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

from structlog.typing import FilteringBoundLogger

from reconciler.backends.kubernetes.api import Api
from reconciler.backends.kubernetes.followed import Seams
from reconciler.backends.kubernetes.mirror import Mirror
from reconciler.backends.kubernetes.pace import Pace
from reconciler.clock import Clock
from reconciler.control import PolicySource, Solve
from reconciler.pods.connected import Cluster, alongside
from reconciler.pods.memory import Memory
from reconciler.pods.observer import Observer
from reconciler.pods.plane import PodPlane
from reconciler.store.interventions import Interventions


@asynccontextmanager
async def observing(
    where: Cluster,
    observer: Observer,
    memory: Memory,
    interventions: Interventions,
    policies: PolicySource,
    solve: Solve,
    clock: Clock,
    chance: Random,
    stalled: Callable[[], str],
    log: FilteringBoundLogger,
) -> AsyncIterator[PodPlane]:
    """The plane, once everything in the cluster was read; what was observed is kept when the block ends.

    Raises KubernetesError where a person has to act, also in the block, and StoreUnusableError.
    """
    async with Api(where.credentials, Pace(where.qps, where.burst, clock), chance) as api:
        mirror = Mirror(Seams(api, clock, chance, log), whose=observer.whose)
        async with alongside(mirror.run()):
            await mirror.ready()
            try:
                yield PodPlane(mirror, None, None, stalled, memory, interventions, policies, solve, clock, observer)
            finally:
                await observer.save()
