"""What happened to pods and nodes, as Events are to say it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from reconciler.kubernetes.binder.eviction import Event, Outcome
from reconciler.kubernetes.binder.eviction_steps import LeaveNode
from reconciler.kubernetes.binder.journal import PodBinding
from reconciler.kubernetes.binder.partial_starts import ReleasePods
from reconciler.kubernetes.objects.cluster import KubernetesCluster
from reconciler.kubernetes.objects.gang_troubles import GangTrouble
from reconciler.kubernetes.objects.jobs import MemberPod, PodGang
from reconciler.kubernetes.objects.remarks import Remark
from reconciler.kubernetes.objects.workloads import WORKLOADS, stand_in
from reconciler.kubernetes.status.conditions import INADMISSIBLE, REFUSED, ConditionText, PodConditionUpdate
from reconciler.model.causes import geometry_of, names_of, nodes_of, why_evicted
from reconciler.model.health_record import PartHealth
from solver.model.cluster import NodeName
from solver.model.quantities import MilliGpu
from solver.model.workload import JobName, TaskPlacement
from solver.plan.plan import Evict, Nominate, Plan, Release, Repartition, Reserve, Shrink, Step, Unreserve, Withdraw
from solver.plan.reason import count

WAITING: Final = "Waiting"
NODE_NOT_READY: Final = "NodeNotReady"
NODE_PRESSURE: Final = "NodePressure"
NODE_REFUSED: Final = "NodeRefused"


class Regarding(NamedTuple):
    """A pod, a node (which has no namespace, and is known to Events by its name), or what is to make pods."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = "v1"


class Occurrence(NamedTuple):
    """One thing that happened. `reason` and `action` are stable words; `related`: for whose sake."""

    regarding: Regarding
    reason: str
    action: str
    note: str
    warning: bool = False
    related: Regarding | None = None


def of_plan(plan: Plan, gangs: Mapping[JobName, PodGang]) -> Iterator[Occurrence]:
    """What a round has decided about pods and nodes; what came of it: `of_bindings`, `of_evictions`, `of_releases`."""
    for step in plan.steps:
        yield from _of_step(step, gangs)


def _of_step(step: Step, gangs: Mapping[JobName, PodGang]) -> Iterator[Occurrence]:
    if isinstance(step, Repartition):
        note = f"GPU {step.device} is partitioned anew: {geometry_of(step.instances)}"
        yield Occurrence(_node(step.node), "Repartitioning", "Repartition", note)
        return
    gang = gangs.get(step.job)
    if gang is None:
        return  # a Reservation document, or a gang that has just gone
    first = the_pod(gang.members[0])
    match step:
        case Evict() | Shrink():
            yield from _leaving(step, gang, gangs)
        case Nominate(tasks=tasks, deadline=deadline):
            note = f"promised {_holding(tasks)} once all of it is free, within {deadline}"
            yield Occurrence(first, "PromiseMade", "Promise", note)
        case Withdraw():
            note = "what it was promised is not to be had any more, or not by it"
            yield Occurrence(first, "PromiseWithdrawn", "Withdraw", note)
        case Reserve(tasks=tasks, start=start):
            yield Occurrence(first, "Reserved", "Reserve", f"{_holding(tasks)} are kept for it from {start}")
        case Unreserve():
            yield Occurrence(first, "ReservationDropped", "Unreserve", "nothing is kept for it any more")
        case Release(attempt=attempt):
            note = f"attempt {attempt} did not become ready in time: its pods give back what they hold, and wait again"
            yield Occurrence(first, "Released", "Release", note, warning=True)
        case _:
            return


def _leaving(step: Evict | Shrink, gang: PodGang, gangs: Mapping[JobName, PodGang]) -> Iterator[Occurrence]:
    to = gangs.get(step.beneficiary) if step.beneficiary else None
    related = the_pod(to.members[0]) if to else None
    note = f"{why_evicted(step)}; it has {step.grace} to save and end"
    if isinstance(step, Evict):
        members, reason = gang.members, "Evicting"
    else:
        left = {(task.group, task.index) for task in step.tasks}
        members = tuple(member for member in gang.members if (member.group, member.task_index) in left)
        reason, note = "Shrinking", f"its gang goes on without {names_of(step.tasks)}: {note}"
    for member in members:
        yield Occurrence(the_pod(member), reason, "Evict", note, related=related)


def the_pod(member: MemberPod) -> Regarding:
    """The pod that a member of a gang is; the Workload that it stands for, where that has no pods yet."""
    if absent := stand_in(member.name):
        return Regarding("Workload", member.namespace, absent.workload, member.uid, WORKLOADS[0].version)
    return Regarding("Pod", member.namespace, member.name, member.uid)


def of_bindings(bound: Iterable[PodBinding]) -> Iterator[Occurrence]:
    """Pods that have been bound."""
    for one in bound:
        yield scheduled_occurrence(Regarding("Pod", one.namespace, one.name, one.uid), one.node, one.devices)


def of_remarks(first: PodBinding, remarks: Iterable[Remark]) -> Iterator[Occurrence]:
    """Pods have been bound, and what they wish is not followed, or only in part. `first`: of these pods."""
    if said := "; ".join(map(str, remarks)):
        pod = Regarding("Pod", first.namespace, first.name, first.uid)
        yield Occurrence(pod, "NotFollowed", "Binding", f"not followed: {said}")


