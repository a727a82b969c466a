"""Makes starts of gangs true: one Binding for each pod, all of a gang at once after the first, which says what is to come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any

from reconciler.kubernetes.binder.binding_queue import PODS_AT_ONCE_MAX, BindingQueue, Sending, Turn
from reconciler.kubernetes.binder.journal import (
    GangBinding,
    JournalTooLongError,
    PodBinding,
    StartJournal,
    hold_annotations,
    journal_of,
    written,
)
from reconciler.kubernetes.binder.outcomes import GangOutcome, PodOutcome, binding_outcome, failure_of
from reconciler.kubernetes.binder.partial_starts import Again, StartKey, start_of
from reconciler.kubernetes.client.api import AT_ONCE_MAX, Api, Check
from reconciler.kubernetes.client.concurrency import work_off
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.client.refusals import KubernetesError, NotFoundError
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.objects.wire import Pod
from reconciler.model.clock import Clock
from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.ledger import NotLeaderError

__all__ = ["Binder", "GangBinding", "GangOutcome", "Leads", "PodBinding", "PodOutcome"]

Leads = Callable[[], Leadership]
"""Election.leadership: under what may be written now, or NotLeaderError."""

TRIES_MAX = 4
"""A pod that others write to (conditions, labels) while it is bound is read and bound again so often."""


class Binder:
    """Binds gangs, many at once; how fast is a matter of the Api and its pace.

    It raises nothing of the server's: what was not bound is told, and what was begun stands in the journal on the gang's
    first pod, so that start_recovery.py finds it in any later pass, also of another process. Gangs are begun in the order they
    are given, none while a pod of those that are begun waits, and no more at once than have `at_once_max` pods: what is begun
    is soon whole.
    """

    def __init__(self, api: Api, leads: Leads, clock: Clock, at_once_max: int = PODS_AT_ONCE_MAX) -> None:
        self._api = api
        self._leads = leads
        self._clock = clock
        self._at_once_max = at_once_max
        self._remembered: dict[StartKey, tuple[Epoch, StartJournal]] = {}
        self._underway: set[StartKey] = set()

    @property
    def underway(self) -> Set[StartKey]:
        """What is being sent just now."""
        return self._underway

    @property
    def remembered(self) -> tuple[StartJournal, ...]:
        """What was begun since it leads, and is not known to be whole or undone."""
        try:
            epoch = self._leads().epoch
        except NotLeaderError:
            return ()
        return tuple(journal for begun_in, journal in self._remembered.values() if begun_in == epoch)

    def forget(self, starts: Iterable[StartKey]) -> None:
        """What is over, and need not be remembered any more."""
        for start in starts:
            self._remembered.pop(start, None)

    async def bind(self, gangs: Sequence[GangBinding]) -> tuple[GangOutcome, ...]:
        """Of each gang of several pods the first alone, with the journal; when that is bound, the rest at once."""
        sendings = [Sending(gang, gang.pods) for gang in gangs]
        await self._all(sendings)
        nothing = (one.of for one in sendings if one.outcomes[0].answer not in ("bound", "unknown"))
        self.forget([start_of(of) for of in nothing if isinstance(of, StartJournal)])
        return tuple(GangOutcome(gang, one.outcomes) for gang, one in zip(gangs, sendings, strict=True))

    async def send_again(self, missing: Sequence[Again]) -> tuple[tuple[PodOutcome, ...], ...]:
        """The pods that are missing of starts that were begun, those without a journal at once."""
        sendings = [Sending(one.journal, one.pods) for one in missing]
        await self._all(sendings)
        return tuple(one.outcomes for one in sendings)

    async def _all(self, sendings: Sequence[Sending]) -> None:
        # What is started once more is not what was begun before: its pods would be taken for bound by others.
        attempts = {one.of.job: one.of.attempt for one in sendings}
        self.forget([old for old in self._remembered if old.attempt < attempts.get(old.job, 0)])
        line = BindingQueue(sendings, self._at_once_max)
        try:
            await work_off(line.taken, partial(self._in_turn, line), AT_ONCE_MAX)
        finally:
            self._underway.difference_update(start_of(one.of) for one in sendings if isinstance(one.of, StartJournal))

    async def _in_turn(self, line: BindingQueue, turn: Turn) -> None:
        sending, number = turn
        if number:
            pod = sending.pods[number]
            sending.tell(number, await self._bound(pod, hold_annotations(pod, sending.of)))
        else:
            await self._begun(sending, line)
        if sending.is_over:
            line.over(sending)
            if isinstance(sending.of, StartJournal):
                self._underway.discard(start_of(sending.of))

    async def _begun(self, sending: Sending, line: BindingQueue) -> None:
        """The first pod. The others wait for it where it has the journal."""
        head = sending.pods[0]
        try:
            said = self._noted(sending)
        except (NotLeaderError, JournalTooLongError) as error:
            sending.tell_others("stale-leader" if isinstance(error, NotLeaderError) else "refused", str(error))
            return
        has_journal = names.GANG_PLAN in said
        if not has_journal:
            line.follow(sending)
        first = await self._bound(head, said)
        sending.tell(0, first)
        if has_journal and first.answer == "bound":
            line.follow(sending)
        elif has_journal:
            sending.tell_others("unsent", f"the gang's first pod {head.name}: {first.answer}")

    def _noted(self, sending: Sending) -> dict[str, str]:
        """What is to be said on the first pod. From here on a start of several pods is remembered."""
        head, of = sending.pods[0], sending.of
        if isinstance(of, GangBinding):
            if len(of.pods) == 1:
                return hold_annotations(head, of)
            sending.of = of = journal_of(of, self._clock.now())
        start = start_of(of)
        self._remembered[start] = self._leads().epoch, of
        self._underway.add(start)
        said = hold_annotations(head, of)
        return {**said, names.GANG_PLAN: written(of)} if head.key == of.pods[0].key else said

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
        return binding_outcome(pod, said, seen)


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
