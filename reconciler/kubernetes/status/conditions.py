"""What the condition PodScheduled of each waiting pod is to say: why it waits, what would help, and when it could start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.remarks import KEPT_AWAY, Remark
from reconciler.kubernetes.objects.wire import Pod
from reconciler.kubernetes.objects.workloads import stand_in
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName
from solver.plan.estimates import AnyEstimate
from solver.plan.hopes import what_would_help
from solver.plan.plan import Inadmissible, Runs, Starts, Verdict, Waits
from solver.plan.reason import sentence
from solver.plan.reasons import (
    AnyReason,
    Bundles,
    CapacityReason,
    EntitledDemandFirst,
    GuaranteeFragmented,
    HostResources,
    NoRoomReason,
    Outranked,
    Protected,
    QuotaChanges,
    ReservedFor,
    TooClose,
    Topology,
    UserShare,
)
from solver.plan.refusals import NeverFits
from solver.round.advice import what_would_fit

Pods = Mapping[tuple[str, str], Pod]
"""By namespace and name, as the server has them."""

MESSAGE_MAX: Final = 1000
"""Characters of a message."""
GATHERS: Final = Duration(5_000)
"""A gang of which a pod came so lately may be about to be whole: a word to each would only come between them and their bindings."""
LISTED_MAX: Final = 5
"""Reasons, or ways to help, that a message lists; `quorate why` and the API have all of them."""

UNSCHEDULABLE: Final = "Unschedulable"
"""Kubernetes' own word. Autoscalers add nodes for pods that say it, so that it is said where nodes would help, and only there."""
WAITING_FOR_GANG: Final = "WaitingForGang"
REFUSED: Final = "Refused"
INADMISSIBLE: Final = "Inadmissible"
WAITS_TO_GROW: Final = "WaitsToGrow"
REPLACES_LOST: Final = "ReplacesLost"
POSTPONED: Final = "Postponed"
AWAITS_NODES: Final = "AwaitsNodes"

NODES_WOULD_DO: Final = (
    CapacityReason, NoRoomReason, HostResources, Topology, Bundles, TooClose, ReservedFor, Outranked, EntitledDemandFirst,
    GuaranteeFragmented, Protected, UserShare,
)  # fmt: skip


class ConditionText(NamedTuple):
    """Reason and message of a condition."""

    reason: str
    message: str


class PodConditionUpdate(NamedTuple):
    """What a pod's condition is to say. `uid`, `resource_version`: of the pod that was looked at. `job`: its gang."""

    job: JobName
    namespace: str
    name: str
    uid: str
    resource_version: str
    said: ConditionText


def condition_updates(
    gangs: Iterable[PodGang],
    verdicts: Iterable[Verdict],
    pods: Pods,
    now: Instant,
    postponed: Mapping[JobName, str] = {},
    awaited: Mapping[JobName, str] | None = None,
) -> Iterator[PodConditionUpdate]:
    """One for each pod without a node of which there is something to say; gates of a pod are the API server's to tell.

    `postponed`: gangs that could start and wait for others of the same round, with why. `awaited`: where nodes are asked of an
    autoscaler, how that stands for some gangs.
    """
    by_job = {verdict.job: verdict for verdict in verdicts}
    for gang in gangs:
        verdict = by_job.get(gang.name)
        said = _replacing(gang) if _has_lost(gang, verdict, pods) else said_of(gang, verdict)
        if awaited is not None and said is not None and verdict is not None and wants_nodes(verdict):
            said = _awaiting(
                said, awaited.get(gang.name, "nodes are asked for once it has waited long enough for them")
            )
        if why := postponed.get(gang.name):
            said = ConditionText(POSTPONED, _message(f"waits for the next round: {why}", gang.remarks))
        if said is None or (said.reason == WAITING_FOR_GANG and _gathers(gang, pods, now)):
            continue
        for member in gang.members:
            pod = pods.get((member.namespace, member.name))
            if pod is not None and pod.metadata.uid == member.uid and _is_told(pod):
                yield PodConditionUpdate(
                    gang.name, member.namespace, member.name, member.uid, pod.metadata.resource_version, said
                )


def said_of_absent(
    gangs: Iterable[PodGang], verdicts: Iterable[Verdict], postponed: Mapping[JobName, str] = {}
) -> Iterator[tuple[PodGang, ConditionText]]:
    """What is to be said of gangs whose pods are not there yet, since they wait to be admitted."""
    absent = {gang.name: gang for gang in gangs if stand_in(gang.members[0].name)}
    by_job = {verdict.job: verdict for verdict in verdicts if verdict.job in absent} if absent else {}
    for name, gang in absent.items():
        said = said_of(gang, by_job.get(name))
        if why := postponed.get(name):
            said = ConditionText(POSTPONED, _message(f"waits for the next round: {why}", gang.remarks))
        if said is not None:
            yield gang, said


def _has_lost(gang: PodGang, verdict: Verdict | None, pods: Pods) -> bool:
    """It was bound whole, which ends the plan of its start, and needs pods that have no node: this round has none for them."""
    is_partial = 0 < gang.bound < len(gang.members) and not (gang.missing or gang.refusals or _is_elastic(gang))
    if not is_partial or not isinstance(verdict, Runs) or verdict.grows:
        return False
    there = (pods.get((one.namespace, one.name)) for one in gang.members)
    return not any(pod is not None and names.GANG_PLAN in pod.metadata.annotations for pod in there)


