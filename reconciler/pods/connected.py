"""Connects a control plane with its cluster, and lets work what works beside passes: watches, and the election."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from reconciler.backends.kubernetes.api import Api
from reconciler.backends.kubernetes.binding import Binder
from reconciler.backends.kubernetes.credentials import Credentials
from reconciler.backends.kubernetes.dra.claims import Claims
from reconciler.backends.kubernetes.eviction import Evictor
from reconciler.backends.kubernetes.finishing import Finisher
from reconciler.backends.kubernetes.followed import Seams
from reconciler.backends.kubernetes.leader import Election, Timing
from reconciler.backends.kubernetes.mirror import Mirror
from reconciler.backends.kubernetes.pace import Pace
from reconciler.backends.kubernetes.promises import Promises
from reconciler.backends.kubernetes.resource import LEASES
from reconciler.backends.kubernetes.saving import Hooks
from reconciler.backends.kubernetes.sending import pods_at_once
from reconciler.backends.kubernetes.telling.teller import Teller
from reconciler.backends.kubernetes.unfinished import ROLL_FORWARD_S
from reconciler.pods.devices import Devices
from reconciler.pods.hands import Hands
from reconciler.pods.partitioner import MIG_CONFIGS, Partitioner
from reconciler.pods.plane import Handed, PodPlane
from reconciler.pods.standing import say_what_is_behind
from reconciler.pods.writes import PodWrites

LEASE_QPS = 10.0, 20
"""Renewals have a session and a pace of their own, so that they never wait behind thousands of bindings."""


Beside = Callable[[Api, Election], Coroutine[None, None, None]]
"""What works for ever beside passes, where this process may come to lead."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where it is, as who to speak, how often, and under which Lease, held how.

    `roll_forward_s`: how long a gang that was begun has until it is whole. `mig_configs`: namespace and name of the MIG manager's
    ConfigMap.
    """

    credentials: Credentials
    qps: float
    burst: int
    namespace: str
    lease: str
    holder: str
    timing: Timing = Timing()  # noqa: RUF009  (immutable)
    roll_forward_s: float = ROLL_FORWARD_S
    mig_configs: tuple[str, str] = MIG_CONFIGS


@asynccontextmanager
async def connected(where: Cluster, handed: Handed, beside: Sequence[Beside] = ()) -> AsyncIterator[PodPlane]:
    """The plane, once everything in the cluster was read. Raises KubernetesError where a person has to act, also in the block."""
    memory, clock, chance, log = handed.memory, handed.clock, handed.chance, handed.log
    pace = Pace(where.qps, where.burst, clock)
    async with (
        PodWrites(where.credentials, pace, chance) as api,
        Api(where.credentials, pace, chance) as of_telling,
        Api(where.credentials, Pace(*LEASE_QPS, clock), chance) as of_lease,
        Hooks(api, clock, log) as hooks,
    ):
        mirror = Mirror(Seams(api, clock, chance, log))
        async with alongside(mirror.run()):
            await mirror.ready()
            # What it all means takes seconds the first time, in which no lease could be renewed.
            mirror.cluster()
            path = LEASES.path(where.namespace, where.lease)
            # Nothing in the cluster changes by it: without that, who comes to lead would wait for the next poll.
            wake = mirror.changed.set
            election = Election(of_lease, where.holder, clock, log, where.timing, path, leads=wake)
            teller = Teller(of_telling, election.leadership, clock, log, where.holder)
            at_once_max = pods_at_once(where.qps, where.roll_forward_s)
            binder = Binder(api, election.leadership, clock, at_once_max)
            promises = Promises(api, election, clock, log, where.namespace)
            hands = Hands(
                api,
                election.leadership,
                binder,
                Finisher(api, election.leadership, binder, clock, log, where.roll_forward_s),
                promises,
                Evictor(api, election, promises, hooks, clock, log),
                Devices(Claims(api, election.leadership), mirror.devices, memory.note, clock, log),
                Partitioner(api, election, where.mig_configs, clock, memory.note, teller.happened, log),
                mirror,
                memory,
                teller.happened,
                clock,
                log,
            )
            async with alongside(
                election.run(), teller.run(), say_what_is_behind(mirror, log), *(each(api, election) for each in beside)
            ):
                yield PodPlane(mirror, handed, hands, teller)


@asynccontextmanager
async def alongside(*works: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """While these work. The first that fails ends the block, and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as tasks:
            working = [tasks.create_task(work) for work in works]
            try:
                yield
            finally:
                for task in working:
                    task.cancel()
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
