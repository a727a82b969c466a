"""When the first waiting jobs could start: the rounds to come, played ahead as if what runs ends at its limit and nobody arrives.

Each instant at which something ends gets a greedy round of its own, by the rules of a real one. So where no program
is needed to do better than greedy, and every job runs exactly to its limit, the forecast is what happens.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from solver.greedy import greedy
from solver.plan.estimates import AnyEstimate, BeyondHorizon, EarliestStart, EndUnknown, NoEndHelps
from solver.rules.demand import Candidate, in_order
from solver.rules.dominance import Beside, beside_wanted
from solver.rules.entitlement import Charge, Shares
from solver.rules.fairshare import demand_of, live_gpus, with_fair_shares
from solver.rules.options import Option
from solver.rules.policy import Policy
from solver.rules.strict import behind_nobody
from solver.rules.tree import Line
from solver.rules.users import UserLine
from solver.starts import Start
from solver.world.cluster import DeviceId, GpuType
from solver.world.quantities import Instant
from solver.world.room import Room
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, JobName, JobSpec, QueueName, Shape, TaskPlacement

JOBS_MAX = 20
"""Waiting jobs that are played ahead, the first in the order. Those behind them may run around them: nothing is held yet."""

ROUNDS_MAX = 200
"""Instants played ahead, beside those at which a forecast start ends. Where more jobs run, every n-th end is one, so that
forecasts are late by a few ends rather than the round by seconds."""


def estimates(
    snapshot: Snapshot,
    policy: Policy,
    shares: Shares,
    waiting: Sequence[Candidate],
    starts: Sequence[Start],
    begins: Mapping[JobName, Instant],
    after: Room,
) -> dict[JobName, AnyEstimate]:
    """When each of the first waiting jobs could start. `waiting` is in order; `after` is the room that `starts` leave.

    Who is evicted is asked to leave in the snapshot already. `begins`: when those begin that must wait for somebody to leave.
    """
    first = waiting[:JOBS_MAX]
    if not first:
        return {}
    world = _World.after_round(snapshot, policy, shares, starts, begins, after)
    world.wanted_behind = _by_queue(demand_of(_with_options(waiting[JOBS_MAX:])))
    horizon = policy.scheduling.eta_horizon
    found: dict[JobName, AnyEstimate] = {}
    for now in world.instants(snapshot.time.after(horizon)):
        left = [candidate for candidate in first if candidate.job.name not in found]
        if not left:
            break
        for start in world.round(left, now):
            found[start.candidate.job.name] = EarliestStart(now)
    otherwise = BeyondHorizon(horizon) if world.ends else NoEndHelps()
    return {
        candidate.job.name: found.get(candidate.job.name) or world.end_unknown(candidate) or otherwise
        for candidate in first
    }


@dataclass(frozen=True, slots=True)
class _Holder:
    """What a job holds until it ends; who is being evicted is not charged for it."""

    job: Job
    tasks: tuple[TaskPlacement, ...]
    charged: bool = True


@dataclass(slots=True)
class _World:
    """What is held and what is free at one instant of the future.

    `wanted_behind`: demand of those that are not played ahead. `endless`: who holds what for nobody knows how long.
    """

    policy: Policy
    shares: Shares
    room: Room
    capacity: Charge
    used: dict[Line, int]
    used_by_user: dict[UserLine, int]
    held_beside: dict[QueueName, Beside]
    wanted_behind: Sequence[tuple[QueueName, Charge]] = ()
    holders: dict[JobName, _Holder] = field(default_factory=dict)
    ends: list[tuple[Instant, JobName]] = field(default_factory=list)
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
    ) -> _World:
        """The world as a round leaves it. What is promised to somebody does not become free when its holder leaves.

        Of a divided GPU `after` itself counts what is promised.
        """
        used, by_user = dict(shares.used), dict(shares.users.used)
        beside = dict(shares.cluster.held_beside)
        world = cls(policy, shares, after.copy(), live_gpus(snapshot), used, by_user, beside)
        ends = _Ends(snapshot)
        nominations = {intent.job: intent.tasks for intent in snapshot.in_flight.nominations}
        evicted = {intent.job for intent in snapshot.in_flight.evictions}
        promised = {
            device
            for tasks in (*nominations.values(), *(start.placed.tasks for start in starts))
            for task in tasks
            for device in task.devices
        }
        promised -= {gpu.device for gpus in after.shared.values() for gpu in gpus}
        for job in snapshot.jobs:
            if job.placement:
                holder = _Holder(job, _except(job.placement, promised), charged=job.name not in evicted)
                world._hold(job.name, holder, ends.of(job), snapshot.time)
            elif job.name in nominations:
                begin = begins.get(job.name, snapshot.time)
                world._hold(job.name, _Holder(job, nominations[job.name]), world._end_of(job, begin), begin)
        for start in starts:
            world._begin(start, begins.get(start.candidate.job.name, snapshot.time))
        return world

    def instants(self, until: Instant) -> Iterator[Instant]:
        """Let jobs end, and say when, until nothing ends any more before `until`."""
        stride = -(-len(self.ends) // ROUNDS_MAX)
        while self.ends and self.ends[0][0] <= until:
            now = self.ends[0][0]
            for _ in range(stride):
                if self.ends and self.ends[0][0] <= until:
                    now = self._end_next()
            while self.ends and self.ends[0][0] == now:
                self._end_next()
            yield now

    def round(self, waiting: Sequence[Candidate], now: Instant) -> tuple[Start, ...]:
        """Who of those that wait starts now."""
        admitted = _with_options(waiting)
        wanted = [*demand_of(admitted), *self.wanted_behind]
        users = replace(self.shares.users, used=dict(self.used_by_user))
        cluster = replace(self.shares.cluster, held_beside=dict(self.held_beside))
        shares = replace(self.shares.holding(dict(self.used)), users=users, cluster=cluster)
        shares = with_fair_shares(shares, self.capacity, wanted)
        ordered = in_order(admitted, self.policy, shares, now)
        able = behind_nobody(ordered, {known.likeness for known in ordered if _has_gpus(known, self.room)})
        starts = greedy(able, self.room, shares) if able else ()
        for start in starts:
            self._begin(start, now)
        return starts

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

    def _begin(self, start: Start, now: Instant) -> None:
        job = start.candidate.job
        for gpu_type, milli in start.charge.items():
            self._charge(job, gpu_type, milli)
        self._charge_beside(job.spec, 1)
        self._hold(job.name, _Holder(job, start.placed.tasks), self._end_of(job, now), now)

    def _end_of(self, job: Job, start: Instant) -> Instant | None:
        limit = self.policy.time_limit(job)
        return None if limit is None else start.after(limit)

    def _hold(self, name: JobName, holder: _Holder, end: Instant | None, now: Instant) -> None:
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


class _Ends:
    """When jobs that hold something end at the latest, as far as anybody knows."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._intents = {(intent.kind, intent.job, intent.attempt): intent for intent in snapshot.in_flight.intents}
        self._now = snapshot.time

    def of(self, job: Job) -> Instant | None:
        """A job asked to stop ends by that deadline, any other at its limit; None: not to be known.

        A start that is not confirmed counts from when it was asked for, so that forecasts stay the same from round to round.
        """
        stop = self._intents.get(("stop", job.name, job.attempt))
        if stop is not None:
            return stop.deadline
        if job.time_limit is None:
            return None
        if job.started_at is not None:
            return job.started_at.after(job.time_limit)
        start = self._intents.get(("start", job.name, job.attempt))
        return (start.asked_at if start else self._now).after(job.time_limit)


def _except(tasks: Iterable[TaskPlacement], promised: Collection[DeviceId]) -> tuple[TaskPlacement, ...]:
    return tuple(
        msgspec.structs.replace(task, devices=tuple(device for device in task.devices if device not in promised))
        for task in tasks
    )


def _with_options(candidates: Iterable[Candidate]) -> list[tuple[Job, tuple[Option, ...]]]:
    return [(candidate.job, candidate.options) for candidate in candidates]


def _by_queue(wanted: Iterable[tuple[QueueName, Charge]]) -> list[tuple[QueueName, Charge]]:
    """The same demand in fewer entries: it is counted again for every round ahead."""
    total: dict[QueueName, Counter[GpuType]] = {}
    for queue, charge in wanted:
        total.setdefault(queue, Counter()).update(charge)
    return list(total.items())


def _has_gpus(candidate: Candidate, room: Room) -> bool:
    """Necessary, not sufficient, and much cheaper than to look for a place."""

    def has(option: Option) -> bool:
        free = room.milli_free(option.shapes)
        return all(free[room.of_type(gpu_type)].sum() >= milli for gpu_type, milli in option.charge.items())

    return any(has(option) for option in candidate.options)
