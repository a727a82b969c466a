"""Conditions of waiting pods on a real API server: what arrives, what is not written again, and what is never overwritten."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.status.conditions import ConditionText, PodConditionUpdate
from reconciler.kubernetes.status.pod_conditions import PodConditionWriter
from reconciler.kubernetes.status.turns import WriteSchedule
from reconciler.model.clock import SystemClock
from reconciler.protocols.ledger import NotLeaderError
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName
from tests.kubernetes.installing import granted, rule
from tests.kubernetes.sessions import REAL, a_namespace, a_pod, audited, session

pytestmark = REAL
FULL = ConditionText("QuotaMax", "waits: queue q holds 64 of max 64 H100; this job needs 8")


def leading() -> None:
    """Nobody else does."""


def telling(api: Api, quiet_ms: int = 30_000, budget: int = 100) -> PodConditionWriter:
    return PodConditionWriter(api, leading, SystemClock(), WriteSchedule(Duration(quiet_ms), budget))


async def pods(api: Api, *names: str) -> list[PodConditionUpdate]:
    """New ones in a namespace of their own, with what they are to say."""
    space = await a_namespace(api)
    made = [(await api.create(PODS.path(space), a_pod(name)))["metadata"] for name in names]
    return [
        PodConditionUpdate(JobName(each["name"]), space, each["name"], each["uid"], each["resourceVersion"], FULL)
        for each in made
    ]


async def fresh(api: Api, one: PodConditionUpdate) -> PodConditionUpdate:
    """The same of the pod as it is now."""
    now = await api.get(PODS.path(one.namespace, one.name), dict[str, Any])
    return one._replace(resource_version=now["metadata"]["resourceVersion"])


async def scheduled(api: Api, one: PodConditionUpdate) -> dict[str, Any]:
    pod = await api.get(PODS.path(one.namespace, one.name), dict[str, Any])
    (found,) = [each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled"]
    return dict(found)


def writes(cluster: Cluster, one: PodConditionUpdate) -> int:
    done = audited(cluster, PODS.path(one.namespace, one.name, "status"))
    return sum(event["verb"] == "patch" for event in done)


def test_what_is_told_arrives_and_the_same_is_never_written_twice(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            one, other = await pods(api, "one", "other")
            await api.patch(
                PODS.path(one.namespace, one.name, "status"),
                {"status": {"conditions": [{"type": "Ours", "status": "True"}]}},
            )
            one = await fresh(api, one)
            first = telling(api)
            assert await first.tell([one, other]) == (2, 0)
            assert await first.tell([one, other]) == (0, 0)
            condition = await scheduled(api, one)
            assert (condition["status"], condition["reason"], condition["message"]) == ("False", *FULL)
            pod = await api.get(PODS.path(one.namespace, one.name), dict[str, Any])
            assert {each["type"] for each in pod["status"]["conditions"]} == {"Ours", "PodScheduled"}
            # Who leads next finds it there.
            assert await telling(api).tell([await fresh(api, one), await fresh(api, other)]) == (0, 0)
            assert (writes(cluster, one), writes(cluster, other)) == (2, 1)

    asyncio.run(story())


def test_a_change_of_numbers_rests_and_keeps_the_time_of_the_transition(cluster: Cluster) -> None:
    async def story() -> None:
        fewer = FULL._replace(message=FULL.message.replace("64 of", "63 of"))
        async with session(cluster) as api:
            (one,) = await pods(api, "one")
            slow = telling(api)
            await slow.tell([one])
            before = await scheduled(api, one)
            changed = (await fresh(api, one))._replace(said=fewer)
            assert await slow.tell([changed]) == (0, 1)
            assert await telling(api, quiet_ms=0).tell([changed]) == (1, 0)
            after = await scheduled(api, one)
            assert after == {**before, "message": fewer.message}
            assert "lastTransitionTime" in after

    asyncio.run(story())


def test_a_pod_that_has_a_node_by_now_is_left_alone(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            bound, gone = await pods(api, "bound", "gone")
            binding = {"metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n1"}}
            await api.create(PODS.path(bound.namespace, "bound", "binding"), binding)
            await api.delete(PODS.path(gone.namespace, "gone"), {"gracePeriodSeconds": 0})
            assert await telling(api).tell([bound, gone]) == (0, 2)
            assert (await scheduled(api, bound))["status"] == "True"

    asyncio.run(story())


def test_a_pass_writes_no_more_than_its_budget(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            listed = await pods(api, *(f"pod-{number}" for number in range(7)))
            few = telling(api, budget=3)
            assert [await few.tell(listed) for _ in range(4)] == [(3, 4), (3, 1), (1, 0), (0, 0)]

    asyncio.run(story())


def test_nobody_writes_who_does_not_lead(cluster: Cluster) -> None:
    async def story() -> None:
        def deposed() -> None:
            raise NotLeaderError("another", Instant(0))

        async with session(cluster) as api:
            (one,) = await pods(api, "one")
            with pytest.raises(NotLeaderError):
                await PodConditionWriter(api, deposed, SystemClock()).tell([one])
            assert writes(cluster, one) == 0

    asyncio.run(story())


def test_it_takes_the_rights_that_are_written_down_and_no_more(cluster: Cluster) -> None:
    """pods: list, pods/status: patch."""

    async def story() -> None:
        rules = [rule("", "pods", "list"), rule("", "pods/status", "patch")]
        async with session(cluster) as api, session(cluster, "teller", ()) as limited:
            await granted(api, "teller", rules)
            (one,) = await pods(api, "one")
            assert await telling(limited).tell([one]) == (1, 0)

    asyncio.run(story())
