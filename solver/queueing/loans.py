"""Devices that are reserved for a waiting gang, lent until it starts to work that can be made to leave by then.

Such work has nothing inside a guarantee, may be preempted, and what protects it ends, grace included, before the gang starts
(DESIGN section 5: "or if they can be gone by T"). What a Reservation document keeps that has jobs evicted is lent likewise until it
begins, to whatever its `evict` lets leave, inside a guarantee or not: the document says for whom the capacity is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from solver.model.cluster import DeviceId, Node
from solver.model.inflight import Reservation
from solver.model.quantities import Instant
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.policy.policy import Policy
from solver.policy.reservation import DeclaredReservation
from solver.policy.tree import QueueTree
from solver.quota.allocation_table import AllocationTable
from solver.quota.borrowing import borrowing_of
from solver.quota.entitlement import Charge, Inside, Shares
from solver.quota.victims import BORROWED, gangs_of, protected, protected_until

Loans = Mapping[JobName, Reservation]
"""Jobs that run on what is reserved for another, and that reservation; of several the first to begin."""


def loans_in(snapshot: Snapshot, policy: Policy, shares: Shares, kept: RoundCache | None = None) -> Loans:
    """The running and starting jobs that have to give back what they hold, to gangs and to documents."""
    loans = dict(_of_gangs(snapshot, policy, shares, kept))
    for name, held in loans_of_documents(snapshot, policy, shares.tree).items():
        known = loans.get(name)
        loans[name] = held if known is None or held.start < known.start else known
    return loans


def loans_of_documents(snapshot: Snapshot, policy: Policy, tree: QueueTree) -> Loans:
    """The running and starting jobs that leave what documents keep by its begin, each with the first of these."""
    calls = DocumentCalls.of(snapshot.in_flight.reservations, policy, tree, snapshot.nodes)
    jobs = (job for job in snapshot.jobs if job.placement and job.phase in ("starting", "running")) if calls else ()
    return {job.name: held for job in jobs if calls and (held := calls.first(job, job.placement)) is not None}


@dataclass(frozen=True, slots=True)
class DocumentCalls:
    """What documents keep that have jobs evicted, in the order in which it begins. `places`: by GPU and by node kept whole."""

    policy: Policy
    tree: QueueTree
    kept: Sequence[tuple[DeclaredReservation, Reservation]]
    places: Mapping[str, Sequence[int]]

    @classmethod
    def of(
        cls, reservations: Iterable[Reservation], policy: Policy, tree: QueueTree, nodes: Iterable[Node]
    ) -> DocumentCalls | None:
        """None where no document has a job evicted."""
        if not any(document.evict != "none" for document in policy.reservations):
            return None
        known = ((policy.reservation(held.holder), held) for held in reservations if held.is_declared)
        kept = [(document, held) for document, held in known if document is not None and document.evict != "none"]
        kept.sort(key=lambda one: (one[1].start, one[1].holder))
        gpus, places = {node.name: len(node.gpus) for node in nodes} if kept else {}, dict[str, list[int]]()
        for place, (_, held) in enumerate(kept):
            for task in held.tasks:
                whole = (task.node,) if len(task.devices) == gpus.get(task.node) else ()
                for name in (*task.devices, *whole):
                    places.setdefault(name, []).append(place)
        return cls(policy, tree, kept, places)

    def first(self, job: Job, tasks: Iterable[TaskPlacement], after: Instant | None = None) -> Reservation | None:
        """For what a job that has these would have to leave first, of what begins `after` an instant; None: for nothing."""
        names = {name for task in tasks for name in (task.node, *task.on_gpus)}
        for place in sorted({place for name in names for place in self.places.get(name, ())}):
            document, held = self.kept[place]
            if (after is None or held.start > after) and has_to_leave(document, job, self.policy, self.tree):
                return held
        return None


def has_to_leave(document: DeclaredReservation, job: Job, policy: Policy, tree: QueueTree) -> bool:
    """Whether a document has a job leave that runs on what it keeps."""
    if document.admits(tree.path(job.spec.queue), job.user, job.name):
        return False
    known = policy.priority_class(job)
    return document.evict == "all" or (document.evict == "preemptible" and known is not None and known.preemptible)


def asked_back_at(job: Job, held: Reservation, policy: Policy) -> Instant:
    """When a running job is asked to leave what is reserved: its grace before that begins, or once nothing protects it any more."""
    known = policy.priority_class(job)
    until = protected_until(job, known.protection) if known is not None and job.started_at is not None else 0
    return Instant(max(held.start - policy.grace(job), until))


def _of_gangs(
    snapshot: Snapshot, policy: Policy, shares: Shares, kept: RoundCache | None
) -> Iterator[tuple[JobName, Reservation]]:
    waiting = {job.name for job in snapshot.pending}
    gangs = [held for held in snapshot.in_flight.reservations if held.holder in waiting]
    if not gangs:
        return
    taken = {job.name: held for job in snapshot.jobs if (held := first_on(gangs, job.placement)) is not None}
    if not taken:
        return
    allocations = AllocationTable.of(gangs_of(snapshot, policy, ("starting", "running"), kept), shares.tree, kept)
    borrows = (borrowing_of(allocations, shares) == BORROWED).any(axis=(1, 2)).tolist()
    for holder, borrowed in zip(allocations.holders, borrows, strict=True):
        name = holder.job.name
        if name in taken and holder.priority_class.preemptible and borrowed:
            yield name, taken[name]


def first_on(reservations: Iterable[Reservation], tasks: Collection[TaskPlacement]) -> Reservation | None:
    """The reservation that begins first of those that keep some of these devices."""
    devices = _devices(tasks)
    found = [held for held in reservations if devices and not devices.isdisjoint(_devices(held.tasks))]
    return min(found, key=lambda held: (held.start, held.holder), default=None)


def can_be_gone(job: Job, policy: Policy, now: Instant, by: Instant) -> bool:
    """Whether a job that starts now could be asked to leave early enough to be gone by an instant."""
    known = policy.priority_class(job)
    asked = Instant(by - policy.grace(job))
    started = msgspec.structs.replace(job, started_at=now)
    return known is not None and known.preemptible and asked >= now and not protected(started, known.protection, asked)


def ends_by(job: Job, by: Instant) -> bool:
    """Whether its time limit ends it before it could be asked for more."""
    started_at, limit = job.started_at, job.time_limit
    return started_at is not None and limit is not None and started_at.after(limit) <= by


def has_nothing_inside(shares: Shares, queue: QueueName, charge: Charge) -> bool:
    """Whether not even a part of this would lie inside the guarantees of its queue's path."""
    return Inside(shares.tree, shares.entitled_room).part(queue, charge) == 0


def _devices(tasks: Iterable[TaskPlacement]) -> set[DeviceId]:
    return {device for task in tasks for device in task.devices}
