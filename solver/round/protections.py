"""Waiting jobs for which others could leave if nothing protected these: by what they are protected, and until when.

It is asked of jobs that lie inside a guarantee or a fair share and found no place in a round. The search for victims is asked
again as if it were later: at the end of each protection, one job after the other, the first to be served first. So what is said
is what a later round does if nothing else changes, as far as its program finds nothing better than the search.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations
from typing import NamedTuple

import msgspec

from solver.backfill.eligibility import EndTimes, may_backfill
from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.partitioning import pool_rules
from solver.capacity.sharing import Sharing, sharing_of
from solver.milp.preemption_decision import can_serve, in_program
from solver.model.inflight import Reservation
from solver.model.parts import owner_of
from solver.model.quantities import Instant
from solver.model.round_cache import RoundCache
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, JobSpec, QueueName
from solver.placement.starts import JobStart
from solver.plan.reasons import Protected, ProtectedBy
from solver.policy.policy import Policy, PriorityClass
from solver.policy.reclaim import (
    budgets_hold_for,
    has_it_wait,
    preempts_from,
    reclaim_within,
)
from solver.policy.tree import QuotaLine
from solver.preemption.attempts import Attempts
from solver.preemption.consolidation import SEARCHES_MAX, ConsolidationSearch
from solver.preemption.eviction import Preemptor, is_gpu_for_gpu
from solver.preemption.eviction_candidates import EvictionCandidates
from solver.preemption.eviction_rules import EvictionRules
from solver.preemption.trial import PreemptionResult
from solver.queueing.demand import StartCandidate, SubLayer
from solver.queueing.loans import can_be_gone, first_on, has_nothing_inside, loans_in
from solver.queueing.strict_queues import Lines
from solver.quota.entitlement import QuotaHeadroom
from solver.quota.fairshare import to_spare
from solver.quota.users import UserRoom
from solver.quota.vacated import TIERS, Tier, tiers_in
from solver.quota.victims import ProtectionEnd, protected, protection_end
from solver.round.decision import soon_free
from solver.round.growing_gangs import awaited_types, kept_to_domains, missing_tasks, with_domains
from solver.round.regrowth import GangGrowth
from solver.round.tiers import Decision

CONSIDERED_MAX = 100
"""Waiting jobs of which it is asked, the first in the order of the round."""

SEARCHED_MAX = 20
"""Unlike ones of these for which is searched: where others are protected from many, the search takes longer than the round."""

LIMITS: tuple[ProtectedBy, ...] = (
    "perRound",
    "minGain",
    "disruptionBudget",
    "evictionsPerDay",
    "preemptWithin",
    "reclaimedFor",
)
"""What protects jobs and has no end of its own; evictionsPerDay, where it is 0."""

ServingTurn = tuple[Instant, int, SubLayer, int, int]
"""When a job is served, in which tier and sub-layer, of how many GPUs where that counts, and its number in the round's order."""


class Overdue(NamedTuple):
    """From when on nothing of the policy delays a guarantee, from when on no PodDisruptionBudget, and from when on others leave for
    a job that has to wait first; None: that time has come.
    """

    policy: Instant | None
    budgets: Instant | None
    waited: Instant | None


class LaterStart(NamedTuple):
    """What a waiting job gets once others are protected no more, and why it does not yet.

    `at`: when these are asked to leave; `gone`: when they have left at the latest. None where that is not known, and then neither
    are `start` and who is `leaving`; `moving`: some of these go on elsewhere.
    """

    reasons: tuple[Protected, ...]
    at: Instant | None = None
    gone: Instant | None = None
    start: JobStart | None = None
    leaving: tuple[Job, ...] = ()
    moving: bool = False

    @property
    def last(self) -> JobName:
        """The job that is protected the longest."""
        return max(self.reasons, key=lambda known: (known.until is None, known.until or 0)).job


