"""Connects a control plane with its cluster, and lets work what works beside passes: watches, and the election."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from reconciler.control.garbage_collection import filling
from reconciler.kubernetes.binder.binding import Binder
from reconciler.kubernetes.binder.binding_queue import pods_at_once
from reconciler.kubernetes.binder.eviction import Evictor
from reconciler.kubernetes.binder.nominations import Nominator
from reconciler.kubernetes.binder.partial_starts import ROLL_FORWARD_S
from reconciler.kubernetes.binder.save_hooks import Hooks
from reconciler.kubernetes.binder.start_recovery import StartRecovery
from reconciler.kubernetes.binder.volume_claims import VolumeClaims
from reconciler.kubernetes.client.api import Api, ToldTime
from reconciler.kubernetes.client.credentials import Credentials
from reconciler.kubernetes.client.kind_watch import WatchContext
from reconciler.kubernetes.client.leader import Election, Timing
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.kubernetes.control.actuator import KubernetesActuator
from reconciler.kubernetes.control.cluster_cache import ClusterCache
from reconciler.kubernetes.control.devices import Devices
from reconciler.kubernetes.control.namespace_publication import NamespacePublication
from reconciler.kubernetes.control.observer import Observer
from reconciler.kubernetes.control.partitioner import MIG_CONFIGS, MigPartitioner
from reconciler.kubernetes.control.plane import Handed, PodPlane
from reconciler.kubernetes.control.watch_status import say_what_is_behind
from reconciler.kubernetes.control.writes import PodWrites
from reconciler.kubernetes.dra.claims import Claims
from reconciler.kubernetes.objects.resource import LEASES
from reconciler.kubernetes.provisioning.provisioner import NodeProvisioner
from reconciler.kubernetes.status.teller import Teller

LEASE_QPS = 10.0, 20
"""Renewals have a session and a pace of their own, so that they never wait behind thousands of bindings."""

Beside = Callable[[Api, Election], Coroutine[None, None, None]]
"""What works for ever beside passes, where this process may come to lead."""


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """Where it is, as which user to speak, how often, and under which Lease, held how.

    `roll_forward_s`: how long a gang that was begun has until it is whole. `mig_configs`: namespace and name of the MIG manager's
    ConfigMap. `told_time`: hears the server's clock.
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
    told_time: ToldTime = lambda _, __: None


@asynccontextmanager
async def acting_plane(
    where: ClusterConnection, handed: Handed, beside: Sequence[Beside] = ()
) -> AsyncIterator[PodPlane]:
    """The plane, once everything in the cluster was read. Raises KubernetesError where a person has to act, also in the block."""
    memory, clock, chance, log = handed.memory, handed.clock, handed.chance, handed.log
    pace = RateLimiter(where.qps, where.burst, clock)
    async with (
        PodWrites(where.credentials, pace, chance) as api,
        Api(where.credentials, pace, chance) as of_telling,
        Api(where.credentials, RateLimiter(*LEASE_QPS, clock), chance, told_time=where.told_time) as of_lease,
        Hooks(api, clock, log) as hooks,
    ):
        mirror = ClusterCache(WatchContext(api, clock, chance, log))
        async with alongside(mirror.run()):
            with filling():
                await mirror.ready()
                # What it all means takes seconds the first time, in which no lease could be renewed.
                mirror.cluster()
            path = LEASES.path(where.namespace, where.lease)
            # Nothing in the cluster changes by it: without that, a new leader would wait for the next poll.
            wake = mirror.changed.set
            election = Election(of_lease, where.holder, clock, log, where.timing, path, leads=wake)
            teller = Teller(of_telling, election.leadership, clock, log, where.holder)
            at_once_max = pods_at_once(where.qps, where.roll_forward_s)
            binder = Binder(api, election.leadership, clock, at_once_max)
            promises = Nominator(api, election, clock, log, where.namespace)
            hands = KubernetesActuator(
                api,
                election.leadership,
                binder,
                StartRecovery(api, election.leadership, binder, clock, log, where.roll_forward_s),
                promises,
                Evictor(api, election, promises, hooks, clock, log),
                VolumeClaims(api, election, mirror.volumes, memory.note, log),
                Devices(Claims(api, election.leadership), mirror.devices, memory.note, clock, log),
                MigPartitioner(api, election, where.mig_configs, clock, memory.note, teller.happened, log),
                NodeProvisioner(
                    api, election.leadership, lambda: mirror.requests.standing().resource, clock, memory.note, log
                ),
                mirror,
                memory,
                teller.happened,
                clock,
                log,
            )
            tenants = NamespacePublication(handed.policies, lambda: mirror.local_queues, where.namespace, log)
            works = [each(api, election) for each in (tenants.run, *beside)]
            async with alongside(election.run(), teller.run(), say_what_is_behind(mirror, log), *works):
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


@asynccontextmanager
async def observing_plane(where: ClusterConnection, handed: Handed, observer: Observer) -> AsyncIterator[PodPlane]:
    """The plane, once everything in the cluster was read; what was observed is kept when the block ends.

    Raises KubernetesError where a person has to act, also in the block, and StoreUnusableError.
    """
    clock, chance, log = handed.clock, handed.chance, handed.log
    pace = RateLimiter(where.qps, where.burst, clock)
    async with Api(where.credentials, pace, chance, told_time=where.told_time) as api:
        mirror = ClusterCache(WatchContext(api, clock, chance, log), whose=observer.whose)
        async with alongside(mirror.run(), say_what_is_behind(mirror, log)):
            with filling():
                await mirror.ready()
                mirror.cluster()
            try:
                yield PodPlane(mirror, handed, observer=observer)
            finally:
                await observer.save()
