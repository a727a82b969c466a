"""Keeps the objects of queues.quorate.dev as they are to be: only what has changed is written, and not too often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from reconciler.kubernetes.client.api import Api, Check
from reconciler.kubernetes.client.refusals import ConflictError, NotFoundError
from reconciler.kubernetes.objects.resource import Resource
from reconciler.kubernetes.objects.wire import Meta, Wire
from reconciler.kubernetes.status.queues import QueueCondition, QueueObject, Status
from reconciler.kubernetes.status.turns import PendingWrite, WriteSchedule
from reconciler.kubernetes.status.writes import WriteCount, all_of
from reconciler.model.clock import Clock
from solver.model.quantities import Duration

QUEUES: Final = Resource("quorate.dev/v1", "queues")
REVISION: Final = "quorate.dev/policy-revision"
QUIET: Final = Duration(10_000)
"""Figures of one queue are written this long after they were written last."""
WRITES_MAX: Final = 100
"""Queues written in one go."""


class _Queue(Wire, frozen=True):
    metadata: Meta
    status: Status = msgspec.field(default_factory=dict)


class _Queues(Wire, frozen=True):
    items: tuple[_Queue, ...]


class QueueStatusWriter:
    """The queues as objects. One for each leader's term: what is there already it reads from the server, once."""

    def __init__(self, api: Api, check: Check, clock: Clock, turns: WriteSchedule[str] | None = None) -> None:
        self._api = api
        self._check = check
        self._clock = clock
        self._turns = turns or WriteSchedule(QUIET, WRITES_MAX)
        self._there: dict[str, _Queue] | None = None

    async def tell(self, wanted: Mapping[str, QueueObject]) -> WriteCount:
        """There are exactly these, as far as it is their turn.

        Raises NotLeaderError and KubernetesError: NotFoundError where the definition is not installed.
        """
        if self._there is None:
            listed = await self._api.get(QUEUES.path(), _Queues)
            self._there = {queue.metadata.name: queue for queue in listed.items}
        there = self._there
        changes = [
            _change(queue, there.get(name)) for name, queue in wanted.items() if not _is_so(queue, there.get(name))
        ]
        changes += [PendingWrite(name, minor=False) for name in there.keys() - wanted.keys()]
        due = self._turns.due(sorted(changes), self._clock.now())
        arrived = await all_of(self._write(name, wanted.get(name), there) for name in due)
        self._turns.keep(wanted)
        return WriteCount(arrived, len(changes) - arrived)

    async def _write(self, name: str, wanted: QueueObject | None, there: dict[str, _Queue]) -> bool:
        """False: it is not as it was when it was read; it is read anew in the next pass."""
        try:
            if wanted is None:
                await self._api.delete(QUEUES.path(name=name), check=self._check)
                there.pop(name, None)
            else:
                there[name] = await self._made(wanted, there.get(name))
        except (ConflictError, NotFoundError):
            self._there = None
            return False
        self._turns.wrote(name, self._clock.now())
        return True

    async def _made(self, wanted: QueueObject, there: _Queue | None) -> _Queue:
        path, annotations = QUEUES.path(name=wanted.name), {REVISION: wanted.revision}
        if there is None:
            metadata = {"name": wanted.name, "annotations": annotations}
            await self._api.create(
                QUEUES.path(), {"apiVersion": QUEUES.version, "kind": "Queue", "metadata": metadata}, self._check
            )
        elif there.metadata.annotations.get(REVISION) != wanted.revision:
            await self._api.patch(path, {"metadata": {"annotations": annotations}}, self._check)
        conditions = [self._since(condition, there) for condition in wanted.conditions]
        status = {"status": {**wanted.figures, "conditions": conditions}}
        made = await self._api.patch(QUEUES.path(name=wanted.name, subresource="status"), status, self._check)
        return msgspec.convert(made, _Queue)

    def _since(self, condition: QueueCondition, there: _Queue | None) -> dict[str, Any]:
        before = _conditions(there).get(condition.type, {})
        now = self._clock.now()
        since = before.get("lastTransitionTime") if before.get("status") == condition.status else None
        return {**condition._asdict(), "lastTransitionTime": since or str(now.after(-(now % 1000)))}


def _conditions(there: _Queue | None) -> dict[str, dict[str, Any]]:
    return {one["type"]: one for one in there.status.get("conditions", ())} if there else {}


def _is_so(wanted: QueueObject, there: _Queue | None) -> bool:
    if there is None or not _means_the_same(wanted, there):
        return False
    figures = {key: value for key, value in there.status.items() if key != "conditions"}
    return figures == {key: value for key, value in wanted.figures.items() if value is not None}


def _means_the_same(wanted: QueueObject, there: _Queue) -> bool:
    """Nothing but figures differs."""
    told = {
        kind: QueueCondition(kind, one["status"], one["reason"], one["message"])
        for kind, one in _conditions(there).items()
    }
    types = [line["gpuType"] for line in there.status.get("gpus", ())]
    return (
        there.metadata.annotations.get(REVISION) == wanted.revision
        and told == {one.type: one for one in wanted.conditions}
        and there.status.get("parent") == wanted.figures["parent"]
        and types == [line["gpuType"] for line in wanted.figures["gpus"]]
    )


def _change(wanted: QueueObject, there: _Queue | None) -> PendingWrite[str]:
    return PendingWrite(wanted.name, minor=there is not None and _means_the_same(wanted, there))
