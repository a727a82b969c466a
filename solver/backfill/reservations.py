"""Which gangs that can't start have devices kept for them after a round, and from when.

On each GPU type the first K of the policy: work that lies inside guarantees beside what has no known end, then gangs that have a
reservation already, then in the order of the round. Each is held at its earliest start, beside what is held for those before
it. A reservation stays as it is until its gang starts, unless it became impossible, or could start earlier by a fifth of the
wait that is left. Gangs that a max holds back have none: the room would stay idle for a queue that may not use it. Nor
have those of a queue that takes turns, since theirs comes, and those behind another of their strict queue, which they may not pass.
(EASY backfilling with several reservations; D. Lifka, "The ANL/IBM SP scheduling system", 1995.)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from solver.backfill.capacity_timeline import CapacityTimeline
from solver.backfill.eligibility import is_live, lies_inside, may_backfill
from solver.backfill.future_state import FutureState
from solver.backfill.reservation_documents import is_for, kept_by
from solver.capacity.free_capacity import FreeCapacity
from solver.model.cluster import GpuType
from solver.model.inflight import Reservation
from solver.model.quantities import Instant
from solver.model.shape import MigShape, SharedShape
from solver.model.workload import JobName, TaskPlacement
from solver.placement.capacity_prefilter import CapacityPrefilter
from solver.placement.placement import place
from solver.placement.starts import held_by
from solver.plan.plan import Reserve, Step, Unreserve
from solver.policy.policy import Policy
from solver.policy.precedence import ordering_of
from solver.policy.tree import QueueTree
from solver.queueing.demand import StartCandidate
from solver.queueing.fallback import fallback_opens
from solver.queueing.quota import lets_start
from solver.queueing.strict_queues import first_in_line
from solver.quota.entitlement import Charge, QuotaHeadroom, Shares
from solver.quota.options import Option
from solver.quota.users import UserRoom

CONSIDERED_MAX = 20
"""Waiting gangs for which an earliest start is looked for, in the order described above."""

MOVES_FOR = 5
"""A reservation moves where it saves at least one part in so many of the wait that is left."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """Where the queues stand from an instant until something else ends, and which gangs find enough whole GPUs then."""

    at: Instant
    shares: Shares
    able: frozenset[JobName]


@dataclass(frozen=True, slots=True)
class _Booked:
    """A reservation that stands, with its gang and how that is served."""

    reservation: Reservation
    candidate: StartCandidate
    option: Option


def reservations_after(
    world: FutureState, policy: Policy, waiting: Sequence[StartCandidate], known: Iterable[Reservation], now: Instant
) -> tuple[Reservation, ...]:
    """The reservations that hold once a round's starts have come true. `world`: as the round leaves it."""
    most = policy.scheduling.reservations.per_gpu_type
    tree = world.shares.tree
    able = may_have_reservations(waiting, tree)
    if not most or not able:
        return ()
    by_holder, until = {held.holder: held for held in known}, now.after(policy.scheduling.eta_horizon)
    last = world.shares_by(until)
    standing = {
        c.job.name: (not lies_inside(last, c.job.spec.queue, c.options[0].charge), c.job.name not in by_holder)
        for c in able
    }
    considered = sorted(able, key=lambda candidate: standing[candidate.job.name])[:CONSIDERED_MAX]
    stops = sorted({held.start for held in by_holder.values()})
    world = world.copy()
    world.openings = list(world.expect_changes(until))
    rooms, played = CapacityTimeline(world, now, until, stops), world.copy()
    instants, moments = [], {}
    enough = CapacityPrefilter(considered, played.room, fresh=False)
    for at in chain([now], played.instants(until, stops)):
        instants.append(at)
        played.change_policy(at)
        able_then = frozenset(candidate.job.name for candidate in enough.now())
        if able_then or _begins(stops, at, played.next_instant(until)):
            moments[at] = _Moment(at, played.shares_now(), able_then)
    book = _Book(policy, tree, instants, moments, rooms, world.declared)
    for candidate in considered:
        book.enter(candidate, by_holder.get(candidate.job.name), most)
    return tuple(sorted((booked.reservation for booked in book.booked), key=lambda held: held.holder))


