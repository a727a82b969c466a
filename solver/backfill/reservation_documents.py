"""Reservation documents in a round: where their capacity is, and which jobs it is kept from.

Named nodes are kept whole. What is only counted is chosen once, among GPUs that are free by then or soonest, and stays where it is
until a node or a GPU of it is lost. No work of others, entitled or not, may be there while it is kept: before, it
must end in time. What runs there already is not made to leave.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from solver.backfill.eligibility import EndTimes, KnownEnds, given_back, may_backfill
from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.free_resources import Reserved
from solver.capacity.reserved_view import Against
from solver.model.amounts import is_port
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.inflight import Reservation
from solver.model.quantities import Instant
from solver.model.shape import Shape, taking
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, TaskPlacement
from solver.policy.policy import Policy
from solver.policy.reservation import DeclaredReservation
from solver.policy.tree import QueueTree
from solver.queueing.demand import StartCandidate
from solver.queueing.loans import can_be_gone, has_to_leave
from solver.quota.victims import protected_until

WHERE = "held"
"""The group of tasks that say where the capacity of a document is."""


def with_document_reservations(snapshot: Snapshot, policy: Policy) -> Snapshot:
    """The snapshot with what each document keeps that is not over, in place of what documents kept before."""
    gangs = tuple(held for held in snapshot.in_flight.reservations if not held.is_declared)
    declared = _held_by(snapshot, policy, [known for known in policy.reservations if known.until > snapshot.time])
    if len(gangs) == len(snapshot.in_flight.reservations) and not declared:
        return snapshot
    in_flight = msgspec.structs.replace(snapshot.in_flight, reservations=(*gangs, *declared))
    return msgspec.structs.replace(snapshot, in_flight=in_flight)


def document_reservations(snapshot: Snapshot) -> tuple[Reservation, ...]:
    """What documents keep."""
    return tuple(held for held in snapshot.in_flight.reservations if held.is_declared)


def kept_by(declared: Iterable[Reservation], room: FreeCapacity, ends: KnownEnds, now: Instant) -> Reserved:
    """What is hidden from the jobs that each holds back: its GPUs, and their share of what each node has beside them.

    A node of which all GPUs are kept is kept whole. Of another, nothing is kept beside GPUs that will still be used.
    """
    return {
        held.holder: tuple(_kept_on(task, room, ends, max(held.start, now)) for task in held.tasks) for held in declared
    }


def _kept_on(task: TaskPlacement, room: FreeCapacity, ends: KnownEnds, by: Instant) -> tuple[TaskPlacement, Shape]:
    number = room.index[task.node]
    node, gpus = room.nodes[number], len(task.devices)
    if gpus == len(node.gpus):
        return task, taking(gpus, node.beside)
    ending = {device for holder, end in ends if end <= by for other in holder.tasks for device in other.devices}
    idle = len(set(task.devices) & (ending | set(room.free_devices[number])))
    back = given_back(ends, by)[task.node]
    shares = {name: has * idle // len(node.gpus) - back[name] for name, has in node.beside.items() if not is_port(name)}
    return task, taking(gpus, {name: max(0, share) for name, share in shares.items()})


def kept_from(
    candidates: Sequence[StartCandidate], declared: Sequence[Reservation], policy: Policy, tree: QueueTree, now: Instant
) -> tuple[StartCandidate, ...]:
    """The candidates, each with the documents that hold it back; alike only where these are the same."""
    if not declared:
        return tuple(candidates)
    by_name = {known.job for known in policy.reservations}
    lends = any(known.evict != "none" for known in policy.reservations)
    known: dict[object, int] = {}
    holders: dict[object, Against] = {}
    found = []
    for candidate in candidates:
        job = candidate.job
        # What else says whether a job can be made to leave by then.
        leaves = (policy.priority_class_name(job), job.evicted_at, policy.grace(job)) if lends else ()
        asks = (job.spec.queue, job.user, policy.time_limit(job), job.name if job.name in by_name else None, *leaves)
        if asks not in holders:
            holders[asks] = _first_of_each(held for held in declared if _holds_back(held, job, policy, tree, now))
        against = holders[asks]
        alike = known.setdefault((candidate.likeness, against), len(known))
        found.append(replace(candidate, likeness=alike, against=candidate.against | against))
    return tuple(found)


def _first_of_each(binding: Iterable[Reservation]) -> Against:
    """Of several windows of one document that keep the same, the first: the others hide nothing more, and each costs a view."""
    found: dict[tuple[object, ...], Reservation] = {}
    for held in sorted(binding, key=lambda known: known.start):
        series = (held.holder.partition("@")[0], tuple((task.node, task.devices) for task in held.tasks))
        found.setdefault(series, held)
    return frozenset(held.holder for held in found.values())


def overstays(job: Job, tasks: Iterable[TaskPlacement], snapshot: Snapshot, policy: Policy, tree: QueueTree) -> bool:
    """Whether a job that starts there now would still be there when it is kept for others."""
    declared = document_reservations(snapshot)
    gpus = {node.name: len(node.gpus) for node in snapshot.nodes} if declared else {}
    devices = {device for task in tasks for device in task.devices}
    nodes = {task.node for task in tasks}
    return any(
        _holds_back(held, job, policy, tree, snapshot.time)
        for held in declared
        for kept in held.tasks
        if devices & set(kept.devices) or (kept.node in nodes and gpus[kept.node] == len(kept.devices))
    )


def _holds_back(held: Reservation, job: Job, policy: Policy, tree: QueueTree, now: Instant) -> bool:
    start = max(held.start, now)
    if is_for(held, job, policy, tree) or may_backfill(_end(job, policy, now), start):
        return False
    document = policy.reservation(held.holder)
    # What begins now is lent no more, and neither is anything to a job that the document would not have evicted.
    lends = document is not None and start > now and has_to_leave(document, job, policy, tree)
    return not (lends and can_be_gone(job, policy, now, start))


def is_for(held: Reservation, job: Job, policy: Policy, tree: QueueTree) -> bool:
    """Whether the job may use what the document keeps."""
    document = policy.reservation(held.holder)
    return document is None or document.admits(tree.path(job.spec.queue), job.user, job.name)


def _end(job: Job, policy: Policy, now: Instant) -> Instant | None:
    limit = policy.time_limit(job)
    return None if limit is None else now.after(limit)


def _held_by(snapshot: Snapshot, policy: Policy, documents: Sequence[DeclaredReservation]) -> tuple[Reservation, ...]:
    """What each document keeps: first nodes by name, then what was chosen before, then what is chosen now."""
    choice = _Choice({node.name: node for node in snapshot.nodes}, _Holders.of(snapshot, policy, documents), {})
    known = {held.holder: held for held in document_reservations(snapshot)}
    for document in documents:
        choice.held[document] = tuple(choice.named(document))
    for document in documents:
        if document.holder in known and document.nodes is None:
            choice.held[document] = tuple(choice.still_there(document, known[document.holder].tasks))
    before: dict[str, tuple[TaskPlacement, ...]] = {}
    for document in sorted(documents, key=lambda known: (known.start, known.name)):
        if document.holder not in known and document.nodes is None:
            # The next window keeps what the one before it does, if it can.
            choice.held[document] = tuple(choice.still_there(document, before.get(document.series, ())))
        choice.held[document] += choice.more(document)
        before[document.series] = choice.held[document]
    return tuple(
        Reservation(document.holder, _numbered(tasks), document.start, document.until)
        for document, tasks in choice.held.items()
    )


def _blocks(
    usable: Sequence[DeviceId], size: int, free: Mapping[DeviceId, tuple[float, Sequence[Job]]]
) -> Iterator[tuple[DeviceId, ...]]:
    """A node's GPUs in blocks, each as early as can be, and of what is free by then that for which the fewest are given up."""

    def harm(device: DeviceId) -> tuple[int, Sequence[int], float]:
        by, leaving = free[device]
        return sum(map(_held_gpus, leaving)), [int(job.submitted_at) for job in leaving], by

    left = sorted(usable, key=lambda device: free[device][0])
    while len(left) >= size:
        by = free[left[size - 1]][0]
        able = sorted((device for device in left if free[device][0] <= by), key=harm)
        yield tuple(able[:size])
        left = [device for device in left if device not in able[:size]]


