"""A pass told to a real cluster, from objects to what people see."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

import pytest
import structlog
from structlog.testing import capture_logs

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.objects.wire import KubeNode, Pod, read
from reconciler.kubernetes.objects.world import cluster_of
from reconciler.kubernetes.status.events import EVENTS
from reconciler.kubernetes.status.occurrences import Occurrence, Regarding
from reconciler.kubernetes.status.pod_conditions import PodConditionWriter
from reconciler.kubernetes.status.queues import PolicyState
from reconciler.kubernetes.status.teller import LOOK_S, Facts, Teller
from reconciler.kubernetes.status.writes import WriteCount
from reconciler.model.clock import SystemClock
from reconciler.protocols.ledger import NotLeaderError
from solver.model.cluster import GpuType
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import snapshot_of
from solver.model.workload import QueueName
from solver.policy.policy import Queue, Quota, policy_of
from solver.round.solve import solve
from tests.kubernetes.installing import ACCOUNT, emptied, granted, rule, with_queues
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, session, until
from tests.reconciler.kubernetes.samples import node

pytestmark = REAL
RIGHTS = [
    rule("", "pods", "list"),
    rule("", "pods/status", "patch"),
    rule("events.k8s.io", "events", "create", "patch"),
    rule("quorate.dev", "queues", "list", "create", "patch", "delete"),
    rule("quorate.dev", "queues/status", "patch"),
]
QUOTA = Quota(GpuType("H100-SXM5-80GB"), guaranteed=MilliGpu.gpus(4), max=MilliGpu.gpus(4))
POLICY = policy_of((Queue(QueueName("small"), quota=(QUOTA,)), Queue(QueueName("large"))))


def a_job(name: str, gpus: int, queue: str) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus), "cpu": "1", "memory": "1Gi"}
    containers = [{"name": "main", "image": "none", "resources": {"limits": limits, "requests": limits}}]
    labels = {"quorate.dev/queue": queue}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"schedulerName": "quorate", "containers": containers},
    }


async def facts(api: Api, space: str) -> Facts:
    """What a pass makes of the pods of a namespace, and of one node with 8 GPUs."""
    listed = (await api.get(PODS.path(space), dict[str, Any]))["items"]
    pods = {(space, each["metadata"]["name"]): read(each, Pod) for each in listed}
    seen = cluster_of([read(node("n0"), KubeNode)], pods.values())
    # A minute later: nobody is still coming.
    snapshot = snapshot_of(SystemClock().now().after(60_000), seen.nodes, seen.jobs)
    plan = solve(snapshot, POLICY, None)
    return Facts(plan, seen, pods, snapshot, POLICY, PolicyState("abc123"))


@pytest.fixture
def cluster(fenced: Cluster) -> Cluster:
    """With the rights that are shipped."""
    return fenced


def leading() -> None:
    """Nobody else does."""


def a_teller(api: Api) -> Teller:
    return Teller(api, leading, SystemClock(), structlog.get_logger(), "quorate-0_1")


async def told(teller: Teller, facts: Facts) -> dict[str, WriteCount]:
    teller.note(facts)
    return await teller.write()


async def scheduled(api: Api, space: str) -> dict[str, str]:
    listed = (await api.get(PODS.path(space), dict[str, Any]))["items"]
    conditions = {each["metadata"]["name"]: each["status"].get("conditions", ()) for each in listed}
    return {
        name: condition["reason"]
        for name, found in conditions.items()
        for condition in found
        if condition["type"] == "PodScheduled"
    }


async def until_scheduled(api: Api, space: str, wanted: dict[str, str]) -> None:
    async with asyncio.timeout(SOON_S):
        while await scheduled(api, space) != wanted:
            await asyncio.sleep(0.05)


GO_ON_S = "reconciler.kubernetes.status.teller.GO_ON_S"


@pytest.fixture(autouse=True)
def no_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part may be told again at once."""
    monkeypatch.setattr(GO_ON_S, 0.0)


