"""Puts on record what pods hold: of each look what is not on record yet, with the API server's own times.

What a process remembers spares it reading; nothing depends on it. The first look of a leader is compared with the store, and so
finds what came, and what went, while none led. When a pod was gone that was deleted meanwhile nothing says: it counts until a
leader last saw it, and its end is `unseen`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import compress
from operator import is_not
from typing import Final, NamedTuple

import msgspec

from reconciler.control.capacity import CapacityRecorder
from reconciler.kubernetes.binder.records import eviction_record_on
from reconciler.kubernetes.control.pod_times import gang_ending, held_since, held_until, release_of
from reconciler.kubernetes.control.sight import Sight
from reconciler.kubernetes.control.signs import controllers_of
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.membership import membership_of
from reconciler.kubernetes.objects.pod_ownership import OURS, PodOwnership
from reconciler.kubernetes.objects.pods import PodTask, task_of
from reconciler.kubernetes.objects.wire import Pod
from reconciler.protocols.backend import Epoch
from reconciler.protocols.capacity import Capacities
from reconciler.protocols.placements import PlacedTask
from reconciler.protocols.pod_placements import (
    GangEnd,
    HeldPod,
    PodChanges,
    PodPlacements,
    PodRelease,
    PodUid,
    RecordedGang,
)
from solver.model.cluster import DeviceId, GpuType, Node, NodeName
from solver.model.inflight import Intent
from solver.model.mig import cost_milli_gpu, mig_model
from solver.model.mig_layout import model_of_type, profile_on
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup, TaskPlacement


class Led(NamedTuple):
    """Of the cluster, and of the store."""

    cluster: Epoch
    store: Epoch


NEVER: Final = Instant(0)


@dataclass
class _Memory:
    """What is on record, as far as this process knows; `at`: when it last looked."""

    led: Led | None = None
    at: Instant = NEVER
    held: dict[PodUid, HeldPod] = field(default_factory=dict)
    gangs: dict[JobName, RecordedGang] = field(default_factory=dict)
    seen: dict[JobName, PodGang] = field(default_factory=dict)
    over: frozenset[PodUid] = frozenset()
    asked: dict[JobName, Intent] = field(default_factory=dict)
    """What gangs were asked to do."""


class PodRecorder:
    """Call `keep` once in each pass."""

    def __init__(self, placements: PodPlacements, capacities: Capacities, whose: PodOwnership = OURS) -> None:
        self._placements = placements
        self._capacities = capacities
        self._whose = whose
        self._capacity = CapacityRecorder(capacities)
        self._memory = _Memory()
        self._gone: dict[PodUid, Pod] = {}
        """Pods that left since what was put on record last."""

    def keep(self, led: Led, sight: Sight, gone: Iterable[Pod], snapshot: Snapshot) -> None:
        """What this look shows. `gone`: pods that left since the last one, as they were last. Raises StaleEpochError."""
        before = self._memory
        if led != before.led:
            before = self._read(snapshot.time)
        self._memory = _Memory()  # what a failed write leaves is read again
        self._gone |= {pod.metadata.uid: pod for pod in gone}
        missed = self._missed(before, sight)
        look = _Look(before, sight, self._gone, missed, snapshot.time)
        self._placements.keep(led.store, look.changes())
        self._capacity.keep(led.store, snapshot)
        self._gone.clear()
        self._memory = look.after(led)

    def _missed(self, before: _Memory, sight: Sight) -> dict[PodUid, Pod]:
        """Pods that are over and not on record: they came and went between two looks."""
        found = {
            pod.metadata.uid: pod
            for pod in (*sight.pods.over.values(), *self._gone.values())
            if pod.metadata.uid not in before.over and pod.metadata.uid not in before.held and self._whose.are_jobs(pod)
        }
        known = self._placements.on_record(found) if found else frozenset()
        return {uid: pod for uid, pod in found.items() if uid not in known}

    def _read(self, now: Instant) -> _Memory:
        """Of a leader that has not looked yet: when one did is what the watch says."""
        last = max((span.until for span in self._capacities.watches(Instant(0), now)), default=Instant(0))
        return _Memory(None, last, self._placements.held(), self._placements.gangs())


class _Look:
    """What one look at the cluster shows against what is on record."""

    def __init__(
        self, before: _Memory, sight: Sight, gone: Mapping[PodUid, Pod], missed: Mapping[PodUid, Pod], now: Instant
    ) -> None:
        self._before = before
        self._sight = sight
        self._gone = gone
        self._missed = missed
        self._now = now
        self._is_first = before.led is None
        self._held: dict[PodUid, HeldPod] = dict(before.held)
        self._gangs: dict[JobName, RecordedGang] = dict(before.gangs)
        self._by_uid = {pod.metadata.uid: pod for pod in sight.pods.values()} if self._is_first else {}
        self._said: dict[JobName, Intent | None] = {}
        self._asked = {intent.job: intent for intent in sight.intents if intent.kind in ("stop", "shrink")}

    def changes(self) -> PodChanges:
        """What is not on record."""
        gangs, seen = self._sight.gangs, self._before.seen
        # Of tens of thousands few have changed, and a pass is not to go through the others one by one.
        changed = [*compress(gangs.values(), map(is_not, gangs.values(), map(seen.get, gangs)))]
        vanished = [known for name, known in seen.items() if name not in gangs]
        self._find_pods((*changed, *vanished))
        came, whole = self._came(changed), self._whole(changed)
        left = self._left((*changed, *vanished))
        over, gangs_over = self._came_and_gone(left)
        ended = self._ended(vanished) | {gang.name: end for gang, end in gangs_over}
        for name in ended:
            self._gangs.pop(name, None)
        return PodChanges(self._now, (*whole, *(gang for gang, _ in gangs_over)), (*came, *over), left, ended)

    def after(self, led: Led) -> _Memory:
        """What is on record once that is."""
        over = frozenset(pod.metadata.uid for pod in self._sight.pods.over.values())
        return _Memory(led, self._now, self._held, self._gangs, dict(self._sight.gangs), over, self._asked)

    def _find_pods(self, gangs: Iterable[PodGang]) -> None:
        """The pods of these gangs that are there still, be they over."""
        pods = self._sight.pods
        for gang in gangs if not self._is_first else ():
            for member in gang.members:
                pod = pods.get((member.namespace, member.name))
                if pod is not None and pod.metadata.uid == member.uid:
                    self._by_uid[member.uid] = pod

    def _came(self, changed: Iterable[PodGang]) -> list[HeldPod]:
        came: list[HeldPod] = []
        for gang in changed:
            for pod in self._holding(gang):
                before = self._held.get(pod.uid)
                if before is None or not before.holds_as(pod):
                    came.append(pod)
                    self._held[pod.uid] = pod
        return came

    def _holding(self, gang: PodGang) -> Iterator[HeldPod]:
        """What pods of a gang hold of GPUs."""
        job = gang.job
        if job is None:
            return
        tasks = {(task.group, task.index): task for task in job.placement}
        for member in gang.members:
            task, pod = tasks.get((member.group, member.task_index)), self._by_uid.get(member.uid)
            if task is None or pod is None:
                continue
            known = self._held.get(member.uid)
            node = self._sight.cluster.index.nodes.get(task.node)
            if node is None and known is not None:
                yield known  # while its node is gone nothing says which devices it has
            elif task.gpus:
                gpu_type = node.gpu_type if node else GpuType("")
                since = known.since if known else held_since(pod, self._now)
                yield HeldPod(member.uid, gang.name, job.spec.queue, gpu_type, task.node, _task_on(task), since)

    def _whole(self, changed: Iterable[PodGang]) -> list[RecordedGang]:
        """Gangs that are new or not as they are on record."""
        found: list[RecordedGang] = []
        for gang in changed:
            if gang.job is None:
                continue
            there = [pod for member in gang.members if (pod := self._by_uid.get(member.uid))]
            made_by = tuple(sorted(controllers_of(there)))
            seen = RecordedGang(gang.name, _told(gang.job.spec), gang.job.submitted_at, made_by)
            known = self._gangs.get(gang.name)
            if known is None or _differs(known, seen):
                found.append(seen)
                self._gangs[gang.name] = seen
        return found

    def _left(self, gangs: Iterable[PodGang]) -> dict[PodUid, PodRelease]:
        """Pods on record that hold nothing any more; of a leader's first look any of them may be."""
        still = (
            {pod.uid for gang in self._sight.gangs.values() for pod in self._holding(gang)} if self._is_first else set()
        )
        candidates = (
            self._before.held.keys() - still
            if self._is_first
            else {uid for gang in gangs for uid in self._of(gang) if uid in self._before.held}
            - self._holding_now(gangs)
        )
        left: dict[PodUid, PodRelease] = {}
        for uid in sorted(candidates):
            held = self._held.pop(uid)
            left[uid] = self._release(uid, held)
        return left

    def _of(self, gang: PodGang) -> Iterator[PodUid]:
        """Members of a gang, now and before."""
        before = self._before.seen.get(gang.name)
        yield from (member.uid for known in (gang, before) if known for member in known.members)

    def _holding_now(self, gangs: Iterable[PodGang]) -> set[PodUid]:
        there = self._sight.gangs
        return {pod.uid for gang in gangs if there.get(gang.name) is gang for pod in self._holding(gang)}

    def _release(self, uid: PodUid, held: HeldPod) -> PodRelease:
        pod = self._by_uid.get(uid) or self._gone.get(uid)
        if pod is None:
            return PodRelease(min(self._before.at, self._now), "unseen", is_at_most=True)
        if uid in self._by_uid and pod.holds:
            return PodRelease(self._now, "restarted")  # it is no job's any more
        seen = self._before.seen.get(held.gang)
        saved_at = seen.job.saved_at if seen and seen.job else None
        return release_of(pod, self._now, self._asked_of(held.gang), saved_at)

    def _asked_of(self, name: JobName) -> Intent | None:
        """What a gang was asked to do, now or before, or as one of its pods says that went before anybody looked again."""
        if name not in self._said:
            seen = self._before.seen.get(name)
            pods = (self._by_uid.get(one.uid) or self._gone.get(one.uid) for one in (seen.members if seen else ()))
            records = (eviction_record_on(pod) for pod in pods if pod)
            written = next((record.intent for record in records if record), None)
            self._said[name] = self._asked.get(name) or self._before.asked.get(name) or written
        return self._said[name]

    def _came_and_gone(
        self, left: dict[PodUid, PodRelease]
    ) -> tuple[list[HeldPod], list[tuple[RecordedGang, GangEnd]]]:
        """What pods held that nobody saw hold it, and their gangs where these are not known either."""
        found: list[HeldPod] = []
        strange: defaultdict[JobName, list[tuple[Pod, HeldPod]]] = defaultdict(list)
        seen = self._before.seen.items() if self._missed else ()
        gang_of = {member.uid: name for name, gang in seen for member in gang.members}
        for uid, pod in self._missed.items():
            gang = gang_of.get(uid) or membership_of(pod).key.job
            held = None if uid in self._held else self._held_by(pod, gang)
            if held is None:
                continue
            left[uid] = release_of(pod, self._now, self._asked_of(gang), None)
            found.append(held)
            if gang not in self._gangs:
                strange[gang].append((pod, held))
        return found, [_strange_gang(name, pods, self._now) for name, pods in strange.items()]

    def _held_by(self, pod: Pod, gang: JobName) -> HeldPod | None:
        """What a pod had that is over; None: nothing of GPUs, or it is not known for whom."""
        task, known = task_of(pod), self._gangs.get(gang)
        queue = known.spec.queue if known else QueueName(task.queue)
        number = len(task.devices) or task.shape.gpus or task.shape.uses_gpus * task.shape.devices
        if not queue or not number or (task.shape.mig is not None and not task.devices):
            return None
        name = NodeName(pod.spec.node_name)
        node = self._sight.cluster.index.nodes.get(name)
        slots = tuple(gpu.id for gpu in node.gpus) if node else ()
        slots += tuple(DeviceId(f"{name}/{index}") for index in range(number) if len(slots) < number)
        placed = _instances_of(task, node) if task.shape.mig else _gpus_of(task, number)
        if placed is None:
            return None
        gpu_type = node.gpu_type if node else GpuType("")
        return HeldPod(pod.metadata.uid, gang, queue, gpu_type, name, placed, held_since(pod, self._now), slots)

    def _ended(self, vanished: Iterable[PodGang]) -> dict[JobName, GangEnd]:
        """Gangs of which no pod lives any more."""
        ended = {gang.name: self._end_of(gang) for gang in vanished if gang.name in self._gangs}
        gone = self._gangs.keys() - self._sight.gangs.keys() if self._is_first else set[JobName]()
        return ended | dict(self._ends_unseen(gone)) if gone else ended

    def _ends_unseen(self, gone: Collection[JobName]) -> Iterator[tuple[JobName, GangEnd]]:
        """Of gangs that ended while none led: what pods say that are there still."""
        over: defaultdict[JobName, list[Pod]] = defaultdict(list)
        for pod in (*self._sight.pods.over.values(), *self._gone.values()):
            over[membership_of(pod).key.job].append(pod)
        for name in gone:
            at = max((held_until(pod, self._now) for pod in over[name]), default=min(self._before.at, self._now))
            yield name, GangEnd(at, gang_ending(over[name]) if over[name] else "unseen")

    def _end_of(self, gang: PodGang) -> GangEnd:
        """Of a gang that was there at the last look: what is not known of its pods was deleted."""
        there = (self._by_uid.get(member.uid) or self._gone.get(member.uid) for member in gang.members)
        pods = [pod for pod in there if pod]
        return GangEnd(max((held_until(pod, self._now) for pod in pods), default=self._now), gang_ending(pods))


