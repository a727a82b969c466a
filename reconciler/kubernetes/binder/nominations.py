"""Makes promises true: what is kept for a gang is written on its first pod, and the node on those pods that are to be there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from structlog.typing import FilteringBoundLogger

from reconciler.kubernetes.binder.intents import Pods, members_of
from reconciler.kubernetes.binder.pod_writes import PodWriter
from reconciler.kubernetes.binder.records import NominationRecord, promise_on, written
from reconciler.kubernetes.binder.reservation_store import DeclaredStore
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.concurrency import gather
from reconciler.kubernetes.client.fencing import LeaderSource
from reconciler.kubernetes.client.refusals import ConflictError, KubernetesError
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.objects.wire import Pod
from reconciler.model.clock import Clock
from solver.model.inflight import Intent, Reservation, declared_name
from solver.model.quantities import Instant
from solver.model.workload import JobName, TaskPlacement
from solver.plan.plan import Nominate, Reserve, Unreserve, Withdraw

Keeping = Nominate | Withdraw | Reserve | Unreserve

TRIES: Final = 3
"""A pod that was changed meanwhile is looked at again so often in one pass; the next round decides anew about what is left."""


class Unkept(NamedTuple):
    """A promise that could not be written down, so that nothing is kept for the gang, or still is."""

    job: JobName
    reason: str


def promise_after(known: NominationRecord, steps: Iterable[Keeping], now: Instant) -> NominationRecord:
    """What stands on a pod once these steps, all of its gang, are true."""
    for step in steps:
        match step:
            case Nominate(job, attempt, tasks, deadline):
                intent = Intent("nominate", job, attempt, now, now.after(deadline), tasks)
                known = msgspec.structs.replace(known, intent=intent)
            case Withdraw():
                known = msgspec.structs.replace(known, intent=None)
            case Reserve(job, tasks, start, until):
                known = msgspec.structs.replace(known, reservation=Reservation(job, tasks, start, until))
            case Unreserve():
                known = msgspec.structs.replace(known, reservation=None)
    return known


def nominated_pods(gang: PodGang, pods: Pods, tasks: Iterable[TaskPlacement]) -> Iterator[tuple[Pod, str]]:
    """The pods that wait whose status is to say another node than it does: that where each is promised to be, "" for none."""
    node_of = {(task.group, task.index): task.node for task in tasks}
    for member, pod in members_of(gang, pods):
        node = node_of.get((member.group, member.task_index), "")
        if not pod.spec.node_name and pod.status.nominated_node_name != node:
            yield pod, node


class Nominator:
    """Writes what rounds promise. It holds nothing itself: what was promised is read back by `intents.in_flight_of`.

    `declared`: where is written what Reservation documents keep; to be read once by a new leader.
    """

    def __init__(
        self, api: Api, leading: LeaderSource, clock: Clock, log: FilteringBoundLogger, namespace: str = names.NAMESPACE
    ) -> None:
        self._api = api
        self._pods = PodWriter(api, leading)
        self._clock = clock
        self._log = log
        self.declared = DeclaredStore(api, leading, namespace, log)

    async def keep(
        self, steps: Iterable[Keeping], gangs: Mapping[JobName, PodGang], pods: Pods, promised: Iterable[Intent] = ()
    ) -> tuple[Unkept, ...]:
        """Makes these steps true, each gang's in their order; returns those that are not, which the next round sees as they are.

        `promised`: what has been promised before; of that only is looked after what pods say of their nodes. Raises NotLeaderError.
        """
        by_job: dict[JobName, list[Keeping]] = defaultdict(list)
        for step in steps:
            by_job[step.job].append(step)
        shown = [known for known in promised if known.job not in by_job and known.job in gangs]
        done = await gather(
            (
                *(self._kept(job, found, gangs.get(job), pods) for job, found in by_job.items()),
                *(self._shown(gangs[known.job], known, pods) for known in shown),
            )
        )
        failed = tuple(sorted(unkept for unkept in done if unkept))
        for unkept in failed:
            self._log.warning("promise-unkept", job=unkept.job, error=unkept.reason)
        return failed

    async def _kept(self, job: JobName, steps: Sequence[Keeping], gang: PodGang | None, pods: Pods) -> Unkept | None:
        now, document = self._clock.now(), declared_name(job)
        try:
            if document is not None:
                await self.declared.write(document, promise_after(NominationRecord(""), steps, now).reservation)
            elif gang is None or not await self._recorded(gang, steps, pods, now):
                return Unkept(job, "none of its pods is there any more") if _gives(steps) else None
        except KubernetesError as error:
            return Unkept(job, str(error))
        return None

    async def _shown(self, gang: PodGang, intent: Intent, pods: Pods) -> Unkept | None:
        try:
            await self._nominate(gang, pods, intent.tasks)
        except KubernetesError as error:
            return Unkept(gang.name, str(error))
        return None

    async def _recorded(self, gang: PodGang, steps: Sequence[Keeping], pods: Pods, now: Instant) -> bool:
        """On the pod that has a record already, else on the first, and on no other; False: there is no pod to write it on.

        What pods say of their nodes comes after a promise that is made, and before one that is withdrawn: the next leader
        finds in the record what is left to do.
        """
        there = [pod for _, pod in members_of(gang, pods)]
        bearers = [pod for pod in there if names.PROMISE in pod.metadata.annotations]
        if not there:
            return False
        tasks = next((step.tasks for step in reversed(steps) if isinstance(step, Nominate)), ())
        target = (*bearers, *there)[0]
        if not tasks and any(isinstance(step, Withdraw) for step in steps):
            cleared = await self._nominate(gang, pods, ())
            target = next((pod for pod in cleared if pod.key == target.key), target)
        await self._written(target, steps, now)
        await gather(self._cleared(pod) for pod in bearers[1:])
        if tasks:
            await self._nominate(gang, pods, tasks)
        return True

    async def _written(self, pod: Pod, steps: Sequence[Keeping], now: Instant, tries: int = TRIES) -> None:
        """The pod says what stands after these steps. Raises ConflictError where it was replaced, or changes all the time."""
        before = promise_on(pod) or NominationRecord(pod.metadata.uid)
        promise = promise_after(before, steps, now)
        if promise == before:
            return
        try:
            await self._patch(pod, promise)
        except ConflictError:
            fresh = await self._api.get(PODS.path(*pod.key), Pod)
            if tries == 1 or fresh.metadata.uid != pod.metadata.uid:
                raise
            await self._written(fresh, steps, now, tries - 1)

    async def _cleared(self, pod: Pod) -> None:
        await self._patch(pod, NominationRecord(pod.metadata.uid))

    async def _patch(self, pod: Pod, promise: NominationRecord) -> None:
        value = written(promise) if promise.intent or promise.reservation else None
        await self._pods.annotate(pod, {names.PROMISE: value}, pod.metadata.resource_version)

    async def _nominate(self, gang: PodGang, pods: Pods, tasks: Iterable[TaskPlacement]) -> list[Pod]:
        return await gather(self._pods.nominate(pod, node) for pod, node in nominated_pods(gang, pods, tasks))


def _gives(steps: Iterable[Keeping]) -> bool:
    return any(isinstance(step, Nominate | Reserve) for step in steps)
