"""What is free of a place that a job gets once others are protected no more: it is kept, like a gang's reservation.

Else borrowed work could start on it, which what protects running jobs then shields anew, and the start that the job was told of
would slip. Work that is gone by that start, or can be asked to leave in time, runs there meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from solver.backfill.eligibility import lies_inside
from solver.backfill.reservations import may_have_reservations
from solver.capacity.free_capacity import FreeCapacity
from solver.model.cluster import DeviceId, GpuType
from solver.model.inflight import Reservation
from solver.model.quantities import Instant
from solver.model.workload import JobName, TaskPlacement
from solver.policy.policy import Policy
from solver.queueing.demand import StartCandidate
from solver.quota.entitlement import Shares
from solver.round.protections import LaterStart


@dataclass(frozen=True, slots=True)
class AwaitedPlaces:
    """What a round leaves, `now`. `known`: what was kept before it, on which jobs may run until then."""

    policy: Policy
    room: FreeCapacity
    shares: Shares
    now: Instant
    known: Sequence[Reservation]

    def beside(
        self, kept: Iterable[Reservation], waiting: Sequence[StartCandidate], later: Mapping[JobName, LaterStart]
    ) -> tuple[Reservation, ...]:
        """Reservations with those of jobs inside guarantees for which others leave, where that is before what is kept for them.

        They come before gangs outside guarantees, for as many of which as before is anything kept.
        """
        found, most = {held.holder: held for held in kept}, self.policy.scheduling.reservations.per_gpu_type
        able = may_have_reservations(waiting, self.shares.tree) if most and later else ()
        asked = [candidate for candidate in waiting if candidate.job.name in later or candidate.job.name in found]
        outside = {candidate.job.name for candidate in asked if not self._is_inside(candidate)} if able else set()
        for candidate in (known for known in able if known.job.name in later):
            name = candidate.job.name
            own, place = found.get(name), self._place(candidate, later[name])
            if place is None or name in outside or (own is not None and own.start <= place.start):
                continue
            types = self._types(place)
            rivals = [held for held in found.values() if held.holder != name and types & self._types(held)]
            full = len(rivals) >= most
            in_the_way = [held.holder for held in rivals if full or _meet(place, held)]
            if outside.issuperset(in_the_way):
                found = {holder: held for holder, held in found.items() if holder not in in_the_way} | {name: place}
        return tuple(sorted(found.values(), key=lambda held: held.holder))

    def _is_inside(self, candidate: StartCandidate) -> bool:
        return any(lies_inside(self.shares, candidate.job.spec.queue, option.charge) for option in candidate.options)

    def _place(self, candidate: StartCandidate, later: LaterStart) -> Reservation | None:
        """The part of it that is free, or was kept before; None where there is none."""
        last = self.now.after(self.policy.scheduling.eta_horizon)
        if later.start is None or later.gone is None or not self.now < later.gone <= last:
            return None
        name, placed = candidate.job.name, later.start.placed.tasks
        nodes = {self.room.index[task.node] for task in placed}
        free = {device for node in nodes for device in self.room.free_devices[node]}
        free |= {d for held in self.known if held.holder == name for task in held.tasks for d in task.devices}
        tasks = tuple(_free_of(placed, free))
        limit = self.policy.time_limit(candidate.job)
        ends = None if limit is None else later.gone.after(limit)
        return Reservation(name, tasks, later.gone, ends) if tasks else None

    def _types(self, held: Reservation) -> set[GpuType]:
        nodes, index = self.room.nodes, self.room.index
        return {nodes[index[task.node]].gpu_type for task in held.tasks if task.node in index}


def _free_of(tasks: Iterable[TaskPlacement], free: set[DeviceId]) -> Iterator[TaskPlacement]:
    for task in tasks:
        devices = tuple(device for device in task.devices if device in free)
        if devices:
            yield msgspec.structs.replace(task, devices=devices)


def _meet(one: Reservation, other: Reservation) -> bool:
    mine = {device for task in one.tasks for device in task.devices}
    return any(not mine.isdisjoint(task.devices) for task in other.tasks)
