"""Connects a control plane with its cluster, and lets work what works beside passes: watches, and the election."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

from structlog.typing import FilteringBoundLogger

from reconciler.backends.kubernetes.api import Api
from reconciler.backends.kubernetes.binding import Binder
from reconciler.backends.kubernetes.credentials import Credentials
from reconciler.backends.kubernetes.followed import Seams
from reconciler.backends.kubernetes.leader import Election, Timing
from reconciler.backends.kubernetes.mirror import Mirror
from reconciler.backends.kubernetes.pace import Pace
from reconciler.backends.kubernetes.promises import Promises
from reconciler.backends.kubernetes.resource import LEASES
from reconciler.clock import Clock
from reconciler.control import PolicySource, Solve
from reconciler.pods.hands import Hands
from reconciler.pods.memory import Memory
from reconciler.pods.plane import PodPlane
from reconciler.store.interventions import Interventions

LEASE_QPS = 10.0, 20
"""Renewals have a session and a pace of their own, so that they never wait behind thousands of bindings."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where it is, as who to speak, how often, and under which Lease, held how. `observe`: only to look, without a Lease."""

    credentials: Credentials
    qps: float
    burst: int
    namespace: str
    lease: str
    holder: str
    observe: bool = False
    timing: Timing = Timing()  # noqa: RUF009  (immutable)


@asynccontextmanager
async def connected(
    where: Cluster,
    memory: Memory,
    interventions: Interventions,
    policies: PolicySource,
    solve: Solve,
    clock: Clock,
    chance: Random,
    log: FilteringBoundLogger,
) -> AsyncIterator[PodPlane]:
    """The plane, once everything in the cluster was read. Raises KubernetesError where a person has to act, also in the block."""
    async with (
        Api(where.credentials, Pace(where.qps, where.burst, clock), chance) as api,
        Api(where.credentials, Pace(*LEASE_QPS, clock), chance) as of_lease,
    ):
        mirror = Mirror(Seams(api, clock, chance, log))
        path = LEASES.path(where.namespace, where.lease)
        election = None if where.observe else Election(of_lease, where.holder, clock, log, where.timing, path)
        async with _beside(mirror, election):
            await mirror.ready()
            hands = None
            if election:
                binder = Binder(api, election.leadership, clock)
                promises = Promises(api, election, clock, log, where.namespace)
                hands = Hands(api, election, binder, promises, mirror, memory, log)
            yield PodPlane(mirror, hands, memory, interventions, policies, solve, clock)


@asynccontextmanager
async def _beside(mirror: Mirror, election: Election | None) -> AsyncIterator[None]:
    """While these work. The first that fails ends the block, and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as tasks:
            working = [tasks.create_task(mirror.run())]
            working += [tasks.create_task(election.run())] if election else []
            try:
                yield
            finally:
                for task in working:
                    task.cancel()
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
