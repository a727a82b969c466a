"""What comes next for a gang that is to leave: asked to save its work, evicted once it has or its time is over, or left alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from reconciler.kubernetes.binder.budgets import Budgets, forbidden
from reconciler.kubernetes.binder.intents import Pods, eviction_record_in, marked_gangs, members_of
from reconciler.kubernetes.binder.records import EvictionRecord, eviction_record_on
from reconciler.kubernetes.objects.cluster import KubernetesCluster
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.saves import Hook, checkpointed_at, hook_of, saves, termination_of
from reconciler.kubernetes.objects.wire import Pod
from reconciler.model.causes import why_evicted
from solver.model.inflight import Intent, IntentKind
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName
from solver.plan.plan import Evict as EvictStep
from solver.plan.plan import Release, Shrink
from solver.plan.reason import count

END_GRACE = Duration(30_000)
"""What a pod has at least between being asked to end and being made to, if it wants it, however late it is by then."""


class TimeUp(NamedTuple):
    """A gang has run for its time limit at `over_at`: it may save its work until then, and ends."""

    job: JobName
    attempt: int
    limit: Duration
    over_at: Instant


class LeaveNode(NamedTuple):
    """A gang is to leave nodes that are drained, as `why` says, and goes on elsewhere. `only`: its pods there, by uid, where it can
    do without them; (): it leaves as a whole."""

    job: JobName
    attempt: int
    why: str
    grace: Duration
    only: tuple[str, ...] = ()


EvictionRequest = EvictStep | Shrink | Release | TimeUp | LeaveNode


class TellPods(NamedTuple):
    """These pods are told what is asked of their gang: to save its work by the deadline, since it leaves."""

    pods: tuple[Pod, ...]


class Call(NamedTuple):
    """A pod's own hook is asked to save its work, until the deadline."""

    pod: Pod
    hook: Hook


class BeginEviction(NamedTuple):
    """The gang is to be evicted from now on, if every one of its pods may be; that is written on the `bearer` first."""

    bearer: Pod
    why: str


class EvictPods(NamedTuple):
    """These pods are asked to end, each with so long for it; then the `bearer`, which remembers that they were."""

    pods: tuple[tuple[Pod, Duration], ...]
    bearer: tuple[Pod, Duration] | None


class CancelEviction(NamedTuple):
    """The gang stays. `pods` forget what they were told, the bearer last. `in_vain`: a job waits for what it holds."""

    pods: tuple[Pod, ...]
    why: str
    in_vain: bool


class Wait(NamedTuple):
    """Nothing is to be done now, for this reason."""

    why: str


Move = TellPods | Call | BeginEviction | EvictPods | CancelEviction | Wait


class GangEviction(NamedTuple):
    """What is known of a gang that was asked to leave. `pods`: those that are to and are there, in the gang's order.

    `forbidden`: what PodDisruptionBudgets say against it. `needed`: a job waits for what it holds, or a rule wants it.
    """

    job: JobName
    record: EvictionRecord
    pods: tuple[Pod, ...]
    forbidden: str = ""
    needed: bool = True

    @property
    def intent(self) -> Intent:
        """What was asked."""
        return self.record.intent

    @property
    def may_stay(self) -> bool:
        """Where budgets forbid it to the end, it stays. One that has run for its time limit leaves as soon as they allow it."""
        return self.record.limit is None

    @property
    def passes(self) -> bool:
        """It leaves whatever budgets say: they have held it for as long as policy lets them."""
        return bool(self.record.past)

    @property
    def bearer(self) -> Pod | None:
        """The pod on which it stands how far it has come; the last to go."""
        return next((pod for pod in self.pods if pod.metadata.uid == self.record.uid), None)

    @property
    def has_begun(self) -> bool:
        """Some of it was evicted: it can't stay any more."""
        gone = len(self.pods) < self.record.count or any(pod.metadata.deletion_timestamp for pod in self.pods)
        return self.intent.stage == "ends" and gone


def leavings(cluster: KubernetesCluster, pods: Pods, budgets: Budgets) -> Iterator[GangEviction]:
    """Every gang of which something was asked, in the order of their names."""
    # A gang that runs in part waits for the rest: others may leave so that it grows.
    waiting = cluster.index.lacking
    for gang in marked_gangs(cluster, pods):
        record = eviction_record_in(gang, pods)
        if record is None:
            continue
        there = leaving_pods(gang, pods, record.leaving if record.intent.kind == "shrink" else None)
        whom = record.intent.beneficiary
        yield GangEviction(gang.name, record, there, forbidden(there, budgets), whom is None or whom in waiting)


def leaving_pods(gang: PodGang, pods: Pods, only: Collection[str] | None) -> tuple[Pod, ...]:
    """The gang's pods that hold something; of those only the ones with these uids, where it goes on without them."""
    return tuple(pod for _, pod in members_of(gang, pods) if pod.holds and (only is None or pod.metadata.uid in only))


