"""Each fault of the proxy against a real API server: what the server did, and what whoever asked was told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.faults.profile import Profile
from hack.kubernetes.faulty_proxy import FaultyProxy
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.refusals import (
    ConflictError,
    KubernetesError,
    NotFoundError,
    TooManyRequestsError,
    UnreachableError,
    UnreadableError,
)
from reconciler.kubernetes.objects.resource import PODS
from tests.kubernetes.sessions import ADMINS, CONFIG_MAPS, REAL, SOON_S, a_config_map, a_namespace, a_pod, session

pytestmark = REAL
LASTS_S = 0.3


@asynccontextmanager
async def faulty(cluster: Cluster, name: str = "m0") -> AsyncIterator[tuple[FaultyProxy, Api, Api, str]]:
    """The proxy, a session through it, one beside it, and a namespace."""
    proxy = FaultyProxy(cluster, "someone", ADMINS)
    async with proxy.serving(), session(cluster) as straight:
        space = await a_namespace(straight)
        async with session(cluster, kubeconfig=proxy.kubeconfig(name)) as through:
            yield proxy, through, straight, space


async def created(api: Api, space: str) -> None:
    await api.create(CONFIG_MAPS.path(space), a_config_map("one", "value"))


async def is_there(api: Api, space: str) -> bool:
    with suppress(NotFoundError):
        await api.get(CONFIG_MAPS.path(space, "one"), dict[str, Any])
        return True
    return False


@pytest.mark.parametrize(
    ("profile", "error", "done"),
    [
        (Profile("p", drop_before=100), UnreachableError, False),
        (Profile("p", drop_after=100), UnreachableError, True),
        (Profile("p", garbage=100), UnreadableError, True),
        (Profile("p", conflict=100), ConflictError, False),
        (Profile("p", busy=100), TooManyRequestsError, False),
        (Profile("p", broken=100), UnreachableError, False),
        (Profile("p", unavailable=100), UnreachableError, False),
    ],
    ids=lambda value: value._fields[[*value].index(100)] if isinstance(value, Profile) else "",
)
def test_a_write_is_done_or_not_as_the_fault_says(
    cluster: Cluster, profile: Profile, error: type[KubernetesError], *, done: bool
) -> None:
    async def story() -> None:
        async with faulty(cluster) as (proxy, through, straight, space):
            proxy.worsen(profile, 1, LASTS_S)
            with pytest.raises(error):
                await created(through, space)
            assert await is_there(straight, space) is done
            assert sum(proxy.befell.values()) >= 1
            proxy.mend()
            with suppress(ConflictError):
                await created(through, space)
            assert await is_there(through, space)

    asyncio.run(story())


def test_a_write_that_is_late_is_done_when_nobody_expects_it_any_more(cluster: Cluster) -> None:
    async def story() -> None:
        async with faulty(cluster) as (proxy, through, straight, space):
            proxy.worsen(Profile("p", late=100), 1, inf)
            with pytest.raises(UnreachableError):
                await created(through, space)
            assert not await is_there(straight, space)
            proxy.mend()
            await proxy.settled()
            assert await is_there(straight, space)

    asyncio.run(story())


def test_a_stale_list_is_what_was_with_its_old_version(cluster: Cluster) -> None:
    async def story() -> None:
        async with faulty(cluster) as (proxy, through, straight, space):
            await proxy.remembers()
            await straight.create(PODS.path(space), a_pod("new"))
            proxy.worsen(Profile("p", stale=100), 1, LASTS_S)
            old = await through.get(PODS.path(), dict[str, Any])
            proxy.mend()
            new = await through.get(PODS.path(), dict[str, Any])
            assert not [pod for pod in old["items"] if pod["metadata"]["namespace"] == space]
            assert [pod for pod in new["items"] if pod["metadata"]["namespace"] == space]
            assert int(old["metadata"]["resourceVersion"]) < int(new["metadata"]["resourceVersion"])

    asyncio.run(story())


@pytest.mark.parametrize("fault", ["watch_cut", "watch_garbage"])
def test_a_watch_breaks(cluster: Cluster, fault: str) -> None:
    async def story() -> None:
        async with faulty(cluster) as (proxy, through, straight, space):
            proxy.worsen(Profile("p", **{fault: 100}), 1, LASTS_S)
            lines = _watched(through, space)
            await straight.create(PODS.path(space), a_pod("new"))
            if fault == "watch_cut":
                with pytest.raises(UnreachableError):
                    await lines
            else:
                assert b"Bad Gateway" in await lines

    asyncio.run(story())


def test_a_watch_is_held_back_until_all_is_honest(cluster: Cluster) -> None:
    async def story() -> None:
        async with faulty(cluster) as (proxy, through, straight, space):
            proxy.worsen(Profile("p", watch_held=100), 1, inf)
            lines = asyncio.create_task(_watched(through, space))
            await straight.create(PODS.path(space), a_pod("new"))
            done, _ = await asyncio.wait([lines], timeout=LASTS_S)
            assert not done
            proxy.mend()
            assert b'"new"' in await lines

    asyncio.run(story())


def test_who_is_cut_off_reaches_nothing_and_others_do(cluster: Cluster) -> None:
    async def story() -> None:
        async with faulty(cluster, "m0") as (proxy, through, _, space):
            proxy.cut_off.add("m0")
            with pytest.raises(UnreachableError):
                await created(through, space)
            async with session(cluster, kubeconfig=proxy.kubeconfig("m1")) as other:
                await created(other, space)
            proxy.mend()
            assert await is_there(through, space)

    asyncio.run(story())


def _watched(api: Api, space: str) -> Coroutine[Any, Any, bytes]:
    """The first lines."""

    async def first() -> bytes:
        stream = api.stream(PODS.path(space), {"watch": "true"}, SOON_S)
        try:
            return await anext(stream)
        finally:
            await stream.aclose()

    return first()
