"""Devices that are reserved for a waiting gang, lent until it starts to work that can be made to leave by then.

Such work has nothing inside a guarantee, may be preempted, and what protects it ends, grace included, before the gang starts
(DESIGN section 5: "or if they can be gone by T").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from solver.model.cluster import DeviceId
from solver.model.inflight import Reservation
from solver.model.quantities import Instant
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.policy.policy import Policy
from solver.quota.allocation_table import AllocationTable
from solver.quota.borrowing import borrowing_of
from solver.quota.entitlement import Charge, Inside, Shares
from solver.quota.victims import BORROWED, gangs_of, protected

Loans = Mapping[JobName, Reservation]
"""Jobs that run on what is reserved for another, and that reservation; of several the first to begin."""


def loans_in(snapshot: Snapshot, policy: Policy, shares: Shares, kept: RoundCache | None = None) -> Loans:
    """The running and starting jobs that have to give back what they hold."""
    waiting = {job.name for job in snapshot.pending}
    gangs = [held for held in snapshot.in_flight.reservations if held.holder in waiting]
    taken = {job.name: held for job in snapshot.jobs if (held := first_on(gangs, job.placement)) is not None}
    if not taken:
        return {}
    allocations = AllocationTable.of(gangs_of(snapshot, policy, ("starting", "running"), kept), shares.tree, kept)
    borrows = (borrowing_of(allocations, shares) == BORROWED).any(axis=(1, 2)).tolist()
    return {
        name: taken[name]
        for holder, borrowed in zip(allocations.holders, borrows, strict=True)
        if (name := holder.job.name) in taken and holder.priority_class.preemptible and borrowed
    }


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
