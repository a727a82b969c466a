"""The world after a round as far as it can be known: who ends when at the latest, and what is free then."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from solver.declared import declared_in, kept_by, kept_from
from solver.greedy import greedy
from solver.holds import Ends, Holder, held_back, is_live, kept_for
from solver.plan.estimates import EarliestStart, EndUnknown
from solver.rules.demand import Candidate, in_order
from solver.rules.dominance import Beside, beside_wanted
from solver.rules.durations import Expected, expected, expected_of
from solver.rules.entitlement import Charge, Shares
from solver.rules.fairshare import demand_of, with_fair_shares
from solver.rules.lending import live_gpus
from solver.rules.loans import first_on, has_nothing_inside, loans_in
from solver.rules.options import Option
from solver.rules.policy import Policy
from solver.rules.strict import behind_nobody
from solver.rules.tree import Line
from solver.rules.users import UserLine
from solver.starts import Start
from solver.world.cluster import DeviceId, GpuType
from solver.world.inflight import Reservation
from solver.world.parts import leaving_part
from solver.world.pledges import gpus_of
from solver.world.quantities import Instant
from solver.world.room import Room
from solver.world.shape import Shape
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, JobName, JobSpec, QueueName, TaskPlacement

ROUNDS_MAX = 200
"""Instants played ahead, beside those at which a forecast start ends. Where more jobs run, every n-th end is one, so that
forecasts are late by a few ends rather than the round by seconds."""


@dataclass(slots=True)
class World:
    """What is held and what is free at one instant of the future.

    `wanted_behind`: demand of those that are not played ahead. `openings`: when further GPU types open to somebody.
    `endless`: who holds what for nobody knows how long. `expected_ends`: which ends only history speaks for.
    """

    policy: Policy
    shares: Shares
    room: Room
    capacity: Charge
    used: dict[Line, int]
    used_by_user: dict[UserLine, int]
    held_beside: dict[QueueName, Beside]
    jobs: dict[JobName, Job] = field(default_factory=dict)
    reservations: dict[JobName, Reservation] = field(default_factory=dict)
    declared: Sequence[Reservation] = ()
    wanted_behind: Sequence[tuple[QueueName, Charge]] = ()
    holders: dict[JobName, Holder] = field(default_factory=dict)
    ends: list[tuple[Instant, JobName]] = field(default_factory=list)
    openings: list[Instant] = field(default_factory=list)
    expected: Expected = field(default_factory=dict)
    expected_ends: list[Instant] = field(default_factory=list)
    endless: Counter[tuple[frozenset[GpuType], bool]] = field(default_factory=Counter)

    @classmethod
    def after_round(
        cls,
        snapshot: Snapshot,
        policy: Policy,
        shares: Shares,
        starts: Sequence[Start],
        begins: Mapping[JobName, Instant],
        after: Room,
    ) -> World:
        """The world as a round leaves it. What is promised to somebody does not become free when its holder leaves.

        Of a divided GPU `after` itself counts what is promised.
        """
        used, by_user = dict(shares.used), dict(shares.users.used)
        beside = dict(shares.cluster.held_beside)
        world = cls(policy, shares, after.copy(), live_gpus(snapshot), used, by_user, beside)
        world.jobs = {job.name: job for job in snapshot.jobs}
        world.declared, world.expected = declared_in(snapshot), expected(snapshot.in_flight.durations)
        gangs = [held for held in snapshot.in_flight.reservations if not held.is_declared]
        ends = Ends(snapshot, loans_in(snapshot, policy, shares) if gangs else {})
        nominations = {intent.job: intent.tasks for intent in snapshot.in_flight.nominations}
        evicted = {intent.job for intent in snapshot.in_flight.evictions}
        promised = {
            device
            for tasks in (*nominations.values(), *(start.placed.tasks for start in starts))
            for task in tasks
            for device in (*task.devices, *gpus_of(task))
        }
        promised -= {gpu.device for gpus in after.shared.values() for gpu in gpus}
        for job in snapshot.jobs:
            if job.placement:
                holder, end = Holder(job, _except(job.placement, promised), job.name not in evicted), ends.of(job)
                moves = job.name in nominations
                world._hold(leaving_part(job.name) if moves else job.name, holder, end, snapshot.time)
                world.expected_ends += [end] if end and end == ends.by_history(job) else []
            if job.name in nominations:
                begin = begins.get(job.name, snapshot.time)
                world._hold(job.name, Holder(job, nominations[job.name]), world._end_of(job, begin), begin)
        for start in starts:
            begin = begins.get(start.candidate.job.name, snapshot.time)
            world._begin(start, begin, first_on(gangs, start.placed.tasks))
        return world

    def instants(self, until: Instant, stops: Iterable[Instant] = ()) -> Iterator[Instant]:
        """Let jobs end and types open, and say when, until nothing of the kind happens any more before `until`.

        What ends up to a stop does so before it is passed.
        """
        stride, ahead = -(-len(self.ends) // ROUNDS_MAX), sorted(stops)
        while (now := self._next_instant()) is not None and now <= until:
            if self.openings and self.openings[0] == now:
                self.openings.pop(0)
                yield now
                continue
            stop = next((at for at in ahead if at >= now), until)
            for _ in range(stride):
                if self.ends and self.ends[0][0] <= min(stop, until):
                    now = self._end_next()
            while self.ends and self.ends[0][0] == now:
                self._end_next()
            yield now

    def _next_instant(self) -> Instant | None:
        return min((*self.openings[:1], *(end for end, _ in self.ends[:1])), default=None)

    def pass_to(self, at: Instant) -> bool:
        """Let jobs end and types open up to an instant; returns whether any did."""
        known = len(self.ends) + len(self.openings)
        while self.ends and self.ends[0][0] <= at:
            self._end_next()
        self.openings = [opening for opening in self.openings if opening > at]
        return len(self.ends) + len(self.openings) < known

    def round(self, waiting: Sequence[Candidate], now: Instant) -> tuple[Start, ...]:
        """Who of those that wait starts now."""
        if not self._able(waiting):
            return ()
        admitted = with_options(waiting)
        wanted = [*demand_of(admitted), *self.wanted_behind]
        shares = with_fair_shares(self.shares_now(), self.capacity, wanted)
        ordered: Sequence[Candidate] = in_order(admitted, self.policy, shares, now)
        declared = [held for held in self.declared if not held.is_over(now)]
        held = self.reservations.values()
        live = [known for known in held if is_live(known, self.room, self.jobs[known.holder].spec)]
        if live or declared:
            self.room.reserved = kept_by(declared, self.room, self._known_ends(), now)
            ordered = kept_from(ordered, declared, self.policy, shares.tree, now)
        if live:
            kept = kept_for(live, self.jobs, self._known_ends())
            self.room.reserved = {**self.room.reserved, **kept}
            ordered = held_back(ordered, live, self._known_ends(), self.policy, shares, self.room, now)
        able = behind_nobody(ordered, self._able(ordered))
        starts = greedy(able, self.room, shares) if able else ()
        for start in starts:
            self._begin(start, now)
        return starts

    def _able(self, waiting: Iterable[Candidate]) -> set[int]:
        """Alikes for which enough GPUs are free somewhere."""
        first = {candidate.likeness: candidate for candidate in waiting}
        return {likeness for likeness, candidate in first.items() if has_gpus(candidate, self.room)}

    def shares_now(self) -> Shares:
        """The shares beside what is held at this instant."""
        users = replace(self.shares.users, used=dict(self.used_by_user))
        cluster = replace(self.shares.cluster, held_beside=dict(self.held_beside))
        return replace(self.shares.holding(dict(self.used)), users=users, cluster=cluster)

    def _known_ends(self) -> list[tuple[Holder, Instant]]:
        return [(self.holders[name], end) for end, name in self.ends]

    def end_unknown(self, candidate: Candidate) -> EndUnknown | None:
        """Who stands in the way of saying when a job could start; None: nobody."""
        wanted = {gpu_type for option in candidate.options for gpu_type in option.gpu_types}
        counts = {
            overdue: sum(
                jobs
                for (held, is_overdue), jobs in self.endless.items()
                if is_overdue == overdue and (None in wanted or held & wanted)
            )
            for overdue in (False, True)
        }
        return EndUnknown(counts[False], counts[True]) if any(counts.values()) else None

    def _begin(self, start: Start, now: Instant, lent: Reservation | None = None) -> None:
        """`lent`: on what is reserved for another, which it gives back if it did not take it by right."""
        job, end = start.candidate.job, self._end_of(start.candidate.job, now)
        if lent and (end is None or end > lent.start) and has_nothing_inside(self.shares, start.queue, start.charge):
            end = lent.start
        self.reservations.pop(job.name, None)
        for gpu_type, milli in start.charge.items():
            self._charge(job, gpu_type, milli)
        self._charge_beside(job.spec, 1)
        self._hold(job.name, Holder(job, start.placed.tasks), end, now)

    def _end_of(self, job: Job, start: Instant) -> Instant | None:
        limit = self.policy.time_limit(job)
        if limit is not None:
            return start.after(limit)
        duration = expected_of(job, self.expected)
        if duration is None:
            return None
        self.expected_ends.append(start.after(duration))
        return start.after(duration)

    def start_at(self, at: Instant) -> EarliestStart:
        """What to say of a start at an instant: whether it takes history's word for an end before it."""
        return EarliestStart(at, by_history=any(end <= at for end in self.expected_ends))

    def _hold(self, name: JobName, holder: Holder, end: Instant | None, now: Instant) -> None:
        if end is None or end <= now:
            self.endless[frozenset(map(self._type_at, holder.tasks)), end is not None] += 1
        else:
            self.holders[name] = holder
            heapq.heappush(self.ends, (end, name))

    def _end_next(self) -> Instant:
        now, name = heapq.heappop(self.ends)
        holder = self.holders.pop(name)
        shapes = {group.name: group.shape for group in holder.job.spec.task_groups}
        for task in holder.tasks:
            self.room.give_back(task, shapes.get(task.group, Shape()))
            if holder.charged:
                self._charge(holder.job, self._type_at(task), -task.gpus)
        if holder.charged:
            self._charge_beside(holder.job.spec, -1)
        return now

    def _charge(self, job: Job, gpu_type: GpuType, milli: int) -> None:
        for line in self.shares.tree.lines(job.spec.queue, gpu_type):
            self.used[line] = self.used.get(line, 0) + milli
        for user_line in self.shares.users.lines(job, (gpu_type,)):
            self.used_by_user[user_line] = self.used_by_user.get(user_line, 0) + milli

    def _charge_beside(self, spec: JobSpec, times: int) -> None:
        self.held_beside[spec.queue] = self.held_beside.get(spec.queue, Beside()).plus(beside_wanted(spec), times)

    def _type_at(self, task: TaskPlacement) -> GpuType:
        node = self.room.index.get(task.node)
        return GpuType("") if node is None else self.room.nodes[node].gpu_type


def _except(tasks: Iterable[TaskPlacement], promised: set[DeviceId]) -> tuple[TaskPlacement, ...]:
    return tuple(
        task
        if promised.isdisjoint(task.devices)
        else msgspec.structs.replace(task, devices=tuple(device for device in task.devices if device not in promised))
        for task in tasks
    )


def with_options(candidates: Iterable[Candidate]) -> list[tuple[Job, tuple[Option, ...]]]:
    """The jobs, each with its options, as they are counted and put in order."""
    return [(candidate.job, candidate.options) for candidate in candidates]


def has_gpus(candidate: Candidate, room: Room) -> bool:
    """Necessary, not sufficient, and much cheaper than to look for a place."""

    groups = candidate.job.spec.task_groups

    def has(option: Option) -> bool:
        parts = zip(groups, option.shapes, option.gpu_types, strict=True)
        return all(room.offer(shape, gpu_type).total >= group.least for group, shape, gpu_type in parts)

    return any(has(option) for option in candidate.options)