def _task_on(task: TaskPlacement) -> PlacedTask:
    if task.mig is None:
        return PlacedTask(task.group, task.index, task.devices, task.gpus)
    devices = tuple(slot.instance.id_on(slot.gpu) for slot in task.slots)
    return PlacedTask(task.group, task.index, devices, task.gpus, task.mig.gpu)


def _gpus_of(task: PodTask, number: int) -> PlacedTask:
    """The GPUs of a pod that is over, or its part of each."""
    share = task.shape.gpu_fraction or task.share
    return PlacedTask("", 0, task.devices, MilliGpu(share * number) if share else MilliGpu.gpus(number))


def _instances_of(task: PodTask, node: Node | None) -> PlacedTask | None:
    """The MIG instances of a pod that is over, as its binding wrote them down; None: what they were of a GPU is not known.

    They may be no more: the node's GPUs may be partitioned otherwise by now.
    """
    name = model_of_type(node.gpu_type) if node else ""
    profile = profile_on(name, task.shape.mig or "") if name else None
    gpus = [DeviceId(device.rpartition("/")[0]) for device in task.devices]
    if profile is None or not all(gpus):
        return None
    cost = cost_milli_gpu(mig_model(name), profile) * len(gpus)
    return PlacedTask("", 0, task.devices, MilliGpu(cost), gpus[0])


