"""Makes evictions true: what was asked of a gang is written on its pods first, and each leader goes on from what is written."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
from structlog.typing import FilteringBoundLogger

from reconciler.kubernetes.binder.budgets import Budgets, forbidden, is_budgets
from reconciler.kubernetes.binder.eviction_steps import (
    END_GRACE,
    BeginEviction,
    Call,
    CancelEviction,
    EvictionRequest,
    EvictPods,
    GangEviction,
    TellPods,
    Wait,
    eviction_record_of,
    leaving_pods,
    leavings,
    next_moves,
    uids_of,
)
from reconciler.kubernetes.binder.intents import Pods
from reconciler.kubernetes.binder.nominations import Nominator
from reconciler.kubernetes.binder.pod_writes import PodWriter
from reconciler.kubernetes.binder.records import eviction_record_on, written
from reconciler.kubernetes.binder.save_hooks import Hooks
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.concurrency import gather
from reconciler.kubernetes.client.fencing import LeaderSource
from reconciler.kubernetes.client.refusals import ConflictError, KubernetesError, NotFoundError
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.cluster import KubernetesCluster
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.objects.wire import Pod
from reconciler.model.clock import Clock
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName
from solver.plan.plan import Withdraw
from solver.plan.reason import count

TRIES: Final = 3
"""A pod that changes while it is told for the first time is looked at again so often in one pass."""
RETRY: Final = Duration(5_000)
"""After a PodDisruptionBudget, or the server, refused a pod of a gang that has begun to leave."""

Event = Literal["refused", "waits", "evicting", "past-budgets", "called-off", "failed", "limit-near", "limit-over"]
"""`refused`: nothing was asked; `waits`: for its work to be saved, or a budget; `failed`: tried again in a later pass.
`past-budgets`: as `evicting`, of a gang of which some were deleted, since budgets refused that and may not any longer.
`limit-near`, `limit-over`: as `waits` and `evicting`, of a gang that has run for its time limit, or soon will have."""


class Seen(NamedTuple):
    """What a pass knows."""

    cluster: KubernetesCluster
    pods: Pods
    budgets: Budgets


class Outcome(NamedTuple):
    """What became of an eviction in this pass. `only`: the pods that leave, by uid, where their gang goes on; else ()."""

    job: JobName
    event: Event
    why: str
    only: tuple[str, ...] = ()


class Evictor:
    """Remembers nothing that matters: `begin` writes down what a round decided, `advance` does what comes next, in every pass."""

    def __init__(
        self,
        api: Api,
        leading: LeaderSource,
        promises: Nominator,
        hooks: Hooks,
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        self._api = api
        self._pods = PodWriter(api, leading)
        self._promises = promises
        self._hooks = hooks
        self._clock = clock
        self._log = log
        self._rests: dict[JobName, Instant] = {}

    async def begin(self, steps: Iterable[EvictionRequest], seen: Seen) -> tuple[Outcome, ...]:
        """Asks for these, and goes on as far as it can now. Raises NotLeaderError.

        Where budgets forbid it nothing is asked, but of a gang that has run for its time limit.
        """
        gangs = seen.cluster.index.gangs
        return self._told(await gather(self._asked(step, gangs.get(step.job), seen) for step in steps))

    async def advance(self, seen: Seen) -> tuple[Outcome, ...]:
        """Does what comes next for every gang that was asked to leave. Raises NotLeaderError."""
        now = self._clock.now()
        known = list(leavings(seen.cluster, seen.pods, seen.budgets))
        self._rests = {gang.job: self._rests[gang.job] for gang in known if self._rests.get(gang.job, now) > now}
        outcomes = await gather(
            self._guarded(gang, self._carried_on(gang, seen)) for gang in known if gang.job not in self._rests
        )
        self._hooks.forget_others({pod.metadata.uid for gang in known for pod in gang.pods})
        return self._told(outcomes)

    def _told(self, outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
        told = tuple(sorted(outcomes))
        for outcome in told:
            if outcome.event in ("waits", "limit-near"):
                continue  # in every pass the same
            self._log.info("eviction", job=outcome.job, outcome=outcome.event, why=outcome.why)
        return told

    async def _asked(self, step: EvictionRequest, gang: PodGang | None, seen: Seen) -> Outcome:
        if gang is None or gang.job is None or (gang.job.attempt, bool(gang.job.placement)) != (step.attempt, True):
            return Outcome(step.job, "refused", f"attempt {step.attempt} holds nothing any more")
        pods = leaving_pods(gang, seen.pods, uids_of(gang, step))
        if not pods:
            return Outcome(step.job, "refused", "its pods are gone")
        against = forbidden(pods, seen.budgets)
        asked = GangEviction(gang.name, eviction_record_of(step, pods, self._clock.now()), pods, against)
        if against and asked.may_stay and not asked.passes:
            return Outcome(step.job, "refused", against)
        return await self._guarded(asked, self._first(asked, seen))

    async def _guarded(self, gang: GangEviction, deed: Coroutine[Any, Any, Outcome]) -> Outcome:
        try:
            return await deed
        except KubernetesError as error:
            self._rests[gang.job] = self._clock.now().after(RETRY)
            return Outcome(gang.job, "failed", str(error))

    async def _first(self, gang: GangEviction, seen: Seen) -> Outcome:
        """Where nothing has to be saved the request and the end are written as one."""
        if isinstance(next_moves(gang, self._clock.now())[-1], BeginEviction):
            against = await self._tried(gang)
            if against and gang.may_stay:
                return Outcome(gang.job, "refused", against)
            gang = gang._replace(forbidden=against) if against else self._ended(gang)
        return await self._carried_on(await self._recorded(gang), seen)

    async def _carried_on(self, gang: GangEviction, seen: Seen) -> Outcome:
        """One move after the other, until the next has to wait."""
        moves = next_moves(gang, self._clock.now())
        for call in moves:
            if isinstance(call, Call):
                self._call(call, gang)
        match moves[-1]:
            case TellPods(pods):
                return await self._carried_on(await self._tell(gang, pods), seen)
            case BeginEviction() as move:
                return await self._begin_ending(gang, move, seen)
            case EvictPods() as move:
                return await self._evict(gang, move)
            case CancelEviction() as move:
                return await self._call_off(gang, move, seen)
            case Call() | Wait():
                return self._waits(gang, ", ".join(move.why for move in moves if isinstance(move, Wait)))

    def _waits(self, gang: GangEviction, why: str) -> Outcome:
        if gang.may_stay:
            return Outcome(gang.job, "waits", why)
        if self._clock.now() < gang.intent.deadline:
            limit = f"its time limit of {gang.record.limit} is over at {gang.intent.deadline}"
            return Outcome(gang.job, "limit-near", f"{limit}; {why}")
        if gang.forbidden:
            self._rests[gang.job] = self._clock.now().after(RETRY)
        return Outcome(gang.job, "waits", f"{gang.record.why}; {why}")

    async def _recorded(self, gang: GangEviction, tries: int = TRIES) -> GangEviction:
        """The request stands on the pod that will go last, before anything else is done; what was asked before stays as it is.

        Raises KubernetesError.
        """
        bearer, *others = gang.pods
        try:
            told = await self._pods.annotate(bearer, self._request(bearer, gang), bearer.metadata.resource_version)
        except ConflictError:
            fresh = await self._fresh(bearer)
            if tries == 1 or fresh is None:
                raise
            known = eviction_record_on(fresh)
            if known is None or known.intent.id != gang.intent.id:
                return await self._recorded(gang._replace(pods=(fresh, *others)), tries - 1)
            # This pass has not seen what an earlier one wrote.
            return gang._replace(record=known, pods=(fresh, *others))
        return gang._replace(pods=(told, *others))

    async def _tell(self, gang: GangEviction, pods: Iterable[Pod]) -> GangEviction:
        """As it is afterwards: without the pods that were gone."""
        there = await gather(self._annotate(pod, self._request(pod, gang)) for pod in pods)
        fresh = {pod.key: new for pod, new in zip(pods, there, strict=True)}
        return gang._replace(pods=tuple(new for pod in gang.pods if (new := fresh.get(pod.key, pod)) is not None))

    def _request(self, pod: Pod, gang: GangEviction) -> dict[str, str | None]:
        record = msgspec.structs.replace(gang.record, uid=pod.metadata.uid)
        by = {names.CHECKPOINT_BY: str(gang.intent.deadline)} if gang.record.asks_to_save else {}
        return {names.EVICT: written(record), **by}

    async def _annotate(self, pod: Pod, annotations: dict[str, str | None]) -> Pod | None:
        """The pod with these (None: taken away); None: it is gone, or another has its name."""
        try:
            return await self._pods.annotate(pod, annotations)
        except (NotFoundError, ConflictError):
            return None

    def _call(self, call: Call, gang: GangEviction) -> None:
        async def saved() -> None:
            await self._annotate(call.pod, {names.CHECKPOINTED: str(self._clock.now())})

        self._hooks.call(call.pod, call.hook, gang.intent.deadline, saved)

    async def _begin_ending(self, gang: GangEviction, move: BeginEviction, seen: Seen) -> Outcome:
        errors = [f"the hook of {name}: {error}" for name, error in self._unanswered(gang)]
        if against := await self._tried(gang):
            # What the server refuses in a trial is a fact like what budgets say: the gang waits for that, or stays.
            return await self._carried_on(gang._replace(forbidden=against), seen)
        ending = await self._tell(self._ended(gang), (move.bearer,))
        self._log.info("eviction-begins", job=gang.job, why="; ".join((move.why, *errors)))
        return await self._carried_on(ending, seen)

    def _ended(self, gang: GangEviction) -> GangEviction:
        intent = msgspec.structs.replace(gang.intent, stage="ends", staged_at=self._clock.now())
        return gang._replace(record=msgspec.structs.replace(gang.record, intent=intent, count=len(gang.pods)))

    def _unanswered(self, gang: GangEviction) -> list[tuple[str, str]]:
        """Its hooks are not waited for any more; what they have answered instead, by the names of pods."""
        errors = [(pod.metadata.name, self._hooks.forget(pod.metadata.uid)) for pod in gang.pods]
        return [(name, error) for name, error in errors if error]

    async def _tried(self, gang: GangEviction) -> str:
        """Why the server would refuse one of its pods, "": not; for of a gang all stay where one has to. The like are tried once.

        To try each of 512 pods took as long as to evict them.
        """
        if len(gang.pods) == 1 or gang.passes:
            return ""
        unlike = {next((one.uid for one in pod.metadata.owner_references), ""): pod for pod in reversed(gang.pods)}
        answers = await gather(self._evicted(pod, END_GRACE, dry=True) for pod in unlike.values())
        return next((str(answer) for answer in answers if answer), "")

    async def _evict(self, gang: GangEviction, move: EvictPods) -> Outcome:
        """All but the bearer at once; the bearer once none of them was refused."""
        refused, deleted = await self._ended_all(gang, move.pods)
        if not refused and move.bearer:
            refused, more = await self._ended_all(gang, (move.bearer,))
            deleted += more
        if not refused:
            event: Event = "past-budgets" if deleted else "evicting" if gang.may_stay else "limit-over"
            return Outcome(gang.job, event, gang.record.why, gang.record.leaving)
        now = self._clock.now()
        self._rests[gang.job] = now.after(RETRY)
        late = f", past its deadline of {gang.intent.deadline}" if now >= gang.intent.deadline else ""
        return Outcome(gang.job, "failed", f"{count(len(refused), 'pod')} refused{late}: {refused[0]}")

    async def _ended_all(self, gang: GangEviction, pods: Sequence[tuple[Pod, Duration]]) -> tuple[list[str], int]:
        """Asks these pods to end; those that budgets keep are deleted where they may hold no more.

        Why some were refused, and how many were deleted.
        """
        errors = await gather(self._evicted(*one) for one in pods)
        kept = [gang.passes and error is not None and is_budgets(error) for error in errors]
        deleted = await gather(
            self._deleted(pod, grace, gang.record.why) for (pod, grace), keep in zip(pods, kept, strict=True) if keep
        )
        refused = [str(error) for error, keep in zip(errors, kept, strict=True) if error and not keep]
        refused += [str(error) for error in deleted if error]
        return refused, sum(error is None for error in deleted)

    async def _deleted(self, pod: Pod, grace: Duration, why: str, tries: int = TRIES) -> KubernetesError | None:
        """Deletes a pod that budgets keep; why that was refused, None where it was not, or was gone."""
        try:
            await self._pods.delete(pod, grace, why, self._clock.now())
        except NotFoundError:
            return None
        except ConflictError as conflict:
            if await self._fresh(pod) is None:
                return None
            return await self._deleted(pod, grace, why, tries - 1) if tries > 1 else conflict
        except KubernetesError as error:
            return error
        self._log.warning("deleted-past-budgets", pod="/".join(pod.key), why=why)
        return None

    async def _evicted(
        self, pod: Pod, grace: Duration, *, dry: bool = False, tries: int = TRIES
    ) -> KubernetesError | None:
        """Asks for one pod to end; why it was refused, None where it was not, or was gone."""
        try:
            await self._pods.evict(pod, grace, dry=dry)
        except NotFoundError:
            return None
        except ConflictError as conflict:
            fresh = await self._fresh(pod)
            if fresh is None or fresh.metadata.deletion_timestamp:
                return None
            return await self._evicted(fresh, grace, dry=dry, tries=tries - 1) if tries > 1 else conflict
        except KubernetesError as error:
            return error
        return None

    async def _fresh(self, pod: Pod) -> Pod | None:
        """The pod as it is now; None: it is gone. Raises KubernetesError."""
        try:
            fresh = await self._api.get(PODS.path(*pod.key), Pod)
        except NotFoundError:
            return None
        return fresh if fresh.metadata.uid == pod.metadata.uid else None

    async def _call_off(self, gang: GangEviction, move: CancelEviction, seen: Seen) -> Outcome:
        """The gang goes on as if nothing had been; first no job is promised any more what it keeps."""
        self._unanswered(gang)
        whom = gang.intent.beneficiary
        if move.in_vain and whom:
            gangs = seen.cluster.index.gangs
            job = gangs[whom].job if whom in gangs else None
            attempt = job.attempt + 1 if job else 1
            unkept = await self._promises.keep([Withdraw(whom, attempt)], gangs, seen.pods)
            if unkept:
                return Outcome(gang.job, "failed", unkept[0].reason)
        *others, bearer = move.pods
        nothing = {names.EVICT: None, names.CHECKPOINT_BY: None}
        await gather(self._annotate(pod, dict(nothing)) for pod in others)
        await self._annotate(bearer, dict(nothing))
        return Outcome(gang.job, "called-off", move.why, gang.record.leaving)