def _held_gpus(job: Job) -> int:
    return sum(task.gpus for task in job.placement)


def _numbered(tasks: Iterable[TaskPlacement]) -> tuple[TaskPlacement, ...]:
    ordered = sorted(tasks, key=lambda task: (task.node, task.devices))
    return tuple(TaskPlacement(WHERE, index, task.node, task.devices) for index, task in enumerate(ordered))


_Held = tuple[Job | None, Instant | None, tuple[TaskPlacement, ...]]


@dataclass(frozen=True, slots=True)
class _Holders:
    """Who has each GPU, was promised it or is to have it, and until when as far as is known."""

    policy: Policy
    tree: QueueTree
    now: Instant
    by_device: Mapping[DeviceId, Sequence[tuple[Job | None, float]]]

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy, documents: Sequence[DeclaredReservation]) -> _Holders:
        """Nobody is looked for where no document keeps anything."""
        found = defaultdict[DeviceId, list[tuple[Job | None, float]]](list)
        ends = EndTimes(snapshot)
        nominations, reservations = snapshot.in_flight.nominations, snapshot.in_flight.reservations
        held: list[_Held] = [(job, ends.of(job), job.placement) for job in snapshot.jobs if job.placement]
        held += [(None, None, intent.tasks) for intent in nominations]
        held += [(None, known.until, known.tasks) for known in reservations if not known.is_declared]
        for job, end, tasks in held if documents else ():
            for device in (device for task in tasks for device in task.devices):
                found[device].append((job, math.inf if end is None else end))
        return cls(policy, QueueTree.of(policy), snapshot.time, found)

    def free_from(self, document: DeclaredReservation, device: DeviceId) -> tuple[float, tuple[Job, ...]]:
        """When a GPU is free, no earlier than a document begins; and the jobs that it has leave for that."""
        free, leaving = float(document.start), list[Job]()
        for job, end in self.by_device.get(device, ()):
            gone = end
            if job is not None and end > document.start and self._has_to_leave(document, job):
                gone = min(end, self._gone(document, job))
                leaving += [job] if gone < end else []
            free = max(free, gone)
        return free, tuple(leaving)

    def _has_to_leave(self, document: DeclaredReservation, job: Job) -> bool:
        return document.evict != "none" and has_to_leave(document, job, self.policy, self.tree)

    def _gone(self, document: DeclaredReservation, job: Job) -> Instant:
        """When it has left at the latest if it is asked as soon as it may be, and not before it need be."""
        known, grace = self.policy.priority_class(job), self.policy.grace(job)
        until = protected_until(job, known.protection) if known is not None and job.started_at is not None else 0
        return Instant(max(document.start - grace, until, self.now)).after(grace)


