"""Promises on a real API server: written once, kept over crashes, taken back, and never by who does not lead."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.binder.intents import in_flight_of
from reconciler.kubernetes.binder.nominations import Nominator
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects.resource import PODS
from reconciler.model.clock import SystemClock
from reconciler.protocols.ledger import NotLeaderError
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import Reservation, declared_holder
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, TaskPlacement
from solver.plan.plan import Nominate, Reserve, Unreserve, Withdraw
from tests.kubernetes.crashing import Crash, CrashingApi, crashing_session
from tests.kubernetes.gangs import Leads, World, a_gang, seen
from tests.kubernetes.kubelet import kubelet
from tests.kubernetes.sessions import REAL, a_namespace, audited, session

pytestmark = REAL

TASKS = (TaskPlacement("worker", 0, NodeName("p1")), TaskPlacement("worker", 1, NodeName("p2")))


def promises(api: Api, leads: Leads | None = None, namespace: str = "default") -> Nominator:
    return Nominator(api, leads or Leads(), SystemClock(), structlog.get_logger(), namespace)


def nominate(job: JobName, tasks: tuple[TaskPlacement, ...] = TASKS) -> Nominate:
    return Nominate(job, 1, tasks, Duration(60_000))


def nominated_nodes(world: World) -> list[str]:
    return [pod.status.nominated_node_name for _, pod in sorted(world.pods.items())]


def test_a_promise_is_written_read_and_taken_back(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as admin, crashing_session(cluster) as api, kubelet(admin, ["p1", "p2"], {}):
            namespace = await a_namespace(api)
            job = await a_gang(api, namespace, "waits", ["", ""])
            made = api.writes
            world = await seen(api, namespace)
            reserve = Reserve(job, TASKS, Instant(9_000_000_000_000))
            assert await promises(api).keep([nominate(job), reserve], world.gangs, world.pods) == ()
            assert api.writes - made == 3  # the record, and the node of each pod
            world = await seen(api, namespace)
            found = in_flight_of(world.cluster, world.pods)
            assert [(intent.kind, intent.job, intent.attempt, intent.tasks) for intent in found.intents] == [
                ("nominate", job, 1, TASKS)
            ]
            assert found.reservations == (Reservation(job, TASKS, reserve.start),)
            assert nominated_nodes(world) == ["p1", "p2"]
            annotations = world.pods[namespace, "waits-0"].metadata.annotations
            assert (annotations["quorate.dev/leader"], annotations["quorate.dev/epoch"]) == ("here", "3")
            await promises(api).keep([Withdraw(job, 1), Unreserve(job)], world.gangs, world.pods)
            world = await seen(api, namespace)
            assert in_flight_of(world.cluster, world.pods).intents == ()
            assert nominated_nodes(world) == ["", ""]
            written = api.writes
            await promises(api).keep([Withdraw(job, 1), Unreserve(job)], world.gangs, world.pods)
            assert api.writes == written  # true already

    asyncio.run(story())


def test_a_pod_that_was_touched_meanwhile_is_read_again_and_one_that_was_replaced_is_not_written_on(
    cluster: Cluster,
) -> None:
    async def story() -> None:
        async with session(cluster) as api, kubelet(api, ["p3"], {}):
            namespace = await a_namespace(api)
            job = await a_gang(api, namespace, "waits", [""])
            stale = await seen(api, namespace)
            await api.patch(PODS.path(namespace, "waits-0"), {"metadata": {"labels": {"touched": "yes"}}})
            there = (TaskPlacement("worker", 0, NodeName("p3")),)
            assert await promises(api).keep([nominate(job, there)], stale.gangs, stale.pods) == ()
            world = await seen(api, namespace)
            assert len(in_flight_of(world.cluster, world.pods).intents) == 1
            await api.delete(PODS.path(namespace, "waits-0"), {"gracePeriodSeconds": 0})
            (gone,) = await promises(api).keep([Withdraw(job, 1), nominate(job, there)], world.gangs, world.pods)
            assert "404" in gone.reason
            await a_gang(api, namespace, "waits", [""])
            (replaced,) = await promises(api).keep([nominate(job, there)], stale.gangs, stale.pods)
            assert "409" in replaced.reason
            world = await seen(api, namespace)
            assert "quorate.dev/promise" not in world.pods[namespace, "waits-0"].metadata.annotations

    asyncio.run(story())


def test_who_does_not_lead_writes_nothing(cluster: Cluster) -> None:
    async def story() -> None:
        async with crashing_session(cluster) as api:
            namespace = await a_namespace(api)
            jobs = [await a_gang(api, namespace, name, ["", ""]) for name in ("a", "b")]
            world, written = await seen(api, namespace), api.writes
            with pytest.raises(NotLeaderError):
                await promises(api, Leads(now=False)).keep([nominate(job) for job in jobs], world.gangs, world.pods)
            assert api.writes == written

    asyncio.run(story())


@pytest.mark.parametrize("heard", [True, False])
def test_killed_at_any_write_the_next_one_finds_or_makes_the_same_promise(cluster: Cluster, heard: bool) -> None:
    nodes = ["p4", "p5"] if heard else ["p6", "p7"]

    async def story() -> None:
        async with session(cluster) as admin, kubelet(admin, nodes, {}):
            tasks = tuple(TaskPlacement("worker", n, NodeName(node)) for n, node in enumerate(nodes))
            for writes in range(3):
                namespace = await a_namespace(admin)
                job = await a_gang(admin, namespace, "waits", ["", ""])
                async with crashing_session(cluster, writes, heard=heard) as api:
                    with pytest.raises(Crash):
                        await _promised(api, namespace, job, tasks)
                world = await seen(admin, namespace)
                first = in_flight_of(world.cluster, world.pods).intents
                async with crashing_session(cluster) as api:
                    await _promised(api, namespace, job, tasks)
                world = await seen(admin, namespace)
                found = in_flight_of(world.cluster, world.pods)
                assert [intent.tasks for intent in found.intents] == [tasks]
                assert first in ((), found.intents)
                assert nominated_nodes(world) == [task.node for task in tasks]

    asyncio.run(story())


async def _promised(api: CrashingApi, namespace: str, job: JobName, tasks: tuple[TaskPlacement, ...]) -> None:
    """As a pass does it: what is promised already is not promised again, and only made true."""
    world = await seen(api, namespace)
    known = in_flight_of(world.cluster, world.pods).intents
    steps = [] if known else [nominate(job, tasks)]
    await promises(api).keep(steps, world.gangs, world.pods, known)


def test_what_documents_keep_is_found_again(cluster: Cluster) -> None:
    async def story() -> None:
        async with crashing_session(cluster) as api:
            namespace = await a_namespace(api)
            store = promises(api, namespace=namespace)
            assert await store.declared.read() == ()
            holder = declared_holder("maintenance@2026-11-30T19:00:00Z")
            tasks = (TaskPlacement("held", 0, NodeName("p1"), (DeviceId("p1/0"),)),)
            reserve = Reserve(holder, tasks, Instant(1_000), Instant(9_000))
            await store.keep([Unreserve(holder)], {}, {})
            await store.keep([reserve, Reserve(declared_holder("other"), (), Instant(1_000))], {}, {})
            kept = Reservation(holder, tasks, Instant(1_000), Instant(9_000))
            assert kept in await promises(api, namespace=namespace).declared.read()
            await store.keep([Unreserve(declared_holder("other"))], {}, {})
            assert await store.declared.read() == (kept,)
            path = f"/api/v1/namespaces/{namespace}/configmaps/quorate-reservations"
            await api.patch(path, {"data": {"broken": "{", "stolen": '{"holder": "vision.gang.a", "tasks": []}'}})
            assert await store.declared.read() == (kept,)
            reads = len(audited(cluster, path))
            assert [await store.declared.kept() for _ in range(3)] == [(kept,)] * 3
            assert len(audited(cluster, path)) == reads + 1  # read once
            await store.keep([Unreserve(holder)], {}, {})
            assert await store.declared.kept() == ()

    asyncio.run(story())