def eviction_record_of(step: EvictionRequest, pods: Sequence[Pod], now: Instant) -> EvictionRecord:
    """What a step asks of these pods, by when; the first of them is to remember it."""
    bearer = pods[0].metadata.uid
    match step:
        case EvictStep():
            intent = Intent(
                "stop", step.job, step.attempt, now, now.after(step.grace), (), step.beneficiary, "evict", "saves"
            )
            return EvictionRecord(bearer, intent, why_evicted(step), past=step.past)
        case Shrink():
            intent = Intent(
                "shrink", step.job, step.attempt, now, now.after(step.grace), (), step.beneficiary, stage="saves"
            )
            leaving = tuple(pod.metadata.uid for pod in pods)
            return EvictionRecord(bearer, intent, why_evicted(step), leaving, past=step.past)
        case Release(job, attempt):
            intent = Intent("stop", job, attempt, now, now.after(END_GRACE), stage="saves")
            return EvictionRecord(bearer, intent, "it did not become ready in time")
        case LeaveNode(job, attempt, why, grace, only):
            kind: IntentKind = "shrink" if only else "stop"
            intent = Intent(kind, job, attempt, now, now.after(grace), purpose="requeue", stage="saves")
            return EvictionRecord(bearer, intent, why, only)
        case TimeUp(job, attempt, limit, over_at):
            intent = Intent("stop", job, attempt, now, over_at, stage="saves")
            return EvictionRecord(bearer, intent, f"its time limit of {limit} is over", limit=limit)


def uids_of(gang: PodGang, step: EvictionRequest) -> frozenset[str] | None:
    """The pods that a step means; None: all of the gang."""
    if isinstance(step, LeaveNode):
        return frozenset(step.only) or None
    if not isinstance(step, Shrink):
        return None
    tasks = {(task.group, task.index) for task in step.tasks}
    return frozenset(one.uid for one in gang.members if (one.group, one.task_index) in tasks)


def next_moves(gang: GangEviction, now: Instant) -> tuple[Move, ...]:
    """What is to be done now: calls, and one move of another kind after them.

    It follows from what is written and what is there, so that each leader goes on with it.
    """
    if gang.bearer is None:
        return (Wait("the pod that remembers it is gone"),)
    if gang.intent.stage == "ends":
        return (_ending(gang, gang.bearer, now),)
    if not gang.needed:
        why = f"{gang.intent.beneficiary} does not wait for what it holds any more"
        return (CancelEviction(_bearer_last(gang), why, in_vain=False),)
    unsaved = [pod for pod in gang.pods if _is_to_save(pod, gang.record)]
    if unsaved and now < gang.intent.deadline:
        if untold := _untold(gang):
            return (TellPods(untold),)
        calls = (Call(pod, hook) for pod in unsaved if (hook := hook_of(pod)))
        return (*calls, Wait(f"{count(len(unsaved), 'pod')} may save their work until {gang.intent.deadline}"))
    if now < gang.intent.deadline and gang.record.limit is not None:
        return (Wait(f"until {gang.intent.deadline}: it may run for so long"),)
    late = f"has not saved its work by {gang.intent.deadline}" if unsaved else "has saved what it can"
    return (_refused(gang, now) or BeginEviction(gang.bearer, late),)


def _ending(gang: GangEviction, bearer: Pod, now: Instant) -> Move:
    if not gang.has_begun and (refused := _refused(gang, now)):
        return refused
    if gang.has_begun and (untold := _untold(gang)):
        return TellPods(untold)  # any of them may be the one that is left to remember it
    left = max(END_GRACE, Duration(gang.intent.deadline - now))
    staying = [pod for pod in gang.pods if not pod.metadata.deletion_timestamp]
    if not staying:
        return Wait("all its pods were asked to end")
    graces = [(pod, Duration(min(left, termination_of(pod)))) for pod in staying]
    others = tuple(one for one in graces if one[0] is not bearer)
    return EvictPods(others, next((one for one in graces if one[0] is bearer), None))


def _refused(gang: GangEviction, now: Instant) -> Move | None:
    if not gang.forbidden or gang.passes:
        return None
    if now < gang.intent.deadline or not gang.may_stay:
        until = f"until {gang.intent.deadline}: " if now < gang.intent.deadline else ""
        return Wait(f"{until}{gang.forbidden}")
    return CancelEviction(_bearer_last(gang), gang.forbidden, in_vain=gang.intent.beneficiary is not None)


def _bearer_last(gang: GangEviction) -> tuple[Pod, ...]:
    return (*(pod for pod in gang.pods if pod is not gang.bearer), *(() if gang.bearer is None else (gang.bearer,)))


def _untold(gang: GangEviction) -> tuple[Pod, ...]:
    return tuple(pod for pod in gang.pods if not (pod.metadata.deletion_timestamp or _is_told(pod, gang.record)))


def _is_told(pod: Pod, record: EvictionRecord) -> bool:
    """It bears a record of the same request."""
    known, asked = eviction_record_on(pod), record.intent
    return known is not None and (known.intent.id, known.intent.asked_at) == (asked.id, asked.asked_at)


def _is_to_save(pod: Pod, record: EvictionRecord) -> bool:
    """It says that it can, runs, and has not since it was asked: to the second, which is as people write times."""
    if not (record.asks_to_save and saves(pod.metadata) and pod.status.phase == "Running"):
        return False
    if pod.metadata.deletion_timestamp:
        return False
    at = checkpointed_at(pod.metadata)
    asked_at = record.intent.asked_at
    return at is None or at < asked_at - asked_at % 1000
