"""A kind that is followed whatever the server answers: scripted answers, and what follows from them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from random import Random
from typing import Any, cast

import msgspec
import pytest
import structlog

from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.informer import Change
from reconciler.kubernetes.client.kind_watch import AGAIN_S, NEEDED_AGAIN_S, KindWatch, WatchContext
from reconciler.kubernetes.client.refusals import KubernetesError, NotAllowedError, refusal
from reconciler.kubernetes.objects.resource import Resource
from reconciler.model.clock import SystemClock

OLD, NEW = Resource("example.org/v1alpha1", "things"), Resource("example.org/v1", "things")


class Thing(msgspec.Struct):
    metadata: dict[str, str]


class EndOfScriptError(Exception):
    """Everything that the script says was answered."""


class Jumping(SystemClock):
    """A clock that goes on by `jumps_s` with each rest."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self.jumps_s: list[float] = []

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


class Scripted:
    """For each path what lists answer, one after the other: names of what is there, or a status. Every watch is refused."""

    def __init__(self, **answers: Sequence[list[str] | int]) -> None:
        self._left = {f"/apis/example.org/{version}/things": list(told) for version, told in answers.items()}
        self.rests_s: list[float] = []
        self.clock = Jumping()

    async def get(self, path: str, kind: type[Any], _: Mapping[str, str]) -> Any:
        if not self._left[path]:
            raise EndOfScriptError
        answer = self._left[path].pop(0)
        if isinstance(answer, int):
            raise self._refused(answer)
        items = [{"metadata": {"name": name, "uid": name, "resourceVersion": "1"}} for name in answer]
        return msgspec.convert(
            {"metadata": {"resourceVersion": "7"}, "items": [_raw(item) for item in items]}, type=kind
        )

    async def stream(self, *_: object) -> AsyncGenerator[bytes]:
        raise self._refused(403)
        yield b""

    async def sleep(self, seconds: float) -> None:
        self.rests_s.append(seconds)
        self.clock.ahead_s += self.clock.jumps_s.pop(0) if self.clock.jumps_s else 0.0

    @staticmethod
    def _refused(status: int) -> KubernetesError:
        return refusal("GET things", status, b"")


def _raw(item: dict[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(item))


def followed(script: Scripted, *, needed: bool) -> tuple[KindWatch[Thing], list[tuple[str, str]]]:
    told: list[tuple[str, str]] = []

    def hear(changes: Sequence[Change[Thing]]) -> None:
        told.extend(("came" if change.before is None else "went", change.key.name) for change in changes)

    seams = WatchContext(cast("Api", script), script.clock, Random(1), structlog.get_logger(), script.sleep)
    return KindWatch(seams, (NEW, OLD), Thing, hear, needed=needed), told


def test_what_is_needed_stays_as_it_was_while_it_is_refused_and_is_asked_for_again_soon() -> None:
    script = Scripted(v1=[["a", "b"], 403, ["b", "c"]], v1alpha1=[])
    kind, told = followed(script, needed=True)
    with pytest.raises(EndOfScriptError):
        asyncio.run(kind.run())
    # Twice the list is there, each time the watch is refused after it; the list between them is refused.
    assert len(script.rests_s) == 3
    assert all(NEEDED_AGAIN_S / 2 <= rest_s <= NEEDED_AGAIN_S for rest_s in script.rests_s)
    assert told == [("came", "a"), ("came", "b"), ("came", "c"), ("went", "a")]
    assert "403" in kind.standing().problem
    assert not kind.standing().absent


def test_what_is_needed_and_was_never_there_is_for_a_person() -> None:
    kind, _ = followed(Scripted(v1=[403], v1alpha1=[404]), needed=True)
    with pytest.raises(NotAllowedError):
        asyncio.run(kind.run())
    assert not kind.settled.is_set()


def test_a_kind_is_followed_under_the_newest_name_that_the_server_knows_and_gone_with_it() -> None:
    script = Scripted(v1=[404, 404, ["c"]], v1alpha1=[["a"], 404])
    kind, told = followed(script, needed=False)
    with pytest.raises(EndOfScriptError):
        asyncio.run(kind.run())
    assert told == [("came", "a"), ("went", "a"), ("came", "c")]
    refused_s, absent_s, _ = script.rests_s
    assert refused_s <= NEEDED_AGAIN_S < AGAIN_S / 2 <= absent_s
    assert kind.settled.is_set()


def test_a_kind_that_is_refused_for_a_while_stays_as_it_was_and_for_long_is_gone() -> None:
    script = Scripted(v1=[["a"], 401, 401, 401], v1alpha1=[])
    kind, told = followed(script, needed=False)
    script.clock.jumps_s = [1.0, 1.0, AGAIN_S]
    with pytest.raises(EndOfScriptError):
        asyncio.run(kind.run())
    *soon_s, late_s = script.rests_s
    assert told == [("came", "a"), ("went", "a")]
    assert all(rest_s <= NEEDED_AGAIN_S for rest_s in soon_s)
    assert (len(soon_s), late_s >= AGAIN_S / 2) == (3, True)


def test_a_kind_that_the_server_does_not_have_is_no_problem() -> None:
    kind, _ = followed(Scripted(v1=[404], v1alpha1=[404]), needed=False)
    with pytest.raises(EndOfScriptError):
        asyncio.run(kind.run())
    assert kind.standing().absent
