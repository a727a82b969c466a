"""Events of a watch as they rarely come: what a real server can't be made to send on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from random import Random
from typing import Any, cast

import msgspec
import pytest
import structlog

from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.informer import BACKOFF_S, Change, Informer, Key
from reconciler.kubernetes.client.refusals import UnreachableError, UnreadableError
from reconciler.kubernetes.objects.resource import PODS


class Scripted:
    """In place of the client: lists and blocks of a watch, one after the other; an exception is raised instead."""

    def __init__(self, lists: list[dict[str, Any]], watches: list[list[list[dict[str, Any]] | Exception]]) -> None:
        self._lists = lists
        self._watches = watches
        self.asked: list[str] = []

    async def get(self, path: str, kind: type[Any], parameters: Mapping[str, str]) -> Any:
        self.asked.append("list")
        return msgspec.json.decode(json.dumps(self._lists.pop(0)), type=kind)

    async def stream(self, path: str, parameters: Mapping[str, str], silence_s: float) -> AsyncGenerator[bytes]:
        self.asked.append(f"watch {parameters['resourceVersion']}")
        for block in self._watches.pop(0) if self._watches else []:
            if isinstance(block, Exception):
                raise block
            yield b"\n".join(json.dumps(event).encode() for event in block)


def pod(name: str, revision: int, uid: str = "u", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "uid": uid, "resourceVersion": str(revision)}, **more}


def event(kind: str, found: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": found}


def listed(revision: int, *items: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(revision)}, "items": list(items)}


def followed(server: Scripted, batches: int) -> tuple[list[list[tuple[str, bool, bool]]], list[float]]:
    """Changes batch by batch (name, whether something was there before, and is after), and rests between watches."""
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    async def story() -> list[tuple[Change[dict[str, Any]], ...]]:
        pods = Informer(cast("Api", server), PODS, dict[str, Any], Random(1), structlog.get_logger(), rest)
        async with aclosing(pods.changes()) as changes:
            return [await anext(changes) for _ in range(batches)]

    told = asyncio.run(story())
    return [
        [(change.key.name, change.before is not None, change.after is not None) for change in each] for each in told
    ], rests


def test_what_came_before_an_error_in_one_block_is_told() -> None:
    gone = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    server = Scripted([listed(1), listed(9, pod("a", 2))], [[[event("ADDED", pod("a", 2)), gone]]])
    told, _ = followed(server, 3)
    assert told == [[], [("a", False, True)], []]
    assert server.asked == ["list", "watch 1", "list"]


def test_a_watch_is_taken_up_where_it_broke_and_rests_grow_until_something_comes() -> None:
    broken = UnreachableError("watch pods")
    server = Scripted(
        [listed(1)],
        [
            [broken],
            [broken],
            [broken],
            [[event("BOOKMARK", pod("", 7))], broken],
            [broken],
            [[event("ADDED", pod("a", 9))]],
        ],
    )
    told, rests = followed(server, 2)
    assert told == [[], [("a", False, True)]]
    assert server.asked == ["list", "watch 1", "watch 1", "watch 1", "watch 1", "watch 7", "watch 7"]
    first = BACKOFF_S[0]
    for rest_s, most_s in zip(rests, [first, 2 * first, 4 * first, first, 2 * first], strict=True):
        assert most_s / 2 <= rest_s <= most_s


@pytest.mark.parametrize(
    "strange", [event("REPLACED", pod("a", 2)), event("ADDED", {"metadata": {}}), {"type": "ADDED"}]
)
def test_an_event_that_is_not_understood_is_for_a_person(strange: dict[str, Any]) -> None:
    with pytest.raises(UnreadableError, match="/api/v1/pods"):
        followed(Scripted([listed(1)], [[[strange]]]), 2)


def test_objects_that_have_not_changed_stay_the_same_through_a_new_list() -> None:
    gone = event("ERROR", {"kind": "Status", "code": 410})
    server = Scripted([listed(1, pod("a", 1)), listed(5, pod("a", 1, spec={"new": True}))], [[[gone]]])

    async def story() -> None:
        pods = Informer(cast("Api", server), PODS, dict[str, Any], Random(1), structlog.get_logger(), _at_once)
        async with aclosing(pods.changes()) as changes:
            await anext(changes)
            before = pods.get(Key("n", "a"))
            while server.asked.count("list") < 2:
                await anext(changes)
            assert pods.get(Key("n", "a")) is before

    asyncio.run(story())


async def _at_once(_: float) -> None:
    await asyncio.sleep(0)