@dataclass(frozen=True)
class RoundRemainder:
    """What a round leaves. `snapshot`: in which those who are evicted have been asked to leave; `room`: what is free now."""

    snapshot: Snapshot
    policy: Policy
    decision: Decision
    grown: Sequence[GangGrowth]
    room: FreeCapacity
    has_optimiser: bool
    kept: RoundCache = field(default_factory=RoundCache)

    @property
    def has_program(self) -> bool:
        """Whether the program chooses who leaves."""
        return self.has_optimiser and in_program(self.room, self.decision.shares)

    @property
    def _started(self) -> tuple[JobStart, ...]:
        return (*self.decision.starts, *(promise.start for promise in self.decision.nominations))

    def soon(self, sharing: Sharing) -> FreeCapacity:
        """What will be free once all have left who were asked to."""
        decision, snapshot = self.decision, self.snapshot
        soon = soon_free(snapshot, sharing.domain, pool_rules(self.policy, snapshot), decision.room)
        soon.reserved = decision.room.reserved
        around = self.around
        for job in (job for job in snapshot.jobs if job.name in around):
            shapes = {group.name: group.shape for group in job.spec.task_groups}
            for task in job.placement:
                soon.give_back(task, shapes.get(task.group, Shape()))
        for start in (known for known in self._started if known.candidate.job.name not in around):
            soon.occupy(start.held)
        for promise in decision.nominations:
            soon.set_aside(promise.pledged)
        for growth in self.grown:
            soon.occupy(growth.held)
        return soon

    @cached_property
    def around(self) -> Mapping[JobName, Instant]:
        """Jobs that run on what is kept of an awaited place, and by when they have ended or have been asked to give it back."""
        waiting = {job.name: job.spec for job in self.snapshot.pending}
        reserved = (held for held in self.snapshot.in_flight.reservations if held.holder in waiting)
        gangs = [held for held in reserved if _is_part(held, waiting[held.holder])]
        if not gangs:
            return {}
        found, asked = dict[JobName, Instant](), {known.job for known in self.snapshot.in_flight.evictions}
        ends = EndTimes(self.snapshot, loans_in(self.snapshot, self.policy, self.decision.shares, self.kept))
        for job in self.snapshot.jobs:
            held, end = first_on(gangs, job.placement), ends.of(job) if job.placement else None
            if held is not None and end is not None and end <= held.start and job.name not in asked:
                found[job.name] = end
        now, shares = self.snapshot.time, self.decision.shares
        for start in self.decision.starts:
            job, held = start.candidate.job, first_on(gangs, start.placed.tasks)
            if held is not None and held.holder != job.name:
                limit = self.policy.time_limit(job)
                lent = can_be_gone(job, self.policy, now, held.start) and has_nothing_inside(
                    shares, start.queue, start.charge
                )
                end = held.start if limit is None or now.after(limit) > held.start else now.after(limit)
                found |= {job.name: end} if lent or may_backfill(end if limit else None, held.start) else {}
        return found

    def quota(self) -> tuple[QuotaHeadroom, UserRoom]:
        """What is left of quotas beside all that was started or promised."""
        displacing = self.decision.displacing
        ahead = [(s.queue, s.charge) for s in self._started if s.candidate.job.name in displacing]
        grown = [(growth.job.spec.queue, growth.charge) for growth in self.grown]
        shares = self.decision.shares.beside([*ahead, *grown])
        headroom, users = QuotaHeadroom(shares), UserRoom(shares.users)
        for start in self._started:
            users.take(start.candidate.job, start.charge)
            if start.candidate.job.name not in displacing:
                headroom.take(start.queue, start.charge)
        return headroom, users


def _is_part(held: Reservation, spec: JobSpec) -> bool:
    """Whether less is kept than a job needs: the rest of its place is others' as yet."""
    gpus = {group.name: group.shape.gpus for group in spec.task_groups}
    tasks = sum(group.least for group in spec.task_groups if group.shape.uses_gpus)
    return len(held.tasks) < tasks or any(len(task.devices) < gpus[task.group] for task in held.tasks)


