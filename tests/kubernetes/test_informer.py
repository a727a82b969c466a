"""Watches against a real API server: what is held is what is there, whatever breaks meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from random import Random
from typing import Any, Literal

import aiohttp
import msgspec
import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client import informer
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.informer import Change, Informer, Key
from reconciler.kubernetes.client.pace import Sleep
from reconciler.kubernetes.client.refusals import NotAllowedError, NotFoundError
from reconciler.kubernetes.objects.resource import PODS, Resource
from tests.drawn import worlds
from tests.kubernetes.proxied import cuttable
from tests.kubernetes.sessions import CONFIG_MAPS, REAL, SOON_S, a_config_map, a_namespace, a_pod, session, until

pytestmark = REAL


LIMIT_RANGES = Resource("v1", "limitranges")
"""None is there but in one test."""


class ConfigMap(msgspec.Struct):
    metadata: dict[str, Any]
    data: dict[str, str] = {}


class ConfigMapList(msgspec.Struct):
    items: list[ConfigMap]


Batches = AsyncGenerator[tuple[Change[ConfigMap], ...]]


def watched(api: Api, resource: Resource = CONFIG_MAPS, sleep: Sleep = asyncio.sleep) -> Informer[ConfigMap]:
    return Informer(api, resource, ConfigMap, Random(1), structlog.get_logger(), sleep)


async def all_there(api: Api) -> dict[Key, ConfigMap]:
    listed = await api.get(CONFIG_MAPS.path(), ConfigMapList)
    return {Key(each.metadata["namespace"], each.metadata["name"]): each for each in listed.items}


async def told(batches: Batches, namespace: str, enough: int) -> list[tuple[str, str, str]]:
    """The next changes in a namespace: name, value before, value after."""
    found: list[tuple[str, str, str]] = []
    async with asyncio.timeout(SOON_S):
        while len(found) < enough:
            found += [
                (change.key.name, _value(change.before), _value(change.after))
                for change in await anext(batches)
                if change.key.namespace == namespace
            ]
    return found


def _value(config_map: ConfigMap | None) -> str:
    return config_map.data["value"] if config_map else "-"


def test_what_changes_is_told_with_what_was_before(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api:
            namespace = await a_namespace(api)
            there = CONFIG_MAPS.path(namespace)
            await api.create(there, a_config_map("one", "a"))
            seen = watched(api)
            async with aclosing(seen.changes()) as batches:
                assert await told(batches, namespace, 1) == [("one", "-", "a")]
                await api.create(there, a_config_map("two", "b"))
                await api.patch(f"{there}/one", {"data": {"value": "c"}})
                await api.delete(f"{there}/two")
                assert await told(batches, namespace, 3) == [("two", "-", "b"), ("one", "a", "c"), ("two", "b", "-")]
            assert dict(seen.items()) == await all_there(api)
            assert seen.get(Key(namespace, "two")) is None

    asyncio.run(story())


def test_an_object_larger_than_any_buffer_is_one_event(cluster: Cluster) -> None:
    async def story() -> None:
        large = "x" * 900_000
        async with session(cluster) as api:
            namespace = await a_namespace(api)
            async with aclosing(watched(api).changes()) as batches:
                await anext(batches)
                await api.create(CONFIG_MAPS.path(namespace), a_config_map("one", large))
                assert await told(batches, namespace, 1) == [("one", "-", large)]
                await api.delete(CONFIG_MAPS.path(namespace, "one"))

    asyncio.run(story())


def test_bookmarks_come(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server sends one two seconds before the end of a watch, whatever its usual interval."""
    monkeypatch.setattr(informer, "WATCH_S", (4, 4))

    async def story() -> None:
        async with session(cluster) as api:
            pods = watched(api, PODS)
            kinds: list[str] = []
            monkeypatch.setattr(pods, "_applied", lambda event, told: kinds.append(event.type))
            reading = asyncio.create_task(_retell(pods, {}))
            await until(lambda: pods.revision != "")
            # Before a pod has changed, an API server with an old etcd does not know that it is as far as the list was.
            await api.create(PODS.path(await a_namespace(api)), a_pod("one"))
            await until(lambda: "BOOKMARK" in kinds)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert set(kinds) == {"ADDED", "BOOKMARK"}

    asyncio.run(story())


