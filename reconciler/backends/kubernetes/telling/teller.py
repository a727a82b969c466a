"""Tells the cluster, after each pass, what it is about: conditions of pods, Events, queues. What fails holds nothing else up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from reconciler.backends.kubernetes.api import Api
from reconciler.backends.kubernetes.objects.cluster import Cluster
from reconciler.backends.kubernetes.refusals import KubernetesError
from reconciler.backends.kubernetes.telling.conditions import PodOf, told_of
from reconciler.backends.kubernetes.telling.events import Events
from reconciler.backends.kubernetes.telling.occurrences import Occurrence, of_plan, standing
from reconciler.backends.kubernetes.telling.queues import QueueObject
from reconciler.backends.kubernetes.telling.series import Standing
from reconciler.backends.kubernetes.telling.told_pods import ToldPods
from reconciler.backends.kubernetes.telling.told_queues import ToldQueues
from reconciler.backends.kubernetes.telling.writing import Leading, Written
from reconciler.clock import Clock
from solver.plan.plan import Plan

REST_S: Final = 10.0
"""After a failure the same part is tried again so much later: a right that is missing is not missed in every pass."""
_FIX: Final = {
    "pods": "pods: list, pods/status: patch",
    "events": "events.k8s.io events: create, patch",
    "queues": "queues.quorate.dev: list, create, patch, delete, and queues/status: patch, and deploy/kubernetes/crd-queues.yaml",
}
"""What each part takes, for whoever has to give it."""


class Facts(NamedTuple):
    """What a pass knows. `queues` None: they stay as they are. `happened`: what it did, beside what its plan says (`scheduled`)."""

    plan: Plan
    cluster: Cluster
    pod_of: PodOf
    queues: Mapping[str, QueueObject] | None = None
    happened: tuple[Occurrence, ...] = ()


class Teller:
    """One for as long as somebody leads. `instance` names who writes, such as the holder of the Lease.

    Passes are told one after the other; a pass that comes before the last one was told is to hand in newer facts instead.
    """

    def __init__(self, api: Api, leading: Leading, clock: Clock, log: FilteringBoundLogger, instance: str) -> None:
        self._clock = clock
        self._log = log
        self._standing = Standing()
        self._rests_until: dict[str, float] = {}
        self.events = Events(api, leading, clock, instance)
        self.pods = ToldPods(api, leading, clock)
        self.queues = ToldQueues(api, leading, clock)

    async def tell(self, facts: Facts) -> dict[str, Written]:
        """What was written of each part that was not resting. Raises NotLeaderError; all else is logged, and done again later."""
        told = tuple(told_of(facts.cluster.gangs, facts.plan.verdicts, facts.pod_of))
        self.events.happened(of_plan(facts.plan, facts.cluster.gangs))
        self.events.happened(facts.happened)
        self.events.happened(self._standing.fresh(standing(told, facts.cluster)))
        parts = {"pods": self.pods.tell(told), "events": self.events.tell()}
        if facts.queues is not None:
            parts["queues"] = self.queues.tell(facts.queues)
        done = await asyncio.gather(*(self._tried(part, telling) for part, telling in parts.items()))
        return {part: written for part, written in zip(parts, done, strict=True) if written is not None}

    async def _tried(self, part: str, telling: Coroutine[None, None, Written]) -> Written | None:
        if self._clock.monotonic_s() < self._rests_until.get(part, 0.0):
            telling.close()
            return None
        try:
            return await telling
        except KubernetesError as error:
            self._rests_until[part] = self._clock.monotonic_s() + REST_S
            self._log.warning("not-told", part=part, error=str(error), takes=_FIX[part])
            return None
