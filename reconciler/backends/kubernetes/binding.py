"""Makes starts of gangs true: one Binding for each pod, all of a gang at once after the first, which says what is to come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from reconciler.backend import StaleEpochError
from reconciler.backends.kubernetes.api import Api, Check
from reconciler.backends.kubernetes.journal import (
    GangBinding,
    JournalTooLongError,
    PodBinding,
    held,
    is_there,
    journal_of,
    written,
)
from reconciler.backends.kubernetes.leader import Leadership
from reconciler.backends.kubernetes.objects import names
from reconciler.backends.kubernetes.objects.wire import Pod
from reconciler.backends.kubernetes.refusals import (
    ConflictError,
    KubernetesError,
    NotFoundError,
    RefusedError,
    TooManyRequestsError,
    UnreachableError,
    UnreadableError,
)
from reconciler.backends.kubernetes.resource import PODS
from reconciler.clock import Clock
from reconciler.store.protocols import NotLeaderError

__all__ = ["Answer", "Binder", "GangBinding", "GangOutcome", "Leads", "PodBinding", "PodOutcome"]

Leads = Callable[[], Leadership]
"""Election.leadership: under what may be written now, or NotLeaderError."""
Answer = Literal["bound", "gone", "conflict", "stale-leader", "refused", "unsent", "unknown"]
"""What became of a binding. `gone`: this pod is no more, or is leaving. `conflict`: it is bound otherwise. `stale-leader`: we do
not lead, as the fence says or our own clock. `refused`: a person has to act. `unsent`: nothing was done. `unknown`: look later."""

TRIES_MAX = 4
"""A pod that others write to (conditions, labels) while it is bound is read and bound again so often."""
FENCE = "quorate-fence"
"""What the names of the policies begin with whose refusals mean that another leads; deploy/kubernetes/fence.yaml."""


class PodOutcome(NamedTuple):
    """What became of one pod's binding; `why` in words, where it is not bound."""

    pod: PodBinding
    answer: Answer
    why: str = ""