def later_starts(left: RoundRemainder, waiting: Sequence[StartCandidate]) -> Mapping[JobName, LaterStart]:
    """Who waits only for the end of protections, or of limits. `waiting`: in order, who got nothing in the round."""
    if not waiting or not (_protects_any(left.snapshot, left.policy) or _is_any_early(left, waiting)):
        return {}
    return ProtectedWaits.after(left, waiting).find()


def _protects_any(snapshot: Snapshot, policy: Policy) -> bool:
    """Whether anything protects any job: most rounds need no more."""
    limits, running = policy.scheduling.evictions, [job for job in snapshot.jobs if job.phase == "running"]
    classes = {job.spec.priority_class: policy.priority_class(job) for job in running}
    return (
        limits.per_round is not None
        or limits.min_gain > 0
        or any(job.leaves == "not" for job in running)
        or any(queue.preempt_within == "never" or queue.reclaimed_for == "guaranteed" for queue in policy.queues)
        or any(
            protected(job, known.protection, snapshot.time)
            for job in running
            if (known := classes[job.spec.priority_class]) is not None
        )
    )


def _is_any_early(left: RoundRemainder, waiting: Sequence[StartCandidate]) -> bool:
    """Whether any has to wait on before others leave for it."""
    tree, policy = left.decision.shares.tree, left.policy
    if not policy.delays_preemption:
        return False
    opens = (preempts_from(policy, tree, candidate.job) for candidate in waiting)
    return any(at is not None and at > left.snapshot.time for at in opens)