def _told(spec: JobSpec) -> JobSpec:
    """The nodes that a task group is limited to are named anew in every snapshot."""
    groups = tuple(msgspec.structs.replace(group, nodes="") for group in spec.task_groups)
    return msgspec.structs.replace(spec, task_groups=groups)


def _differs(known: RecordedGang, seen: RecordedGang) -> bool:
    """It is larger, in another queue or class, or made by something else."""
    is_larger = seen.spec.tasks > known.spec.tasks
    of = known.spec.queue, known.spec.priority_class
    is_other = of != (seen.spec.queue, seen.spec.priority_class)
    return is_larger or is_other or not set(seen.controllers) <= set(known.controllers)


def _strange_gang(name: JobName, pods: Iterable[tuple[Pod, HeldPod]], now: Instant) -> tuple[RecordedGang, GangEnd]:
    """A gang of which nothing is known but pods that are over."""
    pods = tuple(pods)
    tasks = [task_of(pod) for pod, _ in pods]
    groups = tuple(TaskGroup(f"pods-{index}", 1, task.shape) for index, task in enumerate(tasks))
    queue, priority_class = pods[0][1].queue, tasks[0].priority_class
    created = min(task.created for task in tasks)
    made_by = tuple(sorted(controllers_of(pod for pod, _ in pods)))
    gang = RecordedGang(name, JobSpec(queue, groups, priority_class=priority_class), created, made_by)
    at = max(held_until(pod, now) for pod, _ in pods)
    return gang, GangEnd(at, gang_ending(pod for pod, _ in pods))