def test_silence_is_no_break_and_delays_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds of which nothing changes for hours are the usual ones: no warning, no rest, no second list."""
    monkeypatch.setattr(informer, "SILENCE_S", 0.2)
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    async def story() -> None:
        async with session(cluster) as api:
            namespace = await a_namespace(api)
            seen = watched(api, LIMIT_RANGES, rest)
            async with aclosing(seen.changes()) as batches:
                assert await anext(batches) == ()
                reading = asyncio.create_task(anext(batches))
                await until(lambda: seen.renewals >= 3)
                await api.create(LIMIT_RANGES.path(namespace), {"metadata": {"name": "one"}, "spec": {"limits": []}})
                assert [change.key for change in await reading] == [Key(namespace, "one")]

    with structlog.testing.capture_logs() as logs:
        asyncio.run(story())
    assert [entry for entry in logs if entry["log_level"] == "warning"] == []
    assert rests == []


def test_after_a_compaction_only_the_differences_are_told(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer, "PAGE", 2)

    async def story() -> None:
        async with session(cluster) as api:
            namespace = await a_namespace(api)
            there = CONFIG_MAPS.path(namespace)
            for name in ("gone", "changed", "anew", "same", "more"):
                await api.create(there, a_config_map(name, "a"))
            seen = watched(api)
            async with aclosing(seen.changes()) as batches:
                await told(batches, namespace, 5)
            await api.delete(f"{there}/gone")
            await api.patch(f"{there}/changed", {"data": {"value": "b"}})
            await api.delete(f"{there}/anew")
            await api.create(there, a_config_map("anew", "b"))
            await api.create(there, a_config_map("new", "b"))
            await compact(cluster, api)
            with structlog.testing.capture_logs() as logs:
                async with aclosing(seen.changes()) as batches:
                    differences = await told(batches, namespace, 5)
            assert sorted(differences) == [
                ("anew", "-", "b"), ("anew", "a", "-"), ("changed", "a", "b"), ("gone", "a", "-"), ("new", "-", "b"),
            ]  # fmt: skip
            assert [line["event"] for line in logs] == ["watch-forgotten"]
            assert dict(seen.items()) == await all_there(api)

    asyncio.run(story())


async def compact(cluster: Cluster, api: Api) -> None:
    """etcd forgets all that was before now."""
    listed = await api.get(CONFIG_MAPS.path(), dict[str, Any])
    revision = listed["metadata"]["resourceVersion"]
    async with (
        aiohttp.ClientSession() as etcd,
        etcd.post(f"{cluster.etcd}/v3/kv/compaction", json={"revision": revision, "physical": True}) as answer,
    ):
        assert answer.status == 200 or "compacted" in await answer.text()


def test_what_may_not_be_read_or_is_not_known_is_for_a_person(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api, session(cluster, "nobody", ()) as nobody:
            with pytest.raises(NotAllowedError):
                await anext(watched(nobody).changes())
            with pytest.raises(NotFoundError):
                await anext(watched(api, Resource("scheduling.volcano.sh/v1beta1", "podgroups")).changes())

    asyncio.run(story())


Deed = Literal["write", "delete", "cut", "compact"]
DEEDS = st.lists(
    st.tuples(st.sampled_from(["write", "write", "write", "delete", "delete", "cut", "compact"]), st.integers(0, 4)),
    min_size=5,
    max_size=40,
)


@settings(worlds(40), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(DEEDS)
def test_after_any_changes_and_breaks_what_is_held_is_what_is_listed(
    cluster: Cluster, deeds: list[tuple[Deed, int]]
) -> None:
    """And what was told, one after the other, leads there: nothing is left out or told twice."""

    async def story() -> None:
        async with (
            session(cluster) as api,
            cuttable(cluster) as way,
            session(cluster, kubeconfig=way.kubeconfig, sleep=at_once) as cut,
        ):
            seen = watched(cut, sleep=at_once)
            retold: dict[Key, ConfigMap] = {}
            reading = asyncio.create_task(_retell(seen, retold))
            namespace = await a_namespace(api)
            for number, (deed, which) in enumerate(deeds):
                match deed:
                    case "cut":
                        way.cut()
                    case "compact":
                        await compact(cluster, api)
                    case _:
                        await _change(api, namespace, deed, f"c{which}", str(number))
            await api.create(CONFIG_MAPS.path(namespace), a_config_map("last", "-"))
            await until(lambda: reading.done() or Key(namespace, "last") in retold)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert retold == dict(seen.items()) == await all_there(api)

    asyncio.run(story())


async def at_once(_: float) -> None:
    await asyncio.sleep(0.001)


async def _retell(seen: Informer[ConfigMap], retold: dict[Key, ConfigMap]) -> None:
    async for changes in seen.changes():
        for change in changes:
            assert retold.pop(change.key, None) == change.before
            if change.after:
                retold[change.key] = change.after


async def _change(api: Api, namespace: str, deed: Deed, name: str, value: str) -> None:
    there = Key(namespace, name) in await all_there(api)
    if deed == "delete" and there:
        await api.delete(CONFIG_MAPS.path(namespace, name))
    elif deed == "write" and there:
        await api.patch(CONFIG_MAPS.path(namespace, name), {"data": {"value": value}})
    elif deed == "write":
        await api.create(CONFIG_MAPS.path(namespace), a_config_map(name, value))