class GangOutcome(NamedTuple):
    """What became of a gang, its pods in the order of the gang."""

    gang: GangBinding
    pods: tuple[PodOutcome, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all of it is bound."""
        return all(pod.answer == "bound" for pod in self.pods)


class Binder:
    """Binds gangs, many at once; how fast is a matter of the Api and its pace.

    It raises nothing of the server's: what was not bound is told, and what was begun stands in the journal on the gang's
    first pod, so that unfinished.py finds it in any later pass, also of another process.
    """

    def __init__(self, api: Api, leads: Leads, clock: Clock) -> None:
        self._api = api
        self._leads = leads
        self._clock = clock

    async def bind(self, gangs: Sequence[GangBinding]) -> tuple[GangOutcome, ...]:
        """Of each gang of several pods the first alone, with the journal; when that is bound, the rest at once."""
        async with asyncio.TaskGroup() as work:
            tasks = [work.create_task(self._begun(gang)) for gang in gangs]
        return tuple(task.result() for task in tasks)

    async def send_again(self, gangs: Sequence[GangBinding]) -> tuple[GangOutcome, ...]:
        """Those pods of gangs that are missing, at once: their journal is written."""
        async with asyncio.TaskGroup() as work:
            tasks = [work.create_task(self._rest(gang, gang.pods)) for gang in gangs]
        return tuple(GangOutcome(gang, task.result()) for gang, task in zip(gangs, tasks, strict=True))

    async def _begun(self, gang: GangBinding) -> GangOutcome:
        if len(gang.pods) == 1:
            return GangOutcome(gang, (await self._bound(gang.pods[0], held(gang.pods[0], gang.attempt)),))
        try:
            journal = written(journal_of(gang, self._clock.now()))
        except JournalTooLongError as error:
            return GangOutcome(gang, tuple(PodOutcome(pod, "refused", str(error)) for pod in gang.pods))
        head, *rest = gang.pods
        first = await self._bound(head, {**held(head, gang.attempt), names.GANG_PLAN: journal})
        if first.answer != "bound":
            why = f"the gang's first pod {head.name}: {first.answer}"
            return GangOutcome(gang, (first, *(PodOutcome(pod, "unsent", why) for pod in rest)))
        return GangOutcome(gang, (first, *await self._rest(gang, rest)))

    async def _rest(self, gang: GangBinding, pods: Sequence[PodBinding]) -> tuple[PodOutcome, ...]:
        async with asyncio.TaskGroup() as work:
            tasks = [work.create_task(self._bound(pod, held(pod, gang.attempt))) for pod in pods]
        return tuple(task.result() for task in tasks)

    async def _bound(self, pod: PodBinding, said: Mapping[str, str]) -> PodOutcome:
        """One pod, with what is to be said on it; read and tried again where that may help."""
        outcome = PodOutcome(pod, "unknown")
        for _ in range(TRIES_MAX):
            try:
                await self._sent(pod, said)
                return PodOutcome(pod, "bound")
            except (KubernetesError, NotLeaderError, StaleEpochError) as error:
                outcome = PodOutcome(pod, _sorted(error), str(error))
            if outcome.answer not in ("conflict", "unknown"):
                return outcome
            seen = await self._learned(outcome, said)
            if isinstance(seen, PodOutcome):
                return seen
            pod = seen
        return outcome

    async def _sent(self, pod: PodBinding, said: Mapping[str, str]) -> None:
        lead = self._leads()
        body = binding_of(pod, {**said, **lead.stamp})
        await self._api.create(PODS.path(pod.namespace, pod.name, "binding"), body, still(self._leads, lead))

    async def _learned(self, outcome: PodOutcome, said: Mapping[str, str]) -> PodOutcome | PodBinding:
        """What the pod itself says after an answer that does not say how it is; a binding: try again so."""
        pod = outcome.pod
        try:
            seen = await self._api.get(PODS.path(pod.namespace, pod.name), Pod)
        except NotFoundError:
            return PodOutcome(pod, "gone", outcome.why)
        except KubernetesError as blind:
            return PodOutcome(pod, "unknown", f"{outcome.why}; {blind}")
        return judged(pod, said, seen)


def still(leads: Leads, lead: Leadership) -> Check:
    """For writes that are made under one leadership: raises NotLeaderError when it is over, StaleEpochError in a later one."""

    def check() -> None:
        now = leads()
        if now.epoch != lead.epoch:
            raise StaleEpochError(f"decided in epoch {lead.epoch}, and it is {now.epoch} now")

    return check


def binding_of(pod: PodBinding, annotations: Mapping[str, str]) -> dict[str, Any]:
    """The Binding of a pod that is still the one that was seen; its annotations become the pod's."""
    return {
        "metadata": {
            "name": pod.name,
            "uid": pod.uid,
            "resourceVersion": pod.resource_version,
            "annotations": annotations,
            "labels": {names.FENCED: "true"},
        },
        "target": {"kind": "Node", "name": pod.node},
    }


def judged(pod: PodBinding, said: Mapping[str, str], seen: Pod) -> PodOutcome | PodBinding:
    """What became of a binding whose answer does not say it, by the pod as it is; a binding: nothing yet, try again so."""
    meta = seen.metadata
    if meta.uid != pod.uid:
        return PodOutcome(pod, "gone", "another pod has its name")
    if meta.deletion_timestamp:
        return PodOutcome(pod, "gone", "it is being deleted")
    if not seen.spec.node_name:
        return pod._replace(resource_version=meta.resource_version)
    if is_there(seen, pod, said):
        return PodOutcome(pod, "bound")
    return PodOutcome(pod, "conflict", f"it is bound to {seen.spec.node_name}, with other devices or by others")


def _sorted(error: KubernetesError | NotLeaderError | StaleEpochError) -> Answer:
    match error:
        case NotLeaderError() | StaleEpochError():
            return "stale-leader"
        # 403 where another leads, 422 where there is no Lease.
        case RefusedError() if FENCE in error.message:
            return "stale-leader"
        case NotFoundError():
            return "gone"
        case ConflictError():
            return "conflict"
        case UnreadableError():
            return "unknown"
        case UnreachableError():
            return "unknown" if error.sent else "unsent"
        case TooManyRequestsError():
            return "unsent"
        case _:
            return "refused"
