"""Answers that came too late, or from a cache: what is known is not taken back, and what may still come is not forgotten."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

import msgspec
import pytest
import structlog

from reconciler.kubernetes.binder.binding import Binder, GangBinding, PodBinding
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.informer import Informer, Key
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.client.refusals import (
    ConflictError,
    KubernetesError,
    NotFoundError,
    TooManyRequestsError,
    UnreachableError,
)
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.objects.wire import Pod
from reconciler.model.clock import SystemClock
from reconciler.protocols.backend import Epoch
from solver.model.cluster import NodeName
from solver.model.workload import JobName

SILENT = UnreachableError("no answer")
BUSY = TooManyRequestsError("POST", 429, "TooManyRequests", "", retry_after_s=60, budget=False)
CONFLICT = ConflictError("POST", 409, "Conflict", "")
GONE = NotFoundError("POST", 404, "NotFound", "")
POD = {"metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7"}, "spec": {"containers": []}}


class Scripted:
    """Answers what it is told to, in that order."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    async def create(self, *_: Any) -> dict[str, Any]:
        answer = self._answers.pop(0)
        if isinstance(answer, KubernetesError):
            raise answer
        return {}

    async def get(self, _: str, kind: type[Any], *__: Any) -> Any:
        return msgspec.json.decode(msgspec.json.encode(POD if kind is Pod else self._answers.pop(0)), type=kind)


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ((SILENT, {}), "bound"),
        ((SILENT, BUSY), "unknown"),
        ((SILENT, CONFLICT, CONFLICT, CONFLICT), "unknown"),
        ((CONFLICT, CONFLICT, CONFLICT, CONFLICT), "conflict"),
        ((CONFLICT, BUSY), "unsent"),
        ((SILENT, GONE), "gone"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_binding_one_try_of_which_was_not_answered_may_still_come(answers: tuple[Any, ...], outcome: str) -> None:
    lead = Leadership("m", Epoch(1), float("inf"))
    binder = Binder(cast("Api", Scripted(*answers)), lambda: lead, SystemClock())
    gang = GangBinding(JobName("j"), 1, (PodBinding("ns", "p", "u", "7", NodeName("n1")),))
    (found,) = asyncio.run(binder.bind([gang]))
    assert found.pods[0].answer == outcome


def test_a_list_that_is_older_than_what_is_known_is_refused() -> None:
    def page(revision: str, *items: Any) -> dict[str, Any]:
        return {"metadata": {"resourceVersion": revision}, "items": [*items]}

    async def story() -> None:
        api = Scripted(page("9", POD), page("8"), page("10"))
        watched = Informer(cast("Api", api), PODS, Pod, Random(1), structlog.get_logger())
        await watched._listed()
        with pytest.raises(UnreachableError, match="a list of 8, and 9 is known"):
            await watched._listed()
        assert watched.get(Key("ns", "p"))
        await watched._listed()
        assert not watched.get(Key("ns", "p"))

    asyncio.run(story())
