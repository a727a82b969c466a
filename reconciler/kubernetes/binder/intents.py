"""What is in flight, read back from what Quorate wrote on pods: which gangs were asked to leave, and what was promised to which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from reconciler.kubernetes.binder.records import (
    EvictionRecord,
    NominationRecord,
    doubts_on,
    eviction_record_on,
    marked_pods,
    promise_on,
)
from reconciler.kubernetes.objects.cluster import KubernetesCluster
from reconciler.kubernetes.objects.jobs import MemberPod, PodGang
from reconciler.kubernetes.objects.remarks import Remark
from reconciler.kubernetes.objects.wire import Pod
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import Intent, Reservation
from solver.model.quantities import MILLI_PER_GPU
from solver.model.workload import Job, JobName, TaskPlacement

Pods = Mapping[tuple[str, str], Pod]
"""By namespace and name."""


class Found(NamedTuple):
    """`remarks`: what was written and is not believed, by the gang on whose pods it stands."""

    intents: tuple[Intent, ...]
    reservations: tuple[Reservation, ...]
    remarks: tuple[tuple[JobName, Remark], ...] = ()


def in_flight_of(cluster: KubernetesCluster, pods: Pods, starts: Iterable[Intent] = ()) -> Found:
    """What a round has to know of earlier ones. `starts`: of gangs that are being bound, as their bindings say.

    What any client may have written counts only where it fits the gang that it stands on, and what two gangs were promised is
    the first one's. Sorted by gang; equal objects give the same in any order.
    """
    nodes = cluster.index.nodes
    intents: list[Intent] = list(starts)
    reservations: list[Reservation] = []
    remarks: list[tuple[JobName, Remark]] = []
    promised: list[Intent] = []
    for gang in marked_gangs(cluster, pods):
        if gang.job is None:
            continue
        read = _Read.of(gang, pods)
        remarks += [(gang.name, remark) for remark in read.remarks]
        if gang.job.placement:
            intents += _asked(gang, gang.job, read.evictions)
        promise = _newest_promise(gang.job, read.promises, nodes)
        promised += [promise] if promise else []
        reservations += [] if gang.job.placement else _newest_reservation(gang.job, read.promises, nodes)
    kept, twice = _each_once(promised, _staying(cluster.jobs, intents) if promised else Counter())
    remarks += [(intent.job, Remark("promised-twice", "what it was promised is another's")) for intent in twice]
    ordered = sorted((*intents, *kept), key=lambda intent: intent.id)
    return Found(tuple(ordered), tuple(sorted(reservations, key=lambda held: held.holder)), tuple(sorted(remarks)))


def marked_gangs(cluster: KubernetesCluster, pods: Pods) -> Iterator[PodGang]:
    """The gangs on whose pods something is written."""
    index = cluster.index
    names = {index.gang_of[key] for key in marked_pods(pods) if key in index.gang_of}
    return (index.gangs[name] for name in sorted(names))


class _Read(NamedTuple):
    """The records on the pods of one gang that say what they are."""

    evictions: tuple[EvictionRecord, ...]
    promises: tuple[NominationRecord, ...]
    remarks: tuple[Remark, ...]

    @classmethod
    def of(cls, gang: PodGang, pods: Pods) -> _Read:
        evictions: list[EvictionRecord] = []
        promises: list[NominationRecord] = []
        remarks: list[Remark] = []
        for _, pod in members_of(gang, pods):
            record, promise = eviction_record_on(pod), promise_on(pod)
            evictions += [record] if record and pod.holds else []
            promises += [promise] if promise else []
            remarks += [Remark("record-not-believed", doubt) for doubt in doubts_on(pod)]
        return cls(tuple(evictions), tuple(promises), tuple(remarks))


def members_of(gang: PodGang, pods: Pods) -> Iterator[tuple[MemberPod, Pod]]:
    """The gang's pods that are there, in its order."""
    for member in gang.members:
        pod = pods.get((member.namespace, member.name))
        if pod is not None and pod.metadata.uid == member.uid:
            yield member, pod


def eviction_record_in(gang: PodGang, pods: Pods) -> EvictionRecord | None:
    """What was asked of a gang that holds something, as far as it has come; None: nothing."""
    return _eviction_record(gang.job, _Read.of(gang, pods).evictions) if gang.job and gang.job.placement else None