def may_have_reservations(waiting: Sequence[StartCandidate], tree: QueueTree) -> list[StartCandidate]:
    """Those of jobs that wait for which whole GPUs may be kept; neither turns nor a strict queue let others before them."""
    return [c for c in first_in_line(waiting) if _is_whole(c) and ordering_of(tree, c.job.spec.queue).turns is None]


def _begins(starts: Sequence[Instant], at: Instant, following: Instant | None) -> bool:
    """Whether a reservation begins before anything further happens. `starts` ascend."""
    place = bisect_left(starts, at)
    return place < len(starts) and (following is None or starts[place] < following)


def reserving_steps(
    before: Iterable[Reservation], after: Iterable[Reservation], provided: Iterable[JobName]
) -> Iterable[Step]:
    """What to make true so that `after` holds; what was held for those `provided` for goes with their binds and promises."""
    known, wanted = {held.holder: held for held in before}, {held.holder: held for held in after}
    for holder in sorted(known.keys() - wanted.keys() - set(provided)):
        yield Unreserve(holder)
    for holder, held in sorted(wanted.items()):
        if known.get(holder) != held:
            yield Reserve(holder, held.tasks, held.start, held.until)


@dataclass(slots=True)
class _Book:
    """Reservations made so far, over what is free when: `rooms`.

    `moments`: those of the instants at which something ends when a gang could start, and of the last before a reservation begins.
    """

    policy: Policy
    tree: QueueTree
    instants: Sequence[Instant]
    moments: Mapping[Instant, _Moment]
    rooms: CapacityTimeline
    declared: Sequence[Reservation] = ()
    booked: list[_Booked] = field(default_factory=list)
    _count: Counter[GpuType] = field(default_factory=Counter)

    def enter(self, candidate: StartCandidate, known: Reservation | None, most: int) -> None:
        """Keep devices for a gang, where fewer than `most` have a reservation on the types that it would use."""
        options = [o for o in candidate.options if all(self._count[gpu_type] < most for gpu_type in o.charge)]
        kept = self._kept(candidate, known, options) if known is not None else None
        found = self._earliest(candidate, options, kept.reservation.start if kept else None)
        booked = found if found and (kept is None or self._is_worth_moving(kept, found)) else kept
        if booked is not None:
            self.booked.append(booked)
            self._count.update(dict.fromkeys(booked.option.charge, 1))

    @property
    def _now(self) -> Instant:
        return self.instants[0]

    def _is_worth_moving(self, kept: _Booked, found: _Booked) -> bool:
        left = kept.reservation.start - self._now
        return (kept.reservation.start - found.reservation.start) * MOVES_FOR >= left

    def _kept(self, candidate: StartCandidate, known: Reservation, options: Sequence[Option]) -> _Booked | None:
        """The reservation as it is, if the gang can still start there and then."""
        moment = self._moment(known.start)
        if known.start <= self._now or moment is None or not is_live(known, self.rooms.world.room, candidate.job.spec):
            return None
        room = self._room(candidate, moment, known.start)
        for option in options:
            if (
                _is_served_so(known, candidate, option, room)
                and self._is_lawful(candidate, option, moment, known.start)
                and room.has_free(held_by(candidate.job.spec, option, known.tasks))
            ):
                return _Booked(known, candidate, option)
        return None

    def _earliest(self, candidate: StartCandidate, options: Sequence[Option], before: Instant | None) -> _Booked | None:
        """At the first instant at which it can start anywhere, `before` an instant where one is given."""
        for at in self._instants(candidate, options):
            if before is not None and at >= before:
                return None
            moment = self._moment(at)
            if moment is None or candidate.job.name not in moment.able:
                continue
            for option in options:
                if not self._is_lawful(candidate, option, moment, at):
                    continue
                room = self._room(candidate, moment, at)
                placed = place(room, candidate.job.spec, option)
                if placed is not None and not _in_mig_mode(room, placed.tasks):
                    found = Reservation(candidate.job.name, placed.tasks, at, self._until(candidate, at))
                    return _Booked(found, candidate, option)
        return None

    def _instants(self, candidate: StartCandidate, options: Sequence[Option]) -> Sequence[Instant]:
        """When something ends, or a further type opens to the gang."""
        ends = {held.until for held in (*self.declared, *(booked.reservation for booked in self.booked))}
        last = self._now.after(self.policy.scheduling.eta_horizon)
        opens = {fallback_opens(candidate.job, self.policy) for option in options if option.inside_only}
        known = {*self.instants} | {at for at in ends | opens if at is not None and at <= last}
        return sorted(at for at in known if at > self._now)

    def _moment(self, at: Instant) -> _Moment | None:
        return self.moments.get(self.instants[max(0, bisect_right(self.instants, at) - 1)])

    def _until(self, candidate: StartCandidate, start: Instant) -> Instant | None:
        limit = self.policy.time_limit(candidate.job)
        return None if limit is None else start.after(limit)

    def _beside(self, start: Instant, until: Instant | None) -> Iterable[_Booked]:
        """The reservations of gangs that would run at the same time."""
        for booked in self.booked:
            other = booked.reservation
            if not (may_backfill(until, other.start) or may_backfill(other.until, start)):
                yield booked

    def _room(self, candidate: StartCandidate, moment: _Moment, start: Instant) -> FreeCapacity:
        """What is free for a gang that starts at an instant, beside all that is kept for others."""
        free, until = self.rooms.at(moment.at), self._until(candidate, start)
        room = free.copy()
        for booked in self._beside(start, until):
            room.occupy(held_by(booked.candidate.job.spec, booked.option, booked.reservation.tasks))
        closed = [
            held
            for held in self.declared
            if not may_backfill(until, held.start)
            and not may_backfill(held.until, start)
            and not is_for(held, candidate.job, self.policy, self.tree)
        ]
        for kept in kept_by(closed, free, (), start).values():
            room.occupy(kept, is_new=False)
        return room

    def _is_lawful(self, candidate: StartCandidate, option: Option, moment: _Moment, at: Instant) -> bool:
        """Whether nothing but room could keep the gang from starting then, beside those that are kept room for."""
        headroom, users = QuotaHeadroom(moment.shares), UserRoom(moment.shares.users)
        for booked in self._beside(at, self._until(candidate, at)):
            headroom.take(booked.candidate.job.spec.queue, booked.option.charge)
            users.take(booked.candidate.job, booked.option.charge)
        early = option.inside_only and at < fallback_opens(candidate.job, self.policy)
        return lets_start(candidate.job, option, headroom, users, inside_only=candidate.inside_only or early)


