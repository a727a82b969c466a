"""Events on a real API server: what arrives, and that the same again is counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import NotAllowedError
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.status.events import EVENTS, Events
from reconciler.kubernetes.status.occurrences import Occurrence, Regarding, scheduled_occurrence
from solver.model.cluster import NodeName
from solver.model.quantities import Instant
from tests.kubernetes.sessions import REAL, a_namespace, a_pod, audited, session

pytestmark = REAL
NOW = Instant.parse("2026-11-20T08:00:00.250Z")


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> Instant:
        return self.at

    def monotonic_s(self) -> float:
        return self.at / 1000


def leading() -> None:
    """Nobody else does."""


async def the_pod(api: Api, name: str) -> Regarding:
    space = await a_namespace(api)
    made = await api.create(PODS.path(space), a_pod(name))
    return Regarding("Pod", space, name, made["metadata"]["uid"])


async def events(api: Api, namespace: str) -> list[dict[str, Any]]:
    return list((await api.get(EVENTS.path(namespace), dict[str, Any]))["items"])


def test_an_event_says_what_happened_in_kubernetes_own_words(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            pod = await the_pod(api, "one")
            told = Events(api, leading, Clock(), "quorate-0_1")
            told.happened([scheduled_occurrence(pod, NodeName("n1"), ["GPU-1", "GPU-2"])])
            assert await told.tell() == (1, 0)
            assert await told.tell() == (0, 0)
            (event,) = await events(api, pod.namespace)
            assert event["regarding"] == {
                "apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": "one", "uid": pod.uid
            }  # fmt: skip
            assert {
                key: event[key] for key in ("reason", "action", "note", "type", "reportingController", "eventTime")
            } == {
                "reason": "Scheduled",
                "action": "Binding",
                "note": "bound to n1 with GPU-1, GPU-2",
                "type": "Normal",
                "reportingController": "quorate.dev/scheduler",
                "eventTime": "2026-11-20T08:00:00.250000Z",
            }

    asyncio.run(story())


def test_the_same_again_is_a_series_of_one_event(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            pod, clock = await the_pod(api, "one"), Clock()
            told = Events(api, leading, clock, "quorate-0_1")
            for _ in range(5):
                told.happened([Occurrence(pod, "EvictionRefused", "Evict", "a budget allows none", warning=True)])
                await told.tell()
            assert len(audited(cluster, EVENTS.path(pod.namespace))) == 1
            assert await told.tell() == (0, 1)  # its count waits for its turn
            clock.at = NOW.after(60_000)
            assert await told.tell() == (1, 0)
            (event,) = await events(api, pod.namespace)
            assert event["series"] == {"count": 5, "lastObservedTime": "2026-11-20T08:00:00.250000Z"}
            assert event["type"] == "Warning"
            # An Event expires on the server before its series does.
            await api.delete(EVENTS.path(pod.namespace, event["metadata"]["name"]))
            told.happened([Occurrence(pod, "EvictionRefused", "Evict", "a budget allows none", warning=True)])
            clock.at = NOW.after(120_000)
            assert await told.tell() == (0, 0)
            told.happened([Occurrence(pod, "EvictionRefused", "Evict", "a budget allows none", warning=True)])
            assert await told.tell() == (1, 0)

    asyncio.run(story())


def test_an_event_whose_answer_never_came_is_not_written_twice(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            pod = await the_pod(api, "one")
            for _ in range(2):  # the second does not know of the first
                told = Events(api, leading, Clock(), "quorate-0_1")
                told.happened([scheduled_occurrence(pod, NodeName("n1"), [])])
                await told.tell()
                assert await told.tell() == (0, 0)
            assert len(await events(api, pod.namespace)) == 1

    asyncio.run(story())


def test_of_a_node_with_a_long_story(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            node = Regarding("Node", "", "n-" + "x" * 240, "n-" + "x" * 240)
            told = Events(api, leading, Clock(), "i" * 200)
            told.happened([Occurrence(node, "NodeRefused", "Inventory", "ß" * 2000, warning=True)])
            assert await told.tell() == (1, 0)
            (event,) = [one for one in await events(api, "default") if one["regarding"]["name"] == node.name]
            assert len(event["note"].encode()) <= 1024
            assert event["note"].endswith("ß...")

    asyncio.run(story())


def test_what_the_server_never_takes_is_said_and_not_tried_for_ever(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api, session(cluster, "nobody", ()) as powerless:
            pod = await the_pod(api, "one")
            told = Events(powerless, leading, Clock(), "quorate-0_1")
            told.happened([scheduled_occurrence(pod, NodeName("n1"), [])])
            with pytest.raises(NotAllowedError, match="events"):
                await told.tell()
            assert await told.tell() == (0, 0)

    asyncio.run(story())