@dataclass(slots=True)
class ProtectedWaits:
    """Looks for what protects others from waiting jobs, on what a round leaves.

    `around`: who has ended, or given back what is reserved, before what that is reserved for starts.
    `room`, `soon`: what is free now, and once all have left who were asked to. `headroom`, `users`: what is left of quotas.
    `has_program`: the program chooses victims, and holds to more rules than the search.
    """

    snapshot: Snapshot
    policy: Policy
    sharing: Sharing
    room: FreeCapacity
    soon: FreeCapacity
    headroom: QuotaHeadroom
    users: UserRoom
    waiting: Sequence[StartCandidate]
    has_program: bool
    kept: RoundCache
    around: Mapping[JobName, Instant] = field(default_factory=dict)
    _rules: EvictionRules = field(init=False)
    _candidates: EvictionCandidates = field(init=False)
    _limits: tuple[ProtectedBy, ...] = field(init=False)
    _ends: frozenset[Instant] = field(init=False)
    _lines: Lines = field(init=False)
    _gone: set[JobName] = field(default_factory=set)
    _evictable: dict[tuple[Instant, frozenset[ProtectedBy]], EvictionCandidates] = field(default_factory=dict)
    _making: dict[tuple[Instant, frozenset[ProtectedBy]], Preemptor] = field(default_factory=dict)
    """Searches since somebody was given anything last."""
    _firsts: dict[int, tuple[Instant | None, Overdue]] = field(default_factory=dict)
    _endless: dict[int, tuple[Protected, ...]] = field(default_factory=dict)
    _searches: int = 0
    _left_at: dict[Instant, list[Job]] = field(default_factory=dict)
    _instants: dict[Overdue, tuple[Instant, ...]] = field(default_factory=dict)

    @classmethod
    def after(cls, left: RoundRemainder, waiting: Sequence[StartCandidate]) -> ProtectedWaits:
        """On what is left by a round."""
        snapshot, policy = left.snapshot, left.policy
        sharing = sharing_of(policy, left.decision.shares.tree, snapshot.nodes)
        gangs = kept_to_domains(snapshot, left.kept)
        room, soon = (with_domains(gangs, room) for room in (left.room.copy(), left.soon(sharing)))
        return cls(
            snapshot, policy, sharing, room, soon, *left.quota(), waiting, left.has_program, left.kept, left.around
        )

    def __post_init__(self) -> None:
        self._gone |= self.around.keys()
        self._rules = EvictionRules.of(self.snapshot, self.policy, self.headroom.shares, self.kept)
        holders, limits = self._rules.allocations.bases, self.policy.scheduling.evictions
        ends = [end for holder in holders if (end := self._end(holder.job)) is not None]
        self._ends = frozenset(end.until for end in ends if end.until is not None)
        applies = {
            "perRound": limits.per_round is not None,
            "minGain": limits.min_gain > 0,
            "disruptionBudget": any(holder.job.leaves == "not" for holder in holders),
            "evictionsPerDay": any(end.until is None for end in ends),
            "preemptWithin": "never" in self._rules.within.values(),
            "reclaimedFor": bool(self._rules.not_for_shares),
        }
        self._limits = tuple(limit for limit in LIMITS if applies[limit])
        self._lines = Lines(self.waiting)
        self._candidates = EvictionCandidates(self._rules, self.kept)
        self._candidates.released(self.soon)  # Once for all instants.

    def find(self) -> Mapping[JobName, LaterStart]:
        """The first to be served have their places before others; gangs that grow inside guarantees among them."""
        asked = [c for c in self.waiting if any(sum(option.charge.values()) for option in c.options)][:CONSIDERED_MAX]
        waiting = {candidate.job.name for candidate in asked}
        asked += self._growing()
        found, turns = dict[JobName, LaterStart](), list[ServingTurn]()
        for number, candidate in enumerate(asked):
            if self._searches >= SEARCHED_MAX:
                asked = asked[:number]
                break
            if (at := self._first_of_its_like(candidate)) is not None:
                turns.append(self._turn(candidate, at, number))
        heapq.heapify(turns)
        while turns:
            at, *_, number = heapq.heappop(turns)
            known = self._served(asked[number], at)
            if known is not None:
                found[asked[number].job.name] = known
            elif (again := self._first(asked[number], at)) is not None and again > at:
                heapq.heappush(turns, self._turn(asked[number], again, number))
        for candidate in asked:
            name = candidate.job.name
            if name in waiting and name not in found and (reasons := self._without_end(candidate)):
                found[name] = LaterStart(reasons)
        return {name: known for name, known in found.items() if name in waiting}

    def _growing(self) -> list[StartCandidate]:
        """Tasks that running gangs lack, the first of them; they may take back what others borrowed as well."""
        shares, room = self.headroom.shares, self.room
        tasks = missing_tasks(self.snapshot, self.policy, self.waiting, (), shares, room, self.kept)[:CONSIDERED_MAX]
        awaited = awaited_types(self.waiting, self.policy, shares, self._now)
        tasks = [task for task in tasks if task.options[0].charge.keys().isdisjoint(awaited)]
        # What protects others holds against growth to its end: nothing of that is ever overdue.
        last = max(self._ends, default=self._now)
        return [replace(task, job=msgspec.structs.replace(task.job, submitted_at=last)) for task in tasks]

    @property
    def _now(self) -> Instant:
        return self.snapshot.time

    def _end(self, job: Job) -> ProtectionEnd | None:
        known = self.policy.priority_class(job)
        return protection_end(job, known.protection, self._now) if known else None

    def _overdue_at(self, candidate: StartCandidate) -> Overdue:
        """From when on nothing delays it, as far as it is inside its guarantee."""
        job = candidate.job
        limits = (
            within(self.policy, self._rules.tree, job.spec.queue) for within in (reclaim_within, budgets_hold_for)
        )
        policy, budgets = (at if at > self._now else None for at in map(job.submitted_at.after, limits))
        return Overdue(policy, budgets if "disruptionBudget" in self._limits else None, self._waited_at(candidate))

    def _waited_at(self, candidate: StartCandidate) -> Instant | None:
        """From when on others leave for it; None: they do."""
        if candidate.sub_layer.growth:
            return None
        opens = preempts_from(self.policy, self._rules.tree, candidate.job)
        return opens if opens is not None and opens > self._now else None

    def _instants_of(self, candidate: StartCandidate) -> tuple[Instant, ...]:
        """When something ends that could protect others from it."""
        overdue = self._overdue_at(candidate)
        if overdue not in self._instants:
            more = frozenset(at for at in overdue if at is not None)
            self._instants[overdue] = tuple(sorted(self._ends | more))
        return self._instants[overdue]

    def _first_of_its_like(self, candidate: StartCandidate) -> Instant | None:
        """The first instant at which it is served as things stand; asked once of those for whom the same protections end."""
        overdue = self._overdue_at(candidate)
        known = self._firsts.get(candidate.likeness)
        if known is not None:
            at, of = known
            if (
                at in self._ends
                and all(when is None or when > at for when in (*overdue, *of))
                and [when is None for when in of] == [when is None for when in overdue]
            ):
                return at
            if at is None and not any((*overdue, *of)):
                return None
        at = self._first(candidate)
        self._searches += 1
        self._firsts[candidate.likeness] = at, overdue
        return at

    def _first(self, candidate: StartCandidate, after: Instant | None = None) -> Instant | None:
        """The first instant at which it is served; None: at none, or it could be as it is."""
        instants = self._instants_of(candidate)
        if not instants or self._would_serve(candidate, instants[-1]) is None:
            return None
        if after is None and (would := self._would_serve(candidate, self._now)) is not None:
            return self._now if self._is_for_next_round(would[1]) else None
        low, high, step = (0 if after is None else bisect_left(instants, after)), len(instants) - 1, 1
        # What is asked again is served soon after, as a rule: in steps that double it is found sooner than by halving.
        while after is not None and low + step < high and self._would_serve(candidate, instants[low + step]) is None:
            low, step = low + step, 2 * step
        high = min(high, low + step) if after is not None else high
        while low < high:
            middle = (low + high) // 2
            if self._would_serve(candidate, instants[middle]) is None:
                low = middle + 1
            else:
                high = middle
        return instants[low]

    def _is_for_next_round(self, found: PreemptionResult) -> bool:
        """Whether this round has asked too many to leave for these to be asked as well."""
        most = self.policy.scheduling.evictions.per_round
        asked = {owner_of(known.job) for known in self.snapshot.in_flight.evictions if known.asked_at == self._now}
        return most is not None and len(asked | {owner_of(job.name) for job in _leaving(found)}) > most

    def _turn(self, candidate: StartCandidate, at: Instant, number: int) -> ServingTurn:
        """Sorts those who can be served: inside guarantees first, then as the round has them, of one sub-layer.

        The program counts GPUs there, and serves the larger first.
        """
        would = self._would_serve(candidate, at)
        tier = TIERS.index(would[0]) if would else 0
        gpus = max(sum(option.charge.values()) for option in candidate.options) if self.has_program else 0
        return at, tier, candidate.sub_layer, -gpus, number

    def _would_serve(
        self, candidate: StartCandidate, at: Instant, without: frozenset[ProtectedBy] = frozenset()
    ) -> tuple[Tier, PreemptionResult] | None:
        making = self._preemptor(at, without)
        for tier in tiers_in(self._rules.tree):
            for making.strictly in (True, False) if self.has_program and can_serve(candidate) else (False,):
                found = making.would_serve(candidate, tier)
                if found is not None and (not self.has_program or self._is_lawful(found, making)):
                    return tier, found
        return None

    def _is_lawful(self, found: PreemptionResult, making: Preemptor) -> bool:
        """Whether the program could serve it so: to these rules the search does not hold by itself."""
        if found.request.candidate.sub_layer.growth:
            gpus = sum(victim.holder.gpus for victim in found.victims)
            borrowed = all(victim.means == "reclaim" for victim in found.victims)
            return borrowed and gpus <= sum(found.request.option.charge.values())
        is_firm = self.policy.is_firm(found.request.candidate.job)
        if found.request.displaces and found.request.tier == "fair" and is_firm:
            return False
        fairly = found.request.tier != "fair" or _keeps_shares(found, self.headroom)
        return fairly and is_gpu_for_gpu(found) and not self._is_hurried(found, making)

    def _is_hurried(self, found: PreemptionResult, making: Preemptor) -> bool:
        """Whether it is served against what protects work of its own queue, without whose leaving that would be above its share."""
        queue, used = found.request.candidate.job.spec.queue, self.headroom.shares.used
        lines = [self.headroom.shares.tree.lines(queue, gpu_type)[0] for gpu_type in found.request.option.charge]
        guaranteed = self.headroom.shares.guaranteed
        if all(used.get(line, 0) + self.headroom.taken.get(line, 0) <= guaranteed.get(line, 0) for line in lines):
            return False
        own = [victim.holder for victim in found.victims if victim.holder.job.spec.queue == queue]
        given_up = sum(victim.holder.gpus for victim in found.victims)
        gains = sum(found.request.option.charge.values()) >= making.policy.scheduling.evictions.min_gain * given_up
        now, waited = making.snapshot.time, self._waited_at(found.request.candidate)
        return bool(own) and not (
            gains
            and (waited is None or waited <= now)
            and all(
                not holder.job.held and not protected(holder.job, holder.priority_class.protection, now)
                for holder in own
            )
        )

    def _preemptor(self, at: Instant, without: frozenset[ProtectedBy] = frozenset()) -> Preemptor:
        """The search as it would be then, `without` some limits; those who have left by then are asked no more."""
        making = self._making.get((at, without))
        if making is None:
            making = self._making[at, without] = self._begun(at, without)
        making.moving.searches, making.moving.moved, making.strictly = SEARCHES_MAX, 0, False
        return making

    def _begun(self, at: Instant, without: frozenset[ProtectedBy]) -> Preemptor:
        limits = self.policy.scheduling.evictions
        per_round = None if limits.per_round is None or "perRound" in without else limits.per_round + len(self._gone)
        gain = 0.0 if "minGain" in without else limits.min_gain
        evictions, policy = msgspec.structs.replace(limits, per_round=per_round, min_gain=gain), self.policy
        if evictions != limits:
            scheduling = msgspec.structs.replace(policy.scheduling, evictions=evictions)
            policy = msgspec.structs.replace(policy, scheduling=scheduling)
        snapshot, lifted = msgspec.structs.replace(self.snapshot, time=at), without - {"perRound", "minGain"}
        if (at, lifted) not in self._evictable:
            self._evictable[at, lifted] = self._candidates.under(replace(self._rules, now=at, without=lifted))
        attempts = Attempts(self._evictable[at, lifted], self.room, self.soon, self.headroom, self.users, self._lines)
        moving = ConsolidationSearch(snapshot, policy, self.headroom.shares, self.sharing)
        return Preemptor(snapshot, policy, attempts, set(self._gone), moving)

    def _served(self, candidate: StartCandidate, at: Instant) -> LaterStart | None:
        """Give it what it gets then; None: others have had that, or it needs nothing that is protected."""
        would = self._would_serve(candidate, at)
        if would is None:
            return None
        found = would[1]
        reasons = self._timed(found, at) or self._limited(candidate, found, at)
        if not reasons or max(known.until or at for known in reasons) < at:
            # It waits for something else as well, of which nothing can be said.
            return None
        making = self._preemptor(at)
        start = making.give(found, None)
        self.headroom, self._gone = making.attempts.headroom, making.gone
        self._making.clear()
        leaving = tuple(_leaving(found))
        self._left_at.setdefault(at, []).extend(leaving)
        # What is free already is had in the next round.
        before = self._ended_before(start)
        gone = max((self._now.after(1), at, *(at.after(self.policy.grace(job)) for job in leaving), *before))
        return LaterStart(reasons, at, gone, start, leaving, bool(found.moves))

    def _ended_before(self, start: JobStart) -> Iterator[Instant]:
        """By when those have ended who run around what is reserved where it starts."""
        devices = {device for task in start.placed.tasks for device in task.devices}
        for job in self.snapshot.jobs if self.around else ():
            if job.name in self.around and any(not devices.isdisjoint(task.devices) for task in job.placement):
                yield self.around[job.name]

    def _timed(self, found: PreemptionResult, at: Instant | None) -> tuple[Protected, ...]:
        """By what those who leave for it are protected now, with the one that is so the longest by each."""
        own = self._protected(_leaving(found), at, found)
        if at is not None and own and max(known.until or at for known in own) < at:
            # What leaves for another at that time leaves more than that needs.
            return self._protected(chain(_leaving(found), self._left_at.get(at, ())), at, found)
        return own

    def _protected(self, leaving: Iterable[Job], at: Instant | None, found: PreemptionResult) -> tuple[Protected, ...]:
        by, held = dict[ProtectedBy, dict[JobName, tuple[Instant | None, Job]]](), list[Job]()
        budgets = self._overdue_at(found.request.candidate).budgets
        for job in leaving:
            if job.held and at is not None and budgets is not None:
                held.append(job)
            end = self._end(job)
            if end is not None:
                # At the latest when nothing may delay the guarantee any longer.
                until = at if at is not None and (end.until is None or end.until > at) else end.until
                by.setdefault(end.by, {})[owner_of(job.name)] = until, job
        told = tuple(self._of_class(kind, jobs) for kind, jobs in by.items())
        told = (*told, _of_budgets(held, budgets)) if held else told
        return (*told, *self._of_delay(found, at))

    def _of_delay(self, found: PreemptionResult, at: Instant | None) -> Iterator[Protected]:
        """That it has not waited for long enough, where anybody leaves for it."""
        candidate, names = found.request.candidate, sorted({owner_of(victim.name) for victim in found.victims})
        waited = self._waited_at(candidate)
        said = has_it_wait(self.policy, self._rules.tree, candidate.job)
        if not names or waited is None or said is None:
            return
        # At the latest when nothing may delay the guarantee any longer.
        until = at if at is not None and waited > at else waited
        is_class = isinstance(said, PriorityClass)
        yield Protected(
            "preemptAfter",
            names[0],
            said.name if is_class else "",
            until,
            said.origin,
            len(names) - 1,
            queue="" if is_class else said.name,
        )

    def _of_class(self, by: ProtectedBy, jobs: Mapping[JobName, tuple[Instant | None, Job]]) -> Protected:
        name = max(jobs, key=lambda name: (jobs[name][0] is None, jobs[name][0] or 0, name))
        until, job = jobs[name]
        known = self.policy.priority_class(job)
        named, origin = (known.name, known.protection.origin or known.origin) if known else ("", "")
        return Protected(by, name, named, until, origin, len(jobs) - 1)

    def _limited(self, candidate: StartCandidate, found: PreemptionResult, at: Instant) -> tuple[Protected, ...]:
        """The limits that do not let anybody leave for it now, and do `at` an instant: from when on nothing delays it."""
        if at == self._now:
            return self._of_limits(("perRound",), found)
        for limits in _each(self._limits):
            if self._would_serve(candidate, self._now, frozenset(limits)) is not None:
                return self._of_limits(limits, found, at)
        return ()

    def _without_end(self, candidate: StartCandidate) -> tuple[Protected, ...]:
        """The limits without which it would be served once all protections that have an end are over."""
        if not self._limits:
            return ()
        last, alike = max(self._instants_of(candidate), default=self._now), candidate.likeness
        if alike not in self._endless:
            # What is served with them has found its place taken, and what is not without them all is held back by something else.
            waits = self._would_serve(candidate, last) is None
            limited = waits and self._would_serve(candidate, last, frozenset(self._limits)) is not None
            self._endless[alike] = self._fewest_limits(candidate, last) if limited else ()
        return self._endless[alike]

    def _fewest_limits(self, candidate: StartCandidate, at: Instant) -> tuple[Protected, ...]:
        for limits in _each(self._limits):
            would = self._would_serve(candidate, at, frozenset(limits))
            if would is not None:
                return (*self._of_limits(limits, would[1]), *self._timed(would[1], None))
        return ()

    def _of_limits(
        self, limits: Sequence[ProtectedBy], found: PreemptionResult, until: Instant | None = None
    ) -> tuple[Protected, ...]:
        return tuple(known for limit in limits if (known := self._of_limit(limit, found, until)))

    def _of_limit(self, limit: ProtectedBy, found: PreemptionResult, until: Instant | None) -> Protected | None:
        jobs = {owner_of(job.name): job for job in _leaving(found)}
        if limit == "evictionsPerDay":
            return None  # As what protects for a while, by the job's class.
        if limit == "disruptionBudget":
            held = [job for job in jobs.values() if job.leaves == "not"]
            return _of_budgets(held, until) if held else None
        if limit in ("preemptWithin", "reclaimedFor"):
            return self._of_queue(limit, jobs, found.request.candidate.job.spec.queue)
        names, origin = list(jobs), self.policy.scheduling.evictions.origin or self.policy.scheduling.origin
        return Protected(limit, names[0], until=until, origin=origin, more=len(names) - 1) if names else None

    def _of_queue(self, limit: ProtectedBy, jobs: Mapping[JobName, Job], preemptor: QueueName) -> Protected | None:
        """What the queue of a job says that would leave: of the preemptor's own, or of others."""
        tree, own = self._rules.tree, limit == "preemptWithin"
        kept = self._rules.within if own else self._rules.not_for_shares
        names = [name for name, job in jobs.items() if job.spec.queue in kept and (job.spec.queue == preemptor) == own]
        if not names:
            return None
        queue = jobs[names[0]].spec.queue
        above = (tree.by_name[name] for name in tree.path(queue))
        said = next(known for known in above if (known.preempt_within if own else known.reclaimed_for) is not None)
        return Protected(limit, names[0], origin=said.origin, more=len(names) - 1, queue=said.name)