@dataclass(frozen=True, slots=True)
class _Block:
    """GPUs of one node, free by an instant once some jobs have left, each with how many it has. `order`: of equal ones."""

    task: TaskPlacement
    by: float
    leaving: Mapping[JobName, int]
    order: tuple[int, int, int]

    def rank(self, gone: Collection[JobName]) -> tuple[float, int, tuple[int, int, int]]:
        """The least is best, beside jobs that leave anyway."""
        return self.by, sum(gpus for name, gpus in self.leaving.items() if name not in gone), self.order


def _soonest_and_mildest(blocks: Sequence[_Block], count: int) -> Sequence[TaskPlacement]:
    """So many blocks that are free first, and of these such for which few GPUs are given up."""
    chosen = _soonest(blocks, count)
    held = {name: gpus for block in chosen for name, gpus in block.leaving.items()}
    for spared in sorted(held, key=lambda name: -held[name]):
        # One that was chosen before another may do without what leaves, once the other does.
        gone = {name for block in chosen for name in block.leaving} - {spared}
        others = _soonest([block for block in blocks if block.leaving.keys() <= gone], count)
        if sorted(block.by for block in others) == sorted(block.by for block in chosen):
            chosen = others
    return [block.task for block in chosen]


def _soonest(blocks: Sequence[_Block], count: int) -> list[_Block]:
    """Each time the one for which the fewest GPUs more are given up."""
    gone, chosen, sharing = (
        set[JobName](),
        dict[tuple[int, int, int], _Block](),
        defaultdict[JobName, list[_Block]](list),
    )
    for block in blocks:
        for name in block.leaving:
            sharing[name].append(block)
    by_order = {block.order: block for block in blocks}
    ranked = [block.rank(gone) for block in blocks]
    heapq.heapify(ranked)
    while ranked and len(chosen) < count:
        block = by_order[heapq.heappop(ranked)[-1]]
        if block.order in chosen:
            continue
        chosen[block.order] = block
        for name in block.leaving.keys() - gone:
            gone.add(name)
            for other in sharing[name]:
                heapq.heappush(ranked, other.rank(gone))
    return list(chosen.values())


