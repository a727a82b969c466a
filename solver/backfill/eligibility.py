"""Backfill: which jobs may start around a reservation, and what a reservation keeps from the others.

A job runs around a reservation if its time limit ends by the start of it, if it can be made to leave by then (queueing/loans), or
if it finds room beside what is kept. Work that lies inside guarantees is held back only by gangs that come before it and will
lie inside guarantees when they start. What is reserved when a round begins stays so throughout it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType

import msgspec

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.free_resources import Reserved
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.inflight import Reservation
from solver.model.quantities import Instant
from solver.model.shape import Shape, beside_of, taking
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskPlacement
from solver.placement.views import fits
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree
from solver.policy.windows import policies_ahead
from solver.queueing.demand import StartCandidate
from solver.queueing.durations import expected, expected_of
from solver.queueing.loans import Loans, can_be_gone, has_nothing_inside
from solver.quota.entitlement import Charge, Inside, QuotaHeadroom, Shares, charge_of_tasks, under_tree


@dataclass(frozen=True, slots=True)
class RunningAllocation:
    """What a job holds until it ends. A job that is being evicted is not charged for it."""

    job: Job
    tasks: tuple[TaskPlacement, ...]
    charged: bool = True

    def without(self, devices: Set[DeviceId]) -> RunningAllocation:
        """What it holds but for some devices."""
        if all(devices.isdisjoint(task.devices) for task in self.tasks):
            return self
        left = ((task, tuple(device for device in task.devices if device not in devices)) for task in self.tasks)
        return replace(self, tasks=tuple(msgspec.structs.replace(task, devices=own) for task, own in left))


KnownEnds = Sequence[tuple[RunningAllocation, Instant]]
"""Holders with a known end, each with the instant by which it has ended."""


class EndTimes:
    """When running jobs end at the latest, as far as it is known. `loans`: which of them give something back before."""

    def __init__(self, snapshot: Snapshot, loans: Loans = MappingProxyType({})) -> None:
        self._loans = loans
        self._intents = {(intent.kind, intent.job, intent.attempt): intent for intent in snapshot.in_flight.intents}
        self._now = snapshot.time
        self._expected = expected(snapshot.in_flight.durations)

    def of(self, job: Job) -> Instant | None:
        """A job asked to stop ends by that deadline, any other at its limit or when it gives back; None: not to be known.

        One without a limit ends when most of its like have, unless it has outlived them.

        A start that is not confirmed counts from when it was asked for, so that forecasts stay the same from round to round.
        """
        stop = self._intents.get(("stop", job.name, job.attempt))
        if stop is not None:
            return stop.deadline
        at_limit, lent = self._at_limit(job) or self.by_history(job), self._loans.get(job.name)
        if lent is None or lent.start <= self._now:
            return at_limit
        return lent.start if at_limit is None else min(lent.start, at_limit)

    def by_history(self, job: Job) -> Instant | None:
        """When a job without a limit is expected to end; None: it has one, or there is nothing to go by."""
        duration = expected_of(job, self._expected) if job.time_limit is None else None
        if duration is None:
            return None
        end = (self._now if job.started_at is None else job.started_at).after(duration)
        return end if end > self._now else None

    def _at_limit(self, job: Job) -> Instant | None:
        if job.time_limit is None:
            return None
        if job.started_at is not None:
            return job.started_at.after(job.time_limit)
        start = self._intents.get(("start", job.name, job.attempt))
        return (start.asked_at if start else self._now).after(job.time_limit)


def ends_in(snapshot: Snapshot, loans: Loans) -> KnownEnds:
    """Jobs that will free their devices, and when. A job that should have ended and has not holds them for ever."""
    ends, evicted = EndTimes(snapshot, loans), {intent.job for intent in snapshot.in_flight.evictions}
    holding = ((job, ends.of(job)) for job in snapshot.jobs if job.placement)
    return [
        (RunningAllocation(job, job.placement, charged=job.name not in evicted), end)
        for job, end in holding
        if end is not None and end > snapshot.time
    ]


def is_live(reservation: Reservation, room: FreeCapacity, spec: JobSpec) -> bool:
    """Whether there still is what it holds: all of its nodes take work from its holder, and all of its devices are healthy."""
    nodes = {task.node for task in reservation.tasks}
    if any(name not in room.index or not room.open_nodes[room.index[name]] for name in nodes):
        return False
    limited = {group.name: room.sets[group.nodes] for group in spec.task_groups if group.nodes}
    if any(not limited[task.group][room.index[task.node]] for task in reservation.tasks if task.group in limited):
        return False
    healthy = {gpu.id for name in nodes for gpu in room.nodes[room.index[name]].gpus if gpu.healthy}
    return all(healthy.issuperset(task.devices) for task in reservation.tasks)


def kept_for(reservations: Iterable[Reservation], jobs: Mapping[JobName, Job], ends: KnownEnds) -> Reserved:
    """What each reservation keeps now: its devices, and beside them what will not have been given back by its start."""
    kept: dict[JobName, tuple[tuple[TaskPlacement, Shape], ...]] = {}
    for reservation in reservations:
        shapes = {group.name: group.shape for group in jobs[reservation.holder].spec.task_groups}
        needs: dict[NodeName, list[TaskPlacement]] = {}
        for task in reservation.tasks:
            needs.setdefault(task.node, []).append(task)
        back = given_back(ends, reservation.start)
        kept[reservation.holder] = tuple(
            _kept_on(node, [(task, shapes[task.group]) for task in tasks], back[node])
            for node, tasks in sorted(needs.items())
        )
    return kept


def _kept_on(
    node: NodeName, needs: Sequence[tuple[TaskPlacement, Shape]], back: Counter[str]
) -> tuple[TaskPlacement, Shape]:
    devices = tuple(device for task, _ in needs for device in task.devices)
    kept = beside_of(shape for _, shape in needs) - back
    return TaskPlacement("", 0, node, devices), taking(len(devices), kept)


def given_back(ends: KnownEnds, by: Instant) -> defaultdict[NodeName, Counter[str]]:
    """By node and name what those will have given back beside GPUs that will have ended by then."""
    back = defaultdict[NodeName, Counter[str]](Counter)
    for holder, end in ends:
        shapes = {group.name: group.shape for group in holder.job.spec.task_groups}
        for task in holder.tasks if end <= by else ():
            back[task.node].update(shapes.get(task.group, Shape()).beside)
    return back


def may_backfill(end: Instant | None, start: Instant) -> bool:
    """Whether a job that ends at `end` at the latest (None: not known) is gone by the `start` of a reservation."""
    return end is not None and end <= start


def held_back(
    candidates: Sequence[StartCandidate],
    reservations: Sequence[Reservation],
    ends: KnownEnds,
    policy: Policy,
    shares: Shares,
    room: FreeCapacity,
    now: Instant,
) -> tuple[StartCandidate, ...]:
    """The candidates, each with the reservations that hold it back; alike only where these are the same. They are in order.

    Those of gangs that are no candidates yet, since they wait for another quota, hold back no work inside guarantees.
    """
    if not reservations:
        return tuple(candidates)
    order = {candidate.job.name: place for place, candidate in enumerate(candidates)}
    types = {node.name: node.gpu_type for node in room.nodes}
    strong = {
        held.holder: order[held.holder]
        for held in reservations
        if held.holder in order
        and lies_inside(
            shares_at(held.start, ends, shares_under(policy, held.start, shares), types),
            candidates[order[held.holder]].job.spec.queue,
            charge_of_tasks(held.tasks, types),
        )
    }
    entitled = _entitled(candidates, shares, room)
    known: dict[object, int] = {}
    found = []
    for place, candidate in enumerate(candidates):
        name, limit = candidate.job.name, policy.time_limit(candidate.job)
        end = None if limit is None else now.after(limit)
        borrows = candidate.job.phase == "pending" and all(
            has_nothing_inside(shares, candidate.job.spec.queue, option.wanted) for option in candidate.options
        )
        against = frozenset(
            held.holder
            for held in reservations
            if held.holder != name
            and not may_backfill(end, max(held.start, now))
            and not (borrows and can_be_gone(candidate.job, policy, now, held.start))
            and (name not in entitled or strong.get(held.holder, place) < place)
        )
        alike = known.setdefault((candidate.likeness, against), len(known))
        found.append(replace(candidate, likeness=alike, against=candidate.against | against))
    return tuple(found)


def shares_under(policy: Policy, at: Instant, shares: Shares) -> Shares:
    """The same use under the quota that holds at an instant to come."""
    then = next((known for since, known in reversed(policies_ahead(policy)) if since <= at), None)
    return shares if then is None else under_tree(shares, QueueTree.of(then), (), shares.cluster.gpus)


def lies_inside(shares: Shares, queue: QueueName, charge: Charge) -> bool:
    """Whether a charge lies wholly inside the guarantees of its queue's path, beside what the queues hold now."""
    return Inside(shares.tree, shares.entitled_room).part(queue, charge) == sum(charge.values())


def shares_at(at: Instant, ends: KnownEnds, shares: Shares, types: Mapping[NodeName, GpuType]) -> Shares:
    """The shares beside what will still be held at an instant."""
    return shares.without(
        (holder.job.spec.queue, charge_of_tasks(holder.tasks, types))
        for holder, end in ends
        if holder.charged and end <= at
    )


def _entitled(candidates: Iterable[StartCandidate], shares: Shares, room: FreeCapacity) -> set[JobName]:
    """Candidates inside guarantees, in order and all together, at full size; those that could not start anyway do not count."""
    inside, found = QuotaHeadroom(shares).entitled, set()
    able: dict[int, bool] = {}
    for candidate in candidates:
        queue, wanted = candidate.job.spec.queue, [option.wanted for option in candidate.options]
        if all(sum(charge.values()) and inside.part(queue, charge) == sum(charge.values()) for charge in wanted):
            if candidate.likeness not in able:
                able[candidate.likeness] = any(fits(room, candidate, option) for option in candidate.options)
            if able[candidate.likeness]:
                inside.take(queue, wanted[0])
                found.add(candidate.job.name)
    return found
