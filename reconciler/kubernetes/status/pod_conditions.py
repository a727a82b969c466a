"""Writes the condition PodScheduled=False of waiting pods: only what has changed, and not too often."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from reconciler.kubernetes.client.api import Api, Check
from reconciler.kubernetes.client.refusals import ConflictError, NotFoundError
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.objects.wire import Meta, Wire
from reconciler.kubernetes.status.conditions import ConditionText, PodConditionUpdate
from reconciler.kubernetes.status.turns import PendingWrite, WriteSchedule, without_numbers
from reconciler.kubernetes.status.writes import WriteCount, all_of
from reconciler.model.clock import Clock
from solver.model.quantities import Duration

QUIET: Final = Duration(30_000)
"""A message that changes only in numbers and times is written again this long after it was written last."""
WRITES_MAX: Final = 100
"""Conditions written in one go: bindings go the same way."""
PAGE: Final = 500
PENDING: Final = f"spec.schedulerName={names.SCHEDULER},spec.nodeName="
"""Field selector of the pods that may have something to be told."""


class _Condition(Wire, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Status(Wire, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class _Pod(Wire, frozen=True):
    metadata: Meta
    status: _Status = _Status()


class _ListMeta(Wire, frozen=True):
    next_page: str = msgspec.field(default="", name="continue")


class _Pods(Wire, frozen=True):
    metadata: _ListMeta
    items: tuple[_Pod, ...]


class PodConditionWriter:
    """What waiting pods say. One for each leader's term: what is written already it reads from the server, once.

    `check`: of every write; raises NotLeaderError where another may lead by now.
    """

    def __init__(self, api: Api, check: Check, clock: Clock, turns: WriteSchedule[str] | None = None) -> None:
        self._api = api
        self._check = check
        self._clock = clock
        self._turns = turns or WriteSchedule(QUIET, WRITES_MAX)
        self._said: dict[str, ConditionText] | None = None

    async def tell(self, told: Iterable[PodConditionUpdate]) -> WriteCount:
        """Each of these pods says so, as far as it is their turn. Raises NotLeaderError and KubernetesError."""
        said = await self._known()
        # Of a hundred thousand pods the work of half a second, in which watches go on and the lease is renewed.
        due, changes = await asyncio.to_thread(self._due, told, said)
        arrived = await all_of(self._write(one, said) for one in due)
        return WriteCount(arrived, changes - arrived)

    def _due(
        self, told: Iterable[PodConditionUpdate], said: dict[str, ConditionText]
    ) -> tuple[list[PodConditionUpdate], int]:
        """Whose turn it is, and how many pods do not say what they are to say."""
        wanted = {one.uid: one for one in told}
        for gone in said.keys() - wanted.keys():
            del said[gone]
        self._turns.keep(wanted)
        changes = [_change(one, said.get(uid)) for uid, one in wanted.items() if said.get(uid) != one.said]
        return [wanted[uid] for uid in self._turns.due(changes, self._clock.now())], len(changes)

    async def _known(self) -> dict[str, ConditionText]:
        if self._said is None:
            found: dict[str, ConditionText] = {}
            parameters = {"limit": str(PAGE), "fieldSelector": PENDING}
            while True:
                page = await self._api.get(PODS.path(), _Pods, parameters)
                found |= {pod.metadata.uid: said for pod in page.items if (said := _said_by(pod))}
                if not page.metadata.next_page:
                    break
                parameters["continue"] = page.metadata.next_page
            self._said = found
        return self._said

    async def _write(self, told: PodConditionUpdate, said: dict[str, ConditionText]) -> bool:
        """False: the pod is gone, or not as it was when it was looked at; the next pass sees it anew."""
        now = self._clock.now()
        condition: dict[str, Any] = {"type": "PodScheduled", "status": "False", **told.said._asdict()}
        if told.uid not in said:
            condition["lastTransitionTime"] = str(now.after(-(now % 1000)))
        # The version: a pod that has been bound meanwhile must not say that it waits.
        metadata = {"resourceVersion": told.resource_version}
        try:
            path = PODS.path(told.namespace, told.name, "status")
            body = {"metadata": metadata, "status": {"conditions": [condition]}}
            await self._api.patch_entries(path, body, self._check)
        except (ConflictError, NotFoundError):
            return False
        said[told.uid] = told.said
        self._turns.wrote(told.uid, now)
        return True


def _change(told: PodConditionUpdate, before: ConditionText | None) -> PendingWrite[str]:
    return PendingWrite(told.uid, minor=before is not None and _without_numbers(before) == _without_numbers(told.said))


def _without_numbers(said: ConditionText) -> ConditionText:
    return ConditionText(said.reason, without_numbers(said.message))


def _said_by(pod: _Pod) -> ConditionText | None:
    found = (one for one in pod.status.conditions if one.type == "PodScheduled" and one.status == "False")
    return next((ConditionText(one.reason, one.message) for one in found), None)
