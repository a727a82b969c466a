"""Tells the cluster what passes find: conditions of pods, Events, queues. Beside the passes, and what fails holds nothing up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from reconciler.kubernetes.client.api import Api, Check
from reconciler.kubernetes.client.refusals import KubernetesError
from reconciler.kubernetes.objects.cluster import KubernetesCluster, in_order
from reconciler.kubernetes.objects.gang_troubles import gang_troubles
from reconciler.kubernetes.objects.wire import Pod
from reconciler.kubernetes.status.conditions import PodConditionUpdate, condition_updates, said_of_absent
from reconciler.kubernetes.status.events import Events
from reconciler.kubernetes.status.occurrences import Occurrence, of_plan, standing_occurrences, trouble_occurrences
from reconciler.kubernetes.status.pod_conditions import PodConditionWriter
from reconciler.kubernetes.status.queue_status import QueueStatusWriter
from reconciler.kubernetes.status.queues import PolicyState, QueueObject, queues_of
from reconciler.kubernetes.status.series import OnChange
from reconciler.kubernetes.status.writes import WriteCount, all_over
from reconciler.model.clock import Clock
from reconciler.protocols.ledger import NotLeaderError
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.plan.plan import Plan
from solver.policy.policy import Policy

GO_ON_S: Final = 1.0
"""After a part was written the next go at it, where something was left, or is new: its budget is for so long."""
LOOK_S: Final = 0.05
"""After one look at what is to be told, the next at the soonest."""
REST_S: Final = 10.0
"""After a failure the same part is tried again so much later: a right that is missing is not missed each second."""
QUEUES_EVERY_S: Final = 5.0
"""How often it is counted what queues hold."""
_TAKES: Final = {
    "pods": "pods: list; pods/status: patch",
    "events": "events.k8s.io events: create, patch",
    "queues": "deploy/kubernetes/crd-queues.yaml; queues: list, create, patch, delete; queues/status: patch",
}
"""What each part needs to be there, for the one that has to give it."""


class Facts(NamedTuple):
    """What a pass knows once it has acted. `postponed`: gangs that its plan starts, and that wait for others of it, with why.
    `awaited`: how it stands with nodes that were asked for; None: none are."""

    plan: Plan
    cluster: KubernetesCluster
    pods: Mapping[tuple[str, str], Pod]
    snapshot: Snapshot
    policy: Policy
    standing: PolicyState
    postponed: Mapping[JobName, str] = {}
    awaited: Mapping[JobName, str] | None = None


class Teller:
    """`note` what a pass found and `happened` what it did; `run` writes it. `instance` names this process: the holder of the Lease.

    `check` of every write raises NotLeaderError where another may lead by now. Then all is forgotten, since that one writes, but
    for what was noted while that write was tried: a process that lost the lease may have it again by then.
    """

    def __init__(self, api: Api, check: Check, clock: Clock, log: FilteringBoundLogger, instance: str) -> None:
        self._api = api
        self._check = check
        self._clock = clock
        self._log = log
        self._instance = instance
        self._news = asyncio.Event()
        self._begin()

    def _begin(self) -> None:
        self._facts: Facts | None = None
        self._looked_at: Facts | None = None
        self._told: tuple[PodConditionUpdate, ...] = ()
        self._counted: Facts | None = None
        self._wanted: dict[str, QueueObject] = {}
        self._on_change = OnChange()
        self._due_s: dict[str, float] = {}
        self._left: dict[str, int] = {}
        self._dropped = 0
        self._events = Events(self._api, self._check, self._clock, self._instance)
        self._pods = PodConditionWriter(self._api, self._check, self._clock)
        self._queues = QueueStatusWriter(self._api, self._check, self._clock)

    def note(self, facts: Facts) -> None:
        """What is to be told from now on; what the pass before found is over."""
        self._facts = facts
        self.happened(of_plan(facts.plan, facts.cluster.index.gangs))

    def happened(self, occurrences: Iterable[Occurrence]) -> None:
        """What was done beside what the plan says: what was bound, or has gone."""
        self._events.happened(occurrences)
        self._news.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._something()
            self._news.clear()
            try:
                await self.write()
            except NotLeaderError as other:
                self._log.info("not-told", part="all", error=str(other))
                newer = self._facts if self._facts is not self._looked_at else None
                self._begin()
                if newer:
                    self.note(newer)
            await asyncio.sleep(LOOK_S)

    async def _something(self) -> None:
        """Return once there is news, or it is the time of a part of which something is left."""
        turns_s = [self._due_s.get(part, 0.0) for part, left in self._left.items() if left]
        rest_s = max(0.0, min(turns_s) - self._clock.monotonic_s()) if turns_s else None
        with suppress(TimeoutError):
            async with asyncio.timeout(rest_s):
                await self._news.wait()

    async def write(self) -> dict[str, WriteCount]:
        """What was written of each part whose time it was. Raises NotLeaderError; all else is logged, and done again later."""
        if self._facts is not None and self._facts is not self._looked_at:
            self._looked_at = self._facts
            # Away from the event loop, as all that takes longer the more pods wait.
            self._told, fresh = await asyncio.to_thread(_looked_at, self._facts, self._on_change)
            self._events.happened(fresh)
        parts = {"pods": self._pods.tell(self._told), "events": self._events.tell(), "queues": self._tell_queues()}
        done = await all_over(self._tried(part, telling) for part, telling in parts.items())
        if self._events.dropped > self._dropped:
            self._log.info("events-dropped", count=self._events.dropped - self._dropped)
            self._dropped = self._events.dropped
        return {part: written for part, written in zip(parts, done, strict=True) if written is not None}

    async def _tell_queues(self) -> WriteCount:
        facts = self._facts
        if facts is None:
            return WriteCount(0, 0)
        if facts is not self._counted:
            self._wanted = await asyncio.to_thread(queues_of, facts.snapshot, facts.policy, facts.standing)
            self._counted = facts
        self._due_s["queues"] = self._clock.monotonic_s() + QUEUES_EVERY_S
        return await self._queues.tell(self._wanted)

    async def _tried(self, part: str, telling: Coroutine[None, None, WriteCount]) -> WriteCount | None:
        if self._clock.monotonic_s() < self._due_s.get(part, 0.0):
            telling.close()
            self._left[part] = max(1, self._left.get(part, 0))
            return None
        try:
            written = await telling
        except KubernetesError as error:
            self._due_s[part] = self._clock.monotonic_s() + REST_S
            self._left[part] = 1
            self._log.warning("not-told", part=part, error=str(error), takes=_TAKES[part])
            return None
        self._left[part] = written.left
        if any(written):
            go_on_s = self._clock.monotonic_s() + GO_ON_S
            self._due_s[part] = max(go_on_s, self._due_s.get(part, 0.0))
        return written


def _looked_at(facts: Facts, on_change: OnChange) -> tuple[tuple[PodConditionUpdate, ...], list[Occurrence]]:
    """What waiting pods are to say, and what begins to be so."""
    lacking, at = tuple(in_order(facts.cluster.index.lacking)), facts.snapshot.time
    told = tuple(condition_updates(lacking, facts.plan.verdicts, facts.pods, at, facts.postponed, facts.awaited))
    absent = said_of_absent(lacking, facts.plan.verdicts, facts.postponed)
    troubles = gang_troubles(facts.cluster.index.gangs, facts.pods, facts.cluster.troubles)
    so = (*standing_occurrences(told, facts.cluster, absent), *trouble_occurrences(troubles))
    return told, on_change.fresh(so)