def _keeps_shares(found: PreemptionResult, headroom: QuotaHeadroom) -> bool:
    """Whether for a fair share queues give what they hold above theirs, and at most a job more that leaves them better served."""
    tree, queue = headroom.shares.tree, found.request.candidate.job.spec.queue
    path, given = tree.path(queue), Counter[QuotaLine]()
    for victim in found.victims:
        theirs = victim.holder.job.spec.queue
        for gpu_type, milli in victim.holder.charge.items() if theirs != queue else ():
            given.update({line: milli for line in tree.lines(theirs, gpu_type) if line.queue not in path})
    for line, milli in given.items():
        use = headroom.shares.used.get(line, 0) + headroom.taken.get(line, 0)
        above = use - headroom.shares.fair.get(line, 0)
        spare = dict(to_spare(headroom, queue, line.gpu_type)).get(line.queue, 0)
        if milli > max(0, above) and (above <= 0 or milli >= spare):
            return False
    return True


def _of_budgets(held: Iterable[Job], until: Instant | None) -> Protected:
    """The first by name of jobs that may not leave, whatever policy says."""
    first, *others = sorted({owner_of(job.name): job for job in held}.items())
    return Protected("disruptionBudget", first[0], until=until, more=len(others), budget=first[1].held_by)


def _leaving(found: PreemptionResult) -> Iterator[Job]:
    yield from (victim.holder.job for victim in found.victims)
    yield from (move.mover.job for move in found.moves)


def _each(limits: Sequence[ProtectedBy]) -> Iterator[tuple[ProtectedBy, ...]]:
    """Some of the limits, fewer of them first."""
    return chain.from_iterable(combinations(limits, count) for count in range(1, len(limits) + 1))
