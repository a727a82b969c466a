"""No round is decided on a view that is older than what was done, by this leader or by one before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import structlog

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.faults.profile import Profile
from hack.kubernetes.faulty_proxy import FaultyProxy
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.informer import Key
from reconciler.kubernetes.client.kubeconfig import from_kubeconfig
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.kubernetes.control.actuator import KubernetesActuator
from reconciler.kubernetes.control.cluster_cache import ClusterCache
from reconciler.kubernetes.control.writes import PodWrites
from reconciler.kubernetes.objects.resource import PODS
from reconciler.model.clock import SystemClock
from reconciler.protocols.backend import Epoch
from tests.kubernetes.mirrored import mirrored, seen
from tests.kubernetes.sessions import ADMINS, REAL, a_namespace, a_pod, session

pytestmark = REAL
CLOCK = SystemClock()


class Scene(NamedTuple):
    """A leader's hands with its mirror, which hears through the proxy; a pod that it sees; and a session beside it."""

    hands: KubernetesActuator
    mirror: ClusterCache
    proxy: FaultyProxy
    straight: Api
    pod: Key
    uid: str


@asynccontextmanager
async def scene(cluster: Cluster) -> AsyncIterator[Scene]:
    proxy = FaultyProxy(cluster, "someone", ADMINS)
    credentials = from_kubeconfig(cluster.kubeconfig("admin", ADMINS), CLOCK)
    lead = Leadership("m0", Epoch(1), float("inf"))
    async with (
        proxy.serving(),
        session(cluster) as straight,
        session(cluster, kubeconfig=proxy.kubeconfig("m0")) as through,
        mirrored(through) as mirror,
        PodWrites(credentials, RateLimiter(10_000, 10_000, CLOCK), Random(1)) as writes,
    ):
        pod = Key(await a_namespace(straight), "one")
        made = await straight.create(PODS.path(pod.namespace), a_pod(pod.name))
        await seen(mirror, lambda: mirror.pods.get(pod) is not None)
        unused: Any = mock.Mock()
        no_nodes: Any = mock.Mock(follow=mock.AsyncMock(), is_seen=lambda _: True)
        parts = (unused, unused, unused, unused, unused, unused, no_nodes, unused)
        hands = KubernetesActuator(writes, lambda: lead, *parts, mirror, unused, unused, CLOCK, structlog.get_logger())
        yield Scene(hands, mirror, proxy, straight, pod, made["metadata"]["uid"])


async def version(there: Scene) -> str:
    found = await there.straight.get(PODS.path(*there.pod), dict[str, Any])
    return str(found["metadata"]["resourceVersion"])


def test_a_new_leader_waits_until_it_sees_what_the_one_before_it_did(cluster: Cluster) -> None:
    async def story() -> None:
        async with scene(cluster) as there:
            there.proxy.worsen(Profile("deaf"), 1, 0.0)
            there.proxy.deaf.add("m0")
            binding = {"metadata": {"name": there.pod.name}, "target": {"kind": "Node", "name": "n1"}}
            await there.straight.create(PODS.path(*there.pod, "binding"), binding)
            waiting = asyncio.create_task(there.hands.caught_up())
            await asyncio.wait([waiting], timeout=0.5)
            assert not waiting.done()
            there.proxy.mend()
            await waiting
            pod = there.mirror.pods.get(there.pod)
            assert pod is not None
            assert pod.spec.node_name == "n1"
            before = await version(there)
            await there.hands.caught_up()
            assert await version(there) == before, "once for each time that it begins to lead"

    asyncio.run(story())


def test_a_binding_that_may_still_come_is_void_each_time(cluster: Cluster) -> None:
    async def story() -> None:
        async with scene(cluster) as there:
            versions = []
            for _ in range(3):
                there.hands._unknown[there.pod] = there.uid
                await there.hands.caught_up()
                assert not there.hands._unknown
                versions.append(await version(there))
            assert len(set(versions)) == 3

    asyncio.run(story())


def test_nothing_comes_for_a_pod_that_was_made_anew(cluster: Cluster) -> None:
    async def story() -> None:
        async with scene(cluster) as there:
            await there.hands.caught_up()
            before = await version(there)
            there.hands._unknown[there.pod] = "another"
            there.hands._unknown[Key(there.pod.namespace, "gone")] = "gone"
            await there.hands.caught_up()
            assert not there.hands._unknown
            assert await version(there) == before

    asyncio.run(story())