def scheduled_occurrence(pod: Regarding, node: NodeName, devices: Iterable[str]) -> Occurrence:
    """A pod has been bound."""
    what = ", ".join(devices)
    return Occurrence(pod, "Scheduled", "Binding", f"bound to {node}{f' with {what}' if what else ''}")


_EVICTIONS: Final[dict[Event, tuple[str, bool]]] = {
    "evicting": ("Evicted", False),
    "past-budgets": ("EvictedPastBudgets", True),
    "waits": ("EvictionWaits", False),
    "limit-near": ("TimeLimitNear", False),
    "limit-over": ("TimeLimitReached", True),
    "called-off": ("EvictionCalledOff", False),
    "refused": ("EvictionRefused", True),
    "failed": ("EvictionFailed", True),
}


_ENDING: Final[frozenset[Event]] = frozenset({"evicting", "past-budgets", "limit-over"})


def of_evictions(outcomes: Iterable[Outcome], gangs: Mapping[JobName, PodGang]) -> Iterator[Occurrence]:
    """What became of evictions in a pass: that they are told to end to all that are, all else to the first of a gang's pods."""
    for outcome in outcomes:
        members = gangs[outcome.job].members if outcome.job in gangs else ()
        reason, warning = _EVICTIONS[outcome.event]
        ending = tuple(one for one in members if not outcome.only or one.uid in outcome.only)
        for member in ending if outcome.event in _ENDING else members[:1]:
            yield Occurrence(the_pod(member), reason, "Evict", outcome.why, warning)


def of_drains(steps: Iterable[LeaveNode], gangs: Mapping[JobName, PodGang]) -> Iterator[Occurrence]:
    """Gangs are to leave nodes that are drained for their health, said of each pod that leaves."""
    for step in steps:
        going = (member for member in gangs[step.job].members if not step.only or member.uid in step.only)
        reason = "Shrinking" if step.only else "Evicting"
        note = f"{step.why}; it has {step.grace} to save and end, and goes on elsewhere"
        yield from (Occurrence(the_pod(member), reason, "Evict", note) for member in going)


def node_health_occurrence(node: NodeName, part: PartHealth) -> Occurrence:
    """A node is not well, or is well again: NodeSuspect, NodeCordoned, NodeDrained or NodeWell."""
    until = f", until {part.until}" if part.until is not None else ""
    reason = f"Node{part.state.capitalize()}"
    return Occurrence(_node(node), reason, "JudgeHealth", f"{part.reason}{until}", warning=part.state != "well")


def of_releases(releases: Iterable[ReleasePods]) -> Iterator[Occurrence]:
    """Starts of gangs that are given up: their bound pods are deleted."""
    for release in releases:
        note = f"attempt {release.attempt} of its gang is given up: {release.why}"
        for pod in release.pods:
            yield Occurrence(
                Regarding("Pod", pod.namespace, pod.name, pod.uid), "Released", "Release", note, warning=True
            )


def standing_occurrences(
    told: Iterable[PodConditionUpdate], cluster: KubernetesCluster, absent: Iterable[tuple[PodGang, ConditionText]] = ()
) -> Iterator[Occurrence]:
    """What is so as long as nothing changes: why gangs wait (at the first of their pods that do), and what is left out of nodes.

    Of what has no pods yet it is told why. `absent`: gangs of Workloads that have none, and what is said of each.
    """
    for gang, said in absent:
        bad = said.reason in (REFUSED, INADMISSIBLE)
        reason = said.reason if bad else WAITING
        yield Occurrence(the_pod(gang.members[0]), reason, "Scheduling", said.message, warning=bad)
    first: dict[JobName, PodConditionUpdate] = {}
    for one in told:
        first.setdefault(one.job, one)
    for one in first.values():
        bad = one.said.reason in (REFUSED, INADMISSIBLE)
        pod = Regarding("Pod", one.namespace, one.name, one.uid)
        yield Occurrence(pod, one.said.reason if bad else WAITING, "Scheduling", one.said.message, warning=bad)
    for held in cluster.held_back:
        maker = Regarding(held.kind, held.namespace, held.name, held.uid, held.api_version)
        yield Occurrence(maker, WAITING, "Scheduling", held.why)
    for name, remark in cluster.remarks:
        yield Occurrence(_node(name), NODE_REFUSED, "Inventory", str(remark), warning=True)


def trouble_occurrences(troubles: Iterable[GangTrouble]) -> Iterator[Occurrence]:
    """Gangs run on nodes that are not ready or under pressure: said to their pods there, and to the first of them all."""
    for one in troubles:
        reason = NODE_NOT_READY if one.trouble.is_away else NODE_PRESSURE
        for member in dict.fromkeys((*one.gang.members[:1], *one.pods)):
            yield Occurrence(the_pod(member), reason, "WatchNode", one.sentence, warning=True)


def _node(name: NodeName) -> Regarding:
    return Regarding("Node", "", name, name)


def _holding(tasks: Iterable[TaskPlacement]) -> str:
    listed = tuple(tasks)
    gpus = MilliGpu(sum(task.gpus for task in listed))
    return f"{count(gpus.number, 'GPU')} on {nodes_of(listed)}"
