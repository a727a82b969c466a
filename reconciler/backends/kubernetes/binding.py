"""Makes starts of gangs true: one Binding for each pod, all of a gang at once after the first, which says what is to come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple

from reconciler.backend import Epoch, StaleEpochError
from reconciler.backends.kubernetes.api import AT_ONCE_MAX, Api, Check
from reconciler.backends.kubernetes.journal import (
    GangBinding,
    Journal,
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
from reconciler.backends.kubernetes.unfinished import Again, Start, start_of
from reconciler.clock import Clock
from reconciler.store.protocols import NotLeaderError

__all__ = ["Answer", "Binder", "GangBinding", "GangOutcome", "Leads", "PodBinding", "PodOutcome"]

Leads = Callable[[], Leadership]
"""Election.leadership: under what may be written now, or NotLeaderError."""
Failure = Literal["gone", "conflict", "stale-leader", "refused", "unsent", "unknown"]
Answer = Literal["bound"] | Failure
"""What became of a binding. `gone`: this pod is no more, or is leaving. `conflict`: it is bound otherwise. `stale-leader`: we do
not lead, as the fence says or our own clock. `refused`: a person has to act. `unsent`: nothing was done. `unknown`: look later."""

TRIES_MAX = 4
"""A pod that others write to (conditions, labels) while it is bound is read and bound again so often."""
FENCE = "quorate-fence"
"""What the names of the policies begin with whose refusals mean that another leads; deploy/kubernetes/fence.yaml."""


PODS_AT_ONCE_MAX = 4 * AT_ONCE_MAX
"""Enough that no connection is idle while the first pods of gangs are under way."""


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
    first pod, so that finishing.py finds it in any later pass, also of another process. Gangs are begun in the order they
    are given, and no more at once than have `at_once_max` pods: what is begun is soon whole.
    """

    def __init__(self, api: Api, leads: Leads, clock: Clock, at_once_max: int = PODS_AT_ONCE_MAX) -> None:
        self._api = api
        self._leads = leads
        self._clock = clock
        self._room = _Room(at_once_max)
        self._remembered: dict[Start, tuple[Epoch, Journal]] = {}
        self._underway: set[Start] = set()

    @property
    def underway(self) -> Set[Start]:
        """What is being sent just now."""
        return self._underway

    @property
    def remembered(self) -> tuple[Journal, ...]:
        """What was begun since it leads, and is not known to be whole or undone."""
        try:
            epoch = self._leads().epoch
        except NotLeaderError:
            return ()
        return tuple(journal for begun_in, journal in self._remembered.values() if begun_in == epoch)

    def forget(self, starts: Iterable[Start]) -> None:
        """What is over, and need not be remembered any more."""
        for start in starts:
            self._remembered.pop(start, None)

    async def bind(self, gangs: Sequence[GangBinding]) -> tuple[GangOutcome, ...]:
        """Of each gang of several pods the first alone, with the journal; when that is bound, the rest at once."""
        async with asyncio.TaskGroup() as work:
            tasks = [work.create_task(self._in_turn(gang)) for gang in gangs]
        return tuple(task.result() for task in tasks)

    async def send_again(self, missing: Sequence[Again]) -> tuple[tuple[PodOutcome, ...], ...]:
        """The pods that are missing of starts that were begun, those without a journal at once."""
        async with asyncio.TaskGroup() as work:
            tasks = [work.create_task(self._started(one.journal, one.pods)) for one in missing]
        return tuple(task.result() for task in tasks)

    async def _in_turn(self, gang: GangBinding) -> GangOutcome:
        async with self._room.for_pods(len(gang.pods)):
            if len(gang.pods) == 1:
                pod = gang.pods[0]
                return GangOutcome(gang, (await self._bound(pod, held(pod, gang)),))
            journal = journal_of(gang, self._clock.now())
            outcomes = await self._started(journal, gang.pods)
        if outcomes[0].answer not in ("bound", "unknown"):
            self.forget([start_of(journal)])  # nothing is bound
        return GangOutcome(gang, outcomes)

    async def _started(self, journal: Journal, pods: Sequence[PodBinding]) -> tuple[PodOutcome, ...]:
        start = start_of(journal)
        # What is started once more is not what was begun before: its pods would be taken for bound by others.
        self.forget([old for old in self._remembered if old.job == start.job and old.attempt < start.attempt])
        self._underway.add(start)
        try:
            self._remembered[start] = self._leads().epoch, journal
            if pods[0].key != journal.pods[0].key:
                return await self._rest(journal, pods)
            return await self._headed(journal, pods)
        except NotLeaderError as error:
            return tuple(PodOutcome(pod, "stale-leader", str(error)) for pod in pods)
        finally:
            self._underway.discard(start)

    async def _headed(self, journal: Journal, pods: Sequence[PodBinding]) -> tuple[PodOutcome, ...]:
        head, *rest = pods
        try:
            said = {**held(head, journal), names.GANG_PLAN: written(journal)}
        except JournalTooLongError as error:
            return tuple(PodOutcome(pod, "refused", str(error)) for pod in pods)
        first = await self._bound(head, said)
        if first.answer == "bound":
            return first, *await self._rest(journal, rest)
        why = f"the gang's first pod {head.name}: {first.answer}"
        return first, *(PodOutcome(pod, "unsent", why) for pod in rest)

    async def _rest(self, journal: Journal, pods: Sequence[PodBinding]) -> tuple[PodOutcome, ...]:
        async with asyncio.TaskGroup() as work:
            tasks = [work.create_task(self._bound(pod, held(pod, journal))) for pod in pods]
        return tuple(task.result() for task in tasks)

    async def _bound(self, pod: PodBinding, said: Mapping[str, str]) -> PodOutcome:
        """One pod, with what is to be said on it; read and tried again where that may help.

        It stays unknown where one of the tries was not answered and the pod was not bound or gone in the end: it may still arrive.
        """
        outcome = PodOutcome(pod, "unknown")
        is_unsure = False
        for _ in range(TRIES_MAX):
            try:
                await self._sent(pod, said)
                return PodOutcome(pod, "bound")
            except (KubernetesError, NotLeaderError, StaleEpochError) as error:
                outcome = PodOutcome(pod, failure_of(error), str(error))
            is_unsure |= outcome.answer == "unknown"
            if outcome.answer == "gone":
                return outcome
            if outcome.answer not in ("conflict", "unknown"):
                break
            seen = await self._learned(outcome, said)
            if isinstance(seen, PodOutcome):
                return seen
            pod = seen
        return outcome._replace(answer="unknown") if is_unsure else outcome

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


def failure_of(error: KubernetesError | NotLeaderError | StaleEpochError) -> Failure:
    """What an error says became of a write under the fence."""
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


class _Room:
    """For so many pods at once, first come, first served; a gang that is larger has it alone."""

    def __init__(self, pods_max: int) -> None:
        self._pods_max = pods_max
        self._free = pods_max
        self._line = asyncio.Lock()
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def for_pods(self, pods: int) -> AsyncIterator[None]:
        async with self._line:
            while self._free < min(pods, self._pods_max):
                self._freed.clear()
                await self._freed.wait()
            self._free -= pods
        try:
            yield
        finally:
            self._free += pods
            self._freed.set()