@dataclass(frozen=True, slots=True)
class _Choice:
    """Where documents keep capacity, while it is decided."""

    nodes: Mapping[NodeName, Node]
    holders: _Holders
    held: dict[DeclaredReservation, tuple[TaskPlacement, ...]]

    def named(self, document: DeclaredReservation) -> Iterator[TaskPlacement]:
        """The named nodes that there are, whole."""
        for name in document.nodes or ():
            if name in self.nodes:
                yield TaskPlacement(WHERE, 0, name, tuple(gpu.id for gpu in self.nodes[name].gpus))

    def still_there(self, document: DeclaredReservation, tasks: Iterable[TaskPlacement]) -> Sequence[TaskPlacement]:
        """What was chosen before and can stay."""
        taken = self._taken(document)
        good = [
            task
            for task in tasks
            if task.node in self.nodes
            and len(task.devices) == document.gpus_per_node
            and set(task.devices) <= set(self._usable(document, self.nodes[task.node])) - taken
        ]
        return good[: document.count or 0]

    def more(self, document: DeclaredReservation) -> tuple[TaskPlacement, ...]:
        """What is chosen now, as far as there is any: what is free when it begins, or else soonest."""
        missing, size = (document.count or 0) - len(self.held[document]), document.gpus_per_node or 1
        taken = self._taken(document) | {device for task in self.held[document] for device in task.devices}
        found = list[_Block]()
        for place, node in enumerate(self.nodes.values() if missing > 0 else ()):
            usable = [device for device in self._usable(document, node) if device not in taken]
            free = {device: self.holders.free_from(document, device) for device in usable}
            for number, devices in enumerate(_blocks(usable, size, free)):
                leaving = {job.name: _held_gpus(job) for device in devices for job in free[device][1]}
                # Where several nodes are as good, the one of which the least is left stays the fullest.
                order = len(usable), place, number
                by = max(free[device][0] for device in devices)
                found.append(_Block(TaskPlacement("", 0, node.name, devices), by, leaving, order))
        return tuple(_soonest_and_mildest(found, max(0, missing)))

    def _usable(self, document: DeclaredReservation, node: Node) -> list[DeviceId]:
        """Whole GPUs of its type that work, on a node that takes work."""
        if not node.schedulable or node.gpu_type != document.gpu_type:
            return []
        return [gpu.id for gpu in node.gpus if gpu.healthy and gpu.instances is None]

    def _taken(self, document: DeclaredReservation) -> set[DeviceId]:
        """What other documents keep at the same time."""
        return {
            device
            for other, tasks in self.held.items()
            if other.name != document.name and document.overlaps(other.start, other.until)
            for task in tasks
            for device in task.devices
        }