def _eviction_record(job: Job, evictions: Iterable[EvictionRecord]) -> EvictionRecord | None:
    """What was asked of this attempt: that it stops, rather than that it shrinks; the newest, as far as it has come.

    Of several that say the same the first, in the order of the gang's pods.
    """
    fitting = [
        known
        for known in evictions
        if known.intent.kind in ("stop", "shrink")
        and (known.intent.job, known.intent.attempt) == (job.name, job.attempt)
        and (known.intent.kind == "stop" or known.leaving)
    ]
    return max(fitting, key=_how_far, default=None)


_STAGES = ("waits-to-save", "saves", "ends")


def _how_far(known: EvictionRecord) -> tuple[bool, int, int]:
    intent = known.intent
    return intent.kind == "stop", intent.asked_at, _STAGES.index(intent.stage)


def _asked(gang: PodGang, job: Job, evictions: Iterable[EvictionRecord]) -> Iterator[Intent]:
    record = _eviction_record(job, evictions)
    if record is None or (record.limit is not None and record.intent.stage == "saves"):
        return  # a gang that only knows that its time limit is near runs until then, and rounds know the limit
    if record.intent.kind == "stop":
        yield record.intent
        return
    # Numbers of tasks are given anew when a pod goes; uids stay.
    leaving = {(one.group, one.task_index) for one in gang.members if one.uid in record.leaving}
    tasks = tuple(task for task in job.placement if (task.group, task.index) in leaving)
    if tasks:
        yield msgspec.structs.replace(record.intent, tasks=tasks)


def _newest_promise(job: Job, promises: Iterable[NominationRecord], nodes: Container[NodeName]) -> Intent | None:
    """A promise is of the attempt to come; once that has begun it is kept."""
    fitting = [
        intent
        for promise in promises
        if (intent := promise.intent) is not None
        and (intent.kind, intent.job, intent.attempt) == ("nominate", job.name, job.attempt + 1)
        and _are_tasks_of(job, intent.tasks, nodes)
    ]
    return max(fitting, key=lambda intent: (intent.asked_at, intent.deadline), default=None)


def _newest_reservation(
    job: Job, promises: Iterable[NominationRecord], nodes: Container[NodeName]
) -> list[Reservation]:
    fitting = [
        held
        for promise in promises
        if (held := promise.reservation) is not None
        and held.holder == job.name
        and _are_tasks_of(job, held.tasks, nodes)
    ]
    return [max(fitting, key=lambda held: held.start)] if fitting else []


def _are_tasks_of(job: Job, tasks: Iterable[TaskPlacement], nodes: Container[NodeName]) -> bool:
    """As many of each group as may start, each once, on nodes that there are."""
    placed = [(task.group, task.index) for task in tasks]
    counts = Counter(group for group, _ in placed)
    groups = {group.name: group for group in job.spec.task_groups}
    return (
        len(set(placed)) == len(placed)
        and all(group in groups and 0 <= index < groups[group].replicas for group, index in placed)
        and all(counts[name] >= group.least for name, group in groups.items())
        and all(task.node in nodes for task in tasks)
    )


def _staying(jobs: Iterable[Job], intents: Iterable[Intent]) -> Counter[DeviceId]:
    """What is held of each GPU by pods that were not asked to leave it.

    A promise is written before its victims are asked: a leader that dies in between leaves one that no pod makes room for.
    """
    asked = [intent for intent in intents if intent.kind in ("stop", "shrink")]
    stopping = {(intent.job, intent.attempt) for intent in asked if intent.kind == "stop"}
    leaving = {(intent.job, task.group, task.index) for intent in asked for task in intent.tasks}
    return _parts(
        task
        for job in jobs
        if (job.name, job.attempt) not in stopping
        for task in job.placement
        if (job.name, task.group, task.index) not in leaving
    )


def _parts(tasks: Iterable[TaskPlacement]) -> Counter[DeviceId]:
    """How much of each GPU these tasks have together."""
    parts: Counter[DeviceId] = Counter()
    for task in tasks:
        for slot in task.slots:
            parts[slot.gpu] += slot.cost
        for device in () if task.mig else task.devices:
            parts[device] += task.share or MILLI_PER_GPU
    return parts


def _each_once(promised: Iterable[Intent], staying: Counter[DeviceId]) -> tuple[list[Intent], list[Intent]]:
    """Promises that can come true beside each other and what stays, the older first, and those that can't."""
    taken = Counter(staying)
    kept: list[Intent] = []
    twice: list[Intent] = []
    for intent in sorted(promised, key=lambda intent: (intent.asked_at, intent.job)):
        wanted = _parts(intent.tasks)
        if any(taken[gpu] + part > MILLI_PER_GPU for gpu, part in wanted.items()):
            twice.append(intent)
            continue
        kept.append(intent)
        taken += wanted
    return kept, twice