def test_a_pass_is_told_where_people_look_with_the_rights_it_takes(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as admin, session(cluster, ACCOUNT, ()) as api:
            await with_queues(admin)
            space = await a_namespace(admin)
            for name, gpus, queue in (
                ("fits", 8, "large"),
                ("full", 6, "small"),
                ("second", 8, "large"),
                ("lost", 1, ""),
            ):
                await admin.create(PODS.path(space), a_job(name, gpus, queue))
            teller = a_teller(api)
            done = await told(teller, await facts(admin, space))
            assert done["pods"] == WriteCount(3, 0)
            assert await scheduled(admin, space) == {
                "full": "Inadmissible",
                "second": "Unschedulable",
                "lost": "Refused",
            }
            events = (await admin.get(EVENTS.path(space), dict[str, Any]))["items"]
            assert {(one["regarding"]["name"], one["reason"], one["type"]) for one in events} >= {
                ("full", "Inadmissible", "Warning"),
                ("second", "Waiting", "Normal"),
                ("lost", "Refused", "Warning"),
            }
            large = await admin.get("/apis/quorate.dev/v1/queues/large", dict[str, Any])
            assert large["status"]["total"]["pending"] == 16
            again = await told(teller, await facts(admin, space))
            assert again == {"pods": WriteCount(0, 0), "events": WriteCount(0, 0)}  # queues are not counted as often
            await emptied(admin, space)

    asyncio.run(story())


def test_what_was_just_told_of_one_part_holds_no_other_up(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict comes right after queues were counted; the next one of pods has its turn later."""
    monkeypatch.setattr(GO_ON_S, 1000.0)

    async def story() -> None:
        async with session(cluster) as admin, session(cluster, ACCOUNT, ()) as api:
            await with_queues(admin)
            space = await a_namespace(admin)
            teller = a_teller(api)
            first = await told(teller, await facts(admin, space))
            assert first["queues"].arrived
            for number in range(2):
                await admin.create(PODS.path(space), a_job(f"lost-{number}", 1, ""))
                done = await told(teller, await facts(admin, space))
                assert done.get("pods") == (WriteCount(1, 0) if number == 0 else None)
            assert await scheduled(admin, space) == {"lost-0": "Refused"}
            await emptied(admin, space)

    asyncio.run(story())


def test_what_may_not_be_told_holds_nothing_else_up(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as admin, session(cluster, "half", ()) as api:
            await granted(admin, "half", RIGHTS[:2])
            space = await a_namespace(admin)
            await admin.create(PODS.path(space), a_job("lost", 1, ""))
            teller = a_teller(api)
            with capture_logs() as logs:
                assert await told(teller, await facts(admin, space)) == {"pods": WriteCount(1, 0)}
                assert await told(teller, await facts(admin, space)) == {"pods": WriteCount(0, 0)}
            assert sorted(line["part"] for line in logs) == ["events", "queues"]  # once: then they rest
            assert all("403" in line["error"] and line["takes"] for line in logs)
            await emptied(admin, space)

    asyncio.run(story())


def test_who_leads_no_more_writes_nothing_and_begins_anew_once_it_leads_again(cluster: Cluster) -> None:
    async def story() -> None:
        leads = False

        def check() -> None:
            if not leads:
                raise NotLeaderError("another", Instant(0))

        async with session(cluster) as api:
            space = await a_namespace(api)
            await api.create(PODS.path(space), a_job("lost", 1, ""))
            teller = Teller(api, check, SystemClock(), structlog.get_logger(), "quorate-0_1")
            found = await facts(api, space)
            with pytest.raises(NotLeaderError):
                await told(teller, found)
            with capture_logs() as log:
                running = asyncio.create_task(teller.run())
                await until(lambda: [entry["event"] for entry in log] == ["not-told"])
            assert await scheduled(api, space) == {}
            leads = True
            teller.note(found)
            await until_scheduled(api, space, {"lost": "Refused"})
            running.cancel()
            await emptied(api, space)

    asyncio.run(story())


def test_what_is_noted_while_a_write_is_refused_is_written_by_who_leads_again(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            space = await a_namespace(api)
            await api.create(PODS.path(space), a_job("lost", 1, ""))
            first, second = await facts(api, space), await facts(api, space)
            with capture_logs() as log:

                def check() -> None:
                    if not log:
                        teller.note(second)
                        raise NotLeaderError("another", Instant(0))

                teller = Teller(api, check, SystemClock(), structlog.get_logger(), "quorate-0_1")
                teller.note(first)
                running = asyncio.create_task(teller.run())
                await until_scheduled(api, space, {"lost": "Refused"})
            assert [entry["event"] for entry in log] == ["not-told"]
            running.cancel()
            await emptied(api, space)

    asyncio.run(story())


def test_what_was_left_is_written_though_nothing_new_comes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what was too much for one pod is counted in the log."""
    monkeypatch.setattr(GO_ON_S, 0.01)
    monkeypatch.setattr("reconciler.kubernetes.status.pod_conditions.WRITES_MAX", 1)

    async def story() -> None:
        async with session(cluster) as api:
            space = await a_namespace(api)
            for number in range(3):
                await api.create(PODS.path(space), a_job(f"lost-{number}", 1, ""))
            found = await facts(api, space)
            teller = a_teller(api)
            teller.note(found)
            pod = Regarding("Pod", space, "lost-0", found.pods[space, "lost-0"].metadata.uid)
            teller.happened(Occurrence(pod, "Waiting", "Scheduling", "x" * length) for length in range(1, 30))
            with capture_logs() as logs:
                running = asyncio.create_task(teller.run())
                async with asyncio.timeout(SOON_S):
                    while len(await scheduled(api, space)) < 3 or not any(
                        line["event"] == "events-dropped" for line in logs
                    ):
                        await asyncio.sleep(0.05)
                running.cancel()
            await emptied(api, space)

    asyncio.run(story())


def test_pods_are_not_looked_at_again_while_another_part_waits_for_its_time(cluster: Cluster) -> None:
    """Of a hundred thousand pods each look is the work of half a second; queues are told every few seconds."""

    async def story() -> int:
        async with session(cluster) as admin, session(cluster, ACCOUNT, ()) as api:
            await with_queues(admin)
            space = await a_namespace(admin)
            await admin.create(PODS.path(space), a_job("lost", 1, ""))
            teller = a_teller(api)
            with patch.object(PodConditionWriter, "tell", autospec=True, side_effect=PodConditionWriter.tell) as looks:
                running = asyncio.create_task(teller.run())
                for _ in range(2):  # the second is news while the time of queues has not come
                    teller.note(await facts(admin, space))
                    await until_scheduled(admin, space, {"lost": "Refused"})
                await asyncio.sleep(20 * LOOK_S)
                running.cancel()
            await emptied(admin, space)
            return looks.call_count

    assert 0 < asyncio.run(story()) < 10