def _replacing(gang: PodGang) -> ConditionText:
    if gang.job is not None and gang.job.phase == "stopping":
        ends = "the pods that its gang has on nodes are ending: all of it starts anew once they are gone"
        return ConditionText(REPLACES_LOST, _message(ends, gang.remarks))
    lost = f"its gang has {gang.bound} of {len(gang.members)} pods on nodes, and this one comes for one that is gone"
    end = "no room for it now; a gang that is not whole in time (startDeadline) is released"
    return ConditionText(REPLACES_LOST, _message(f"{lost}: {end}", gang.remarks))


def _awaiting(said: ConditionText, told: str) -> ConditionText:
    """Not Unschedulable: an autoscaler would add nodes for each pod beside those that are asked for."""
    return ConditionText(AWAITS_NODES, _message(f"{told}; {said.message}", ()))


def _gathers(gang: PodGang, pods: Pods, now: Instant) -> bool:
    return any(now < at for at in gathered_at(gang, pods))


def gathered_at(gang: PodGang, pods: Pods) -> Iterator[Instant]:
    """By when more of its pods should have come, counted from each of those that are there: then they are told what is missing."""
    made = (pod.metadata.creation_timestamp for one in gang.members if (pod := pods.get((one.namespace, one.name))))
    return (Instant.parse(at).after(GATHERS) for at in made if at)


def _is_told(pod: Pod) -> bool:
    return not (pod.spec.node_name or pod.is_over or pod.metadata.deletion_timestamp or pod.spec.scheduling_gates)


def said_of(gang: PodGang, verdict: Verdict | None) -> ConditionText | None:
    """What to say to pods of the gang that have no node; None: nothing, they are about to have one, or no round has looked yet."""
    if gang.refusals and all(refusal.code == KEPT_AWAY for refusal in gang.refusals):
        why = _listed(refusal.message for refusal in gang.refusals)
        return ConditionText(UNSCHEDULABLE, _message(f"waits: {why}", gang.remarks))
    if gang.refusals:
        return ConditionText(REFUSED, _message(f"refused: {'; '.join(map(str, gang.refusals))}", gang.remarks))
    if gang.missing:
        return ConditionText(WAITING_FOR_GANG, _message(f"its gang is not whole: {gang.missing}", gang.remarks))
    match verdict:
        case None | Starts():
            return None
        case Waits(reasons=reasons, estimate=estimate):
            return _waiting(reasons, estimate, gang.remarks)
        case Inadmissible(reasons=reasons):
            why = sentence(_listed(map(str, reasons)))
            return ConditionText(
                INADMISSIBLE,
                _message(f"can't run under this policy here: {why} {what_would_fit(reasons)}", gang.remarks),
            )
        case _:
            return _surplus(gang)


def reason_of(reasons: Sequence[AnyReason]) -> str:
    """Unschedulable where more nodes would do; else the most telling reason's code in Kubernetes' spelling, such as QuotaMax."""
    return UNSCHEDULABLE if _nodes_would_do(reasons) else spelt(type(reasons[0]).__struct_config__.tag)


def spelt(code: object) -> str:
    """`quota-max` is QuotaMax."""
    return "".join(word.capitalize() for word in str(code).split("-"))


def wants_nodes(verdict: Verdict) -> bool:
    """The job waits for nothing but nodes like some that there are: for room, or since all of them together are too few for it."""
    if isinstance(verdict, Inadmissible):
        return any(isinstance(one, NeverFits) and one.tasks_that_fit > 0 for one in verdict.reasons) and all(
            isinstance(one, NeverFits) for one in verdict.reasons
        )
    return isinstance(verdict, Waits) and _nodes_would_do(verdict.reasons)


def _nodes_would_do(reasons: Sequence[AnyReason]) -> bool:
    """For one of the GPU types that it accepts, nothing binds it but room."""
    # What its quota is to be binds it no more than it is bound now, unless it is refused until then.
    reasons = [reason for reason in reasons if not isinstance(reason, QuotaChanges) or reason.refused]
    types = {getattr(reason, "gpu_type", None) for reason in reasons} - {None} or {None}
    return any(
        all(isinstance(reason, NODES_WOULD_DO) for reason in reasons if getattr(reason, "gpu_type", one) == one)
        for one in types
    )


@lru_cache(maxsize=10_000)  # most that wait in a large cluster wait for the same
def _waiting(
    reasons: tuple[AnyReason, ...], estimate: AnyEstimate | None, remarks: tuple[Remark, ...]
) -> ConditionText:
    parts = [f"waits: {_listed(map(str, reasons))}"]
    if helps := what_would_help(reasons):
        parts.append(f"would help: {_listed(helps)}")
    text = "; ".join([*parts, *([str(estimate)] if estimate else [])])
    return ConditionText(reason_of(reasons), _message(text, remarks))


def _surplus(gang: PodGang) -> ConditionText | None:
    """Pods of a gang that runs without them. One that is not elastic is being bound, which is over in a moment."""
    if not _is_elastic(gang):
        return None
    there = f"its gang runs on {gang.bound} of {len(gang.members)} pods, which is enough for it"
    return ConditionText(
        WAITS_TO_GROW, _message(f"{there}; it grows when there is room that no job waits for", gang.remarks)
    )


def _is_elastic(gang: PodGang) -> bool:
    return gang.job is not None and any(group.min_replicas is not None for group in gang.job.spec.task_groups)


def _listed(clauses: Iterable[str]) -> str:
    every = iter(clauses)
    first = list(islice(every, LISTED_MAX))
    more = sum(1 for _ in every)
    return "; ".join([*first, *([f"{more} more"] if more else [])])


def _message(text: str, remarks: Iterable[Remark]) -> str:
    """With what is not followed of what the gang wishes, cut where it would be too long."""
    notes = "".join(f"; not followed: {remark}" for remark in remarks)
    whole = f"{text}{notes}"
    return whole if len(whole) <= MESSAGE_MAX else f"{whole[: MESSAGE_MAX - 3]}..."