def _is_served_so(known: Reservation, candidate: StartCandidate, option: Option, room: FreeCapacity) -> bool:
    """Whether what is kept is for a gang of this size, on the types of the option."""
    sizes = Counter(task.group for task in known.tasks)
    gpus = {group.name: shape.gpus for group, shape in zip(candidate.job.spec.task_groups, option.shapes, strict=True)}
    if any(len(task.devices) != gpus[task.group] for task in known.tasks):
        return False  # only what is free of it is kept
    used = {task.group: room.nodes[room.index[task.node]].gpu_type for task in known.tasks if task.devices}
    return all(
        sizes[group.name] == group.least and (gpu_type is None or not group.least or used.get(group.name) == gpu_type)
        for group, gpu_type in zip(candidate.job.spec.task_groups, option.gpu_types, strict=True)
    )


def _total(charge: Charge) -> int:
    return sum(charge.values())


def _is_whole(candidate: StartCandidate) -> bool:
    """Whether it uses GPUs, and all of them whole: parts of GPUs are not reserved."""
    shapes = [shape for option in candidate.options for shape in option.shapes]
    return all(not isinstance(shape, SharedShape | MigShape) for shape in shapes) and all(
        _total(option.charge) for option in candidate.options
    )


def _in_mig_mode(room: FreeCapacity, tasks: Iterable[TaskPlacement]) -> bool:
    """Whether some of the devices would have to be made whole first."""
    return any(
        gpu.instances is not None and gpu.id in task.devices
        for task in tasks
        for gpu in room.nodes[room.index[task.node]].gpus
    )
