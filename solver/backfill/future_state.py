"""The cluster after a round, as far as it can be known: when running jobs end at the latest, and what is free then."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from solver.backfill.eligibility import EndTimes, RunningAllocation, held_back, is_live, kept_for
from solver.backfill.reservation_documents import document_reservations, kept_by, kept_from
from solver.capacity.free_capacity import FreeCapacity
from solver.model.cluster import DeviceId, GpuType
from solver.model.inflight import Reservation
from solver.model.parts import leaving_part, owner_of, without
from solver.model.quantities import Instant
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.placement.capacity_prefilter import CapacityPrefilter
from solver.placement.greedy import greedy
from solver.placement.starts import JobStart
from solver.plan.estimates import EarliestStart, EndUnknown
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree
from solver.policy.windows import policies_ahead
from solver.queueing.demand import StartCandidate, in_order
from solver.queueing.durations import Expected, expected, expected_of
from solver.queueing.entry import may_borrow
from solver.queueing.fallback import as_open_at
from solver.queueing.loans import DocumentCalls, first_on, has_nothing_inside, loans_in
from solver.queueing.quota import lets_start
from solver.queueing.strict_queues import behind_nobody
from solver.quota.accounts import Accounts
from solver.quota.entitlement import Charge, QuotaHeadroom, Shares, under_tree
from solver.quota.fairshare import demand_of, with_fair_shares
from solver.quota.lending import live_gpus
from solver.quota.options import Option
from solver.quota.users import UserRoom

ROUNDS_MAX = 200
"""Instants played ahead, beside those at which a forecast start ends. Where more jobs run, every n-th end is one, so that
forecasts are late by a few ends rather than the round by seconds."""


@dataclass(slots=True)
class FutureState:
    """What is held and what is free at one instant of the future.

    `waiting`: jobs that may start, put in before the first round. `wanted_behind`: demand of those that are not played ahead.
    `openings`: when further GPU types open to a job.
    `endless`: jobs that hold something for an unknown time, and `endless_holders` the same by name. `expected_ends`: which ends
    only history speaks for.
    `changes`: which policies are to hold after this one, and from when, if it is to follow them; `changed`: in which queues.
    """

    policy: Policy
    accounts: Accounts
    room: FreeCapacity
    capacity: Charge
    jobs: dict[JobName, Job] = field(default_factory=dict)
    reservations: dict[JobName, Reservation] = field(default_factory=dict)
    declared: Sequence[Reservation] = ()
    waiting: Sequence[StartCandidate] = ()
    wanted_behind: Sequence[tuple[QueueName, Charge]] = ()
    holders: dict[JobName, RunningAllocation] = field(default_factory=dict)
    endless_holders: dict[JobName, RunningAllocation] = field(default_factory=dict)
    ends: list[tuple[Instant, JobName]] = field(default_factory=list)
    openings: list[Instant] = field(default_factory=list)
    expected: Expected = field(default_factory=dict)
    expected_ends: list[Instant] = field(default_factory=list)
    changes: list[tuple[Instant, Policy]] = field(default_factory=list)
    changed: dict[Instant, frozenset[QueueName]] = field(default_factory=dict)
    endless: Counter[tuple[frozenset[GpuType], bool]] = field(default_factory=Counter)
    _enough: CapacityPrefilter | None = field(init=False, default=None)
    _calls: DocumentCalls | None = field(init=False, default=None)

    @classmethod
    def after_round(
        cls,
        snapshot: Snapshot,
        policy: Policy,
        shares: Shares,
        starts: Sequence[JobStart],
        begins: Mapping[JobName, Instant],
        after: FreeCapacity,
    ) -> FutureState:
        """The world as a round leaves it. What is promised to a job does not become free when its holder leaves.

        Of a divided GPU `after` itself counts what is promised.
        """
        world = cls(policy, Accounts.of(shares), after.copy(), live_gpus(snapshot))
        world.jobs = {job.name: job for job in snapshot.jobs}
        world.declared, world.expected = document_reservations(snapshot), expected(snapshot.in_flight.durations)
        gangs = [held for held in snapshot.in_flight.reservations if not held.is_declared]
        ends = EndTimes(snapshot, loans_in(snapshot, policy, shares))
        nominations = {intent.job: intent.tasks for intent in snapshot.in_flight.nominations}
        evicted = {intent.job for intent in snapshot.in_flight.evictions}
        promised = {
            device
            for tasks in (*nominations.values(), *(start.placed.tasks for start in starts))
            for task in tasks
            for device in (*task.devices, *task.on_gpus)
        }
        promised -= {gpu.device for gpus in after.shared.values() for gpu in gpus}
        for job in snapshot.jobs:
            if job.placement:
                holder, end = (
                    RunningAllocation(job, job.placement, job.name not in evicted).without(promised),
                    ends.of(job),
                )
                moves = job.name in nominations
                world._hold(leaving_part(job.name) if moves else job.name, holder, end, snapshot.time)
                world.expected_ends += [end] if end and job.time_limit is None and end == ends.by_history(job) else []
            if job.name in nominations:
                begin = begins.get(job.name, snapshot.time)
                world._hold(job.name, RunningAllocation(job, nominations[job.name]), world._end_of(job, begin), begin)
        for start in starts:
            begin = begins.get(start.candidate.job.name, snapshot.time)
            lent = first_on(gangs, start.placed.tasks)
            by_right = lent is None or not has_nothing_inside(shares, start.queue, start.charge)
            world._begin(start, begin, None if by_right else lent)
        return world

    def expect_changes(self, until: Instant) -> Iterator[Instant]:
        """Let the quota be what it is to be, and say when it changes up to an instant."""
        self.changes = [change for change in policies_ahead(self.policy) if change[0] <= until]
        self.changed = _changed_queues(self.policy)
        return (at for at, _ in self.changes)

    def copy(self) -> FutureState:
        """An independent one at the same instant."""
        return replace(
            self,
            accounts=self.accounts.copy(),
            room=self.room.copy(),
            holders=dict(self.holders),
            endless_holders=dict(self.endless_holders),
            ends=list(self.ends),
            openings=list(self.openings),
            expected_ends=list(self.expected_ends),
            changes=list(self.changes),
            endless=Counter(self.endless),
        )

    @property
    def shares(self) -> Shares:
        """Those beside what is held at this instant; they follow it."""
        return self.accounts.shares

    def shares_now(self) -> Shares:
        """The same, as they are, to be kept."""
        return self.accounts.copy().shares

    def shares_by(self, at: Instant) -> Shares:
        """Those once all has ended that does so up to an instant, if no job starts."""
        ended = (self.holders[name] for end, name in self.ends if end <= at)
        return self.shares.without(
            (holder.job.spec.queue, self._charge_of(holder.tasks)) for holder in ended if holder.charged
        )

    def instants(self, until: Instant, stops: Iterable[Instant] = ()) -> Iterator[Instant]:
        """Let jobs end and types open, and say when, until nothing of the kind happens any more before `until`.

        What ends up to a stop does so before it is passed.
        """
        stride, ahead = -(-len(self.ends) // ROUNDS_MAX), sorted(stops)
        while (now := self.next_instant(until)) is not None:
            if self.openings and self.openings[0] == now:
                self.openings.pop(0)
                while self.ends and self.ends[0][0] == now:
                    self._end_next()
                yield now
                continue
            stop = next((at for at in ahead if at >= now), until)
            for _ in range(stride):
                if self.ends and self.ends[0][0] <= min(stop, until):
                    now = self._end_next()
            while self.ends and self.ends[0][0] == now:
                self._end_next()
            yield now

    def next_instant(self, until: Instant) -> Instant | None:
        """When the next job ends or type opens; None: not up to `until`."""
        instants = (*self.openings[:1], *(end for end, _ in self.ends[:1]))
        return min((at for at in instants if at <= until), default=None)

    def join(self, candidate: StartCandidate) -> None:
        """One more waits."""
        self.waiting, self._enough = (*self.waiting, candidate), None

    def pass_to(self, at: Instant) -> bool:
        """Let jobs end and types open up to an instant; returns whether any did."""
        known = len(self.ends) + len(self.openings)
        while self.ends and self.ends[0][0] <= at:
            self._end_next()
        self.openings = [opening for opening in self.openings if opening > at]
        return len(self.ends) + len(self.openings) < known

    def round(self, now: Instant) -> tuple[JobStart, ...]:
        """The waiting jobs that start now."""
        self.change_policy(now)
        if not self.waiting:
            return ()
        self._enough = self._enough or CapacityPrefilter(self.waiting, self.room)
        still_waiting = {candidate.job.name for candidate in self.waiting}
        finding = [candidate for candidate in self._enough.now() if candidate.job.name in still_waiting]
        if not self._lets_any_start(finding, now):
            return ()
        admitted = with_options(self.waiting)
        wanted = [*demand_of(admitted), *self.wanted_behind]
        # What is fair of one type does not depend on the others, and only types on which some job may start are asked for.
        types = {gpu_type for candidate in finding for option in candidate.options for gpu_type in option.charge}
        capacity = {gpu_type: milli for gpu_type, milli in self.capacity.items() if gpu_type in types}
        shares = with_fair_shares(self.shares, capacity, wanted)
        ordered: Sequence[StartCandidate] = in_order(admitted, self.policy, shares, now)
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
        names = {candidate.job.name for candidate in finding}
        able = behind_nobody(ordered, {known.likeness for known in ordered if known.job.name in names})
        starts = greedy(able, self.room, shares) if able else ()
        for start in starts:
            self._begin(start, now)
        if starts:
            started = {start.candidate.job.name for start in starts}
            self.waiting = [candidate for candidate in self.waiting if candidate.job.name not in started]
        return starts

    def _lets_any_start(self, waiting: Iterable[StartCandidate], now: Instant) -> bool:
        """Whether quota lets any of them start alone; where it does not, it does so no more once others have started."""
        headroom, users = QuotaHeadroom(self.shares), UserRoom(self.shares.users)
        return any(
            lets_start(
                known.job,
                option,
                headroom,
                users,
                inside_only=option.inside_only or not may_borrow(known.job, self.policy, now),
            )
            for known in waiting
            for option in as_open_at(known.options, known.job, self.policy, now)
        )

    def change_policy(self, now: Instant) -> None:
        """Let the quota hold that does so by now."""
        passed = [policy for at, policy in self.changes if at <= now]
        if not passed:
            return
        del self.changes[: len(passed)]
        self.policy = passed[-1]
        holders = (*self.holders.values(), *self.endless_holders.values())
        held = ((known.job, self._charge_of(known.tasks)) for known in holders if known.charged)
        shares = under_tree(self.shares_now(), QueueTree.of(self.policy), held, self.capacity)
        self.accounts = Accounts.of(shares)

    def _known_ends(self) -> list[tuple[RunningAllocation, Instant]]:
        return [(self.holders[name], end) for end, name in self.ends]

    def end_unknown(self, candidate: StartCandidate) -> EndUnknown | None:
        """What stands in the way of saying when a job could start; None: nothing."""
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

    def _begin(self, start: JobStart, now: Instant, lent: Reservation | None = None) -> None:
        """`lent`: on what is reserved for another, the job that it gives it back to."""
        job, end = start.candidate.job, self._end_of(start.candidate.job, now)
        lent = lent or self._called_back(job, start.placed.tasks, now)
        if lent and (end is None or end > lent.start):
            end = lent.start
        self.reservations.pop(job.name, None)
        self.accounts.take(job, start.charge)
        self._hold(job.name, RunningAllocation(job, start.placed.tasks), end, now)

    def _called_back(self, job: Job, tasks: Iterable[TaskPlacement], now: Instant) -> Reservation | None:
        """The first that a document keeps of these and has the job leave, of what is to begin."""
        if self._calls is None and self.declared:
            self._calls = DocumentCalls.of(self.declared, self.policy, self.shares.tree, self.room.nodes)
        return self._calls.first(job, tasks, now) if self._calls is not None else None

    def _end_of(self, job: Job, start: Instant) -> Instant | None:
        limit = self.policy.time_limit(job)
        if limit is not None:
            return start.after(limit)
        duration = expected_of(job, self.expected)
        if duration is None:
            return None
        self.expected_ends.append(start.after(duration))
        return start.after(duration)

    def start_at(self, at: Instant, queue: QueueName) -> EarliestStart:
        """What to say of a start of a queue's job at an instant: whether it takes history's word for an end before it, and whether
        another quota comes just then.
        """
        changed = self.changed.get(at, frozenset())
        own = tuple(step for step in self.shares.tree.path(queue) if step in changed)
        by_quota = (own or tuple(sorted(changed)))[:1]
        return EarliestStart(
            at, by_history=any(end <= at for end in self.expected_ends), quota_of=next(iter(by_quota), None)
        )

    def _hold(self, name: JobName, holder: RunningAllocation, end: Instant | None, now: Instant) -> None:
        if end is None or end <= now:
            self.endless_holders[name] = holder
            self.endless[frozenset(map(self._type_at, holder.tasks)), end is not None] += 1
        else:
            self.holders[name] = holder
            heapq.heappush(self.ends, (end, name))

    def begin_after(self, start: JobStart, leaving: Iterable[Job], now: Instant) -> None:
        """A job starts on what others leave for it, in whole or in part. What it does not need of that goes on as before.

        So nobody is told a start that needs an eviction for somebody else; who leaves wants to go on there, too.
        """
        left = [(part, tasks) for part in leaving if (tasks := self._leave(part))]
        self.waiting = [known for known in self.waiting if known.job.name != start.candidate.job.name]
        taken = set[DeviceId]()
        if self.room.has_free(start.held):
            self.room.occupy(start.held)
            self._begin(start, now)
            taken = {device for task in start.placed.tasks for device in task.devices}
        for part, tasks in left:
            self._stay(part, tasks, taken)

    def _leave(self, part: Job) -> tuple[TaskPlacement, ...]:
        """What a job held, or a part of one, is free: these tasks, () where it has ended."""
        name, named = owner_of(part.name), {(task.group, task.index) for task in part.placement}
        known = self.holders if name in self.holders else self.endless_holders
        holder = known.get(name)
        if holder is None:
            return ()
        gone = tuple(task for task in holder.tasks if (task.group, task.index) in named)
        known[name] = replace(holder, tasks=without(holder.tasks, gone))
        self._give_back(replace(holder, tasks=gone))
        return gone

    def _stay(self, part: Job, tasks: Iterable[TaskPlacement], taken: Set[DeviceId]) -> None:
        """What is not taken of whole GPUs that were left is held until their holder would have ended, without CPU and memory."""
        name = owner_of(part.name)
        known = self.holders if name in self.holders else self.endless_holders
        rest = tuple(
            TaskPlacement("", 0, task.node, devices)
            for task in tasks
            if task.share is None
            and task.node in self.room.index
            and (devices := tuple(device for device in task.devices if device not in taken))
        )
        self.room.occupy((task, Shape(len(task.devices))) for task in rest)
        known[name] = replace(known[name], tasks=(*known[name].tasks, *rest))
        if known[name].charged:
            self.accounts.take(known[name].job, self._charge_of(rest))

    def _end_next(self) -> Instant:
        now, name = heapq.heappop(self.ends)
        self._give_back(self.holders.pop(name))
        return now

    def _give_back(self, holder: RunningAllocation) -> None:
        shapes = {group.name: group.shape for group in holder.job.spec.task_groups}
        for task in holder.tasks:
            self.room.give_back(task, shapes.get(task.group, Shape()))
        if holder.charged:
            self.accounts.give_back(holder.job, self._charge_of(holder.tasks))

    def _charge_of(self, tasks: Iterable[TaskPlacement]) -> Charge:
        charge: Counter[GpuType] = Counter()
        for task in tasks:
            charge[self._type_at(task)] += task.gpus
        return charge

    def _type_at(self, task: TaskPlacement) -> GpuType:
        node = self.room.index.get(task.node)
        return GpuType("") if node is None else self.room.nodes[node].gpu_type


def with_options(candidates: Iterable[StartCandidate]) -> list[tuple[Job, tuple[Option, ...]]]:
    """The jobs, each with its options, as they are counted and put in order."""
    return [(candidate.job, candidate.options) for candidate in candidates]


def _changed_queues(policy: Policy) -> dict[Instant, frozenset[QueueName]]:
    """Of which queues the quota changes, and when."""
    found = defaultdict[Instant, set[QueueName]](set)
    for queue in policy.queues:
        for change in queue.ahead:
            found[change.at].add(queue.name)
    return {at: frozenset(queues) for at, queues in found.items()}
