"""Parts that a run meets seldom, each once with the rights that are shipped: evictions, series of Events, Reservations."""

from __future__ import annotations

import asyncio

import structlog

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.binder.reservation_store import DeclaredStore
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.status.events import Events
from reconciler.kubernetes.status.occurrences import Occurrence
from reconciler.protocols.backend import Epoch
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import Reservation, declared_holder
from solver.model.quantities import Duration, Instant
from solver.model.workload import TaskPlacement
from tests.kubernetes.fencing import as_mighty_quorate, as_quorate, led_by
from tests.kubernetes.gangs import Leads, a_gang
from tests.kubernetes.kubelet import kubelet
from tests.kubernetes.sessions import REAL, a_namespace, session
from tests.kubernetes.test_eviction import Hands, events, evict, evictor, until_left, until_running, view
from tests.kubernetes.test_pod_events import Clock, the_pod
from tests.kubernetes.test_pod_events import events as told_in

pytestmark = REAL

LEADER = Leadership("here", Epoch(3), float("inf"))
"""As `Leads` says."""


def test_a_gang_is_evicted(fenced: Cluster) -> None:
    async def story() -> None:
        await led_by(fenced, LEADER)
        async with (
            session(fenced) as admin,
            as_mighty_quorate(fenced) as maker,  # of pods that have a node, which nobody else makes
            as_quorate(fenced) as quorate,
            kubelet(admin, ["u1"], {}),
            evictor(quorate, Hands()) as work,
        ):
            space = await a_namespace(admin)
            job = await a_gang(maker, space, "runs", ["u1", "u1"])
            await until_running(admin, space)
            assert events(await work.begin([evict(job, grace=Duration(0))], await view(admin, space))) == ["evicting"]
            await until_left(admin, space, set())

    asyncio.run(story())


def test_what_happens_again_is_counted(fenced: Cluster) -> None:
    async def story() -> None:
        async with session(fenced) as admin, as_quorate(fenced) as quorate:
            pod, clock = await the_pod(admin, "one"), Clock()
            told = Events(quorate, lambda: None, clock, "quorate-0_1")
            for _ in range(2):
                told.happened([Occurrence(pod, "EvictionBlocked", "Evict", "a budget allows none", warning=True)])
                await told.tell()
                clock.at = Instant(clock.at + 60_000)
            (event,) = await told_in(admin, pod.namespace)
            assert event["series"]["count"] == 2

    asyncio.run(story())


def test_what_reservations_keep_is_found_again(fenced: Cluster) -> None:
    async def story() -> None:
        async with as_quorate(fenced) as quorate:
            store = DeclaredStore(quorate, Leads(), names.NAMESPACE, structlog.get_logger())
            tasks = (TaskPlacement("held", 0, NodeName("n1"), (DeviceId("n1/0"),)),)
            kept = Reservation(declared_holder("maintenance"), tasks, Instant(1_000), Instant(9_000))
            await store.write("maintenance", kept)
            assert await store.read() == (kept,)

    asyncio.run(story())
