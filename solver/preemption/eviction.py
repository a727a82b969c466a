"""Preemption: for each waiting job in turn, the fewest and least harmful victims that the rules allow.

Means come in the order of harm: free capacity, a fallback type, jobs that move (solver/preemption/consolidation), then victims from
the least harm up. A preemptor is nominated for the devices it will have; it is bound in a later round, when its victims are gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.reserved_view import seen
from solver.model.cluster import GpuType
from solver.model.parts import owner_of
from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot, charged
from solver.model.workload import Job, JobName, QueueName
from solver.placement.placement import PlacedGang, has_place, least_tasks
from solver.placement.starts import JobStart
from solver.policy.harm import Evictions
from solver.policy.policy import Policy
from solver.policy.reclaim import (
    budgets_hold_for,
    may_reclaim_fair_share,
    preempts_from,
    reclaim_within,
    reclaims_below,
)
from solver.policy.tree import QuotaLine
from solver.preemption.attempts import Attempts
from solver.preemption.consolidation import ConsolidationSearch, Move
from solver.preemption.fewest import Fewest
from solver.preemption.givers import Givers, VictimSet
from solver.preemption.host_claim import FOR_SHARES_MAX, HostClaim, alone_among, left_alone
from solver.preemption.new_nomination import NewNomination
from solver.preemption.trial import PlacementRequest, PreemptionResult, leave
from solver.preemption.unserved import Alike, Unserved
from solver.queueing.demand import StartCandidate
from solver.quota.entitlement import Charge, charge_of_tasks
from solver.quota.fairshare import fairer, only_above_shares
from solver.quota.host_dues import HostDues
from solver.quota.host_guarantees import HeldAlone
from solver.quota.users import beside_least
from solver.quota.vacated import COUNTED, GUARANTEED, Tier, holds_more
from solver.quota.victims import PreemptorJob, Victim


@dataclass(slots=True)
class Preemptor:
    """Evictions of one round. `attempts`: what is left to give, and what it would do.

    `gone`: jobs that this round has asked to leave, or to shrink. `strictly`: no more GPUs leave for a preemptor than it gets,
    as the program has it wherever that serves it. `displacing`: preemptors that got something though their queue
    holds more than its share, by lower work, which stands behind them; each with its tier. `beginning`: what starts on what is free
    as far as is known.
    """

    snapshot: Snapshot
    policy: Policy
    attempts: Attempts
    gone: set[JobName]
    moving: ConsolidationSearch
    starts: list[JobStart] = field(default_factory=list)
    promises: list[NewNomination] = field(default_factory=list)
    displacing: dict[JobName, Tier] = field(default_factory=dict)
    strictly: bool = False
    beginning: tuple[JobStart, ...] = ()
    _host_dues: tuple[tuple[int, int], HostDues, HostDues] | None = None
    _for_host_shares: int = 0
    _lent_to: dict[JobName, int] = field(default_factory=dict)
    _unserved: Unserved = field(default_factory=Unserved)
    _refused: bool = False
    _firm_total: Counter[QuotaLine] | None = None
    _firm_counted: tuple[int, int] = (0, 0)
    _within: dict[QueueName, tuple[Duration, Duration]] = field(default_factory=dict)
    givers: Givers = field(init=False)

    def __post_init__(self) -> None:
        self.givers = Givers(self.attempts.evictable)
        self.givers.ask(self.gone)

    def serve_all(self, candidates: Sequence[StartCandidate], tier: Tier) -> None:
        """Serve them in order; again while somebody was promised something, since a victim may have freed more than was used."""
        waiting, promised = list(candidates), -1
        self._unserved.begin()
        while promised < len(self.promises) and waiting:
            promised = len(self.promises)
            self._unserved.begin_again()
            for candidate in waiting:
                self.serve(candidate, tier)
            served = {start.candidate.job.name for start in self.starts} | {known.job.name for known in self.promises}
            waiting = [candidate for candidate in waiting if candidate.job.name not in served]

    def serve_firm(self, candidates: Iterable[StartCandidate]) -> None:
        """Promise jobs that are not preemptible what others left that came later, inside their guarantees beside such work alone.

        All others come to it for their fair shares.
        """
        served = {job.name for job, _ in self.served}
        for candidate in candidates:
            if candidate.job.name not in served and self.policy.is_firm(candidate.job):
                found, claimed = self._as_it_is(self._firm(candidate, "entitled"))
                if found:
                    self.give(found, claimed)

    def serve(self, candidate: StartCandidate, tier: Tier) -> None:
        """Start a preemptor where it can now, else promise it its devices with the least harm found, if there are any for it."""
        preemptor = self.preemptor(candidate, tier)
        seniority = self.attempts.evictable.rules.seniority(candidate.job, preemptor.base_priority)
        alike = (candidate.likeness, tier, preemptor.overdue, preemptor.past_budgets, preemptor.waited, seniority)
        if (candidate.inside_only and tier != "entitled" and preemptor.has_gpus) or self._unserved.fails_again(
            candidate, alike
        ):
            return
        self._refused = False
        if not preemptor.has_gpus:
            self._serve_without_gpus(candidate, preemptor, tier, alike)
            return
        found, claimed = self._find(candidate, preemptor, tier)
        if found is None:
            self._unserved.add(candidate, alike, was_refused=self._refused)
            return
        self.give(found, claimed)
        if found.victims:
            self._name_once()
        if tier in GUARANTEED:
            self._lend(found)

    def give(self, found: PreemptionResult, claimed: FreeCapacity | None) -> JobStart:
        """Start a job where it can now, else promise it its devices. `claimed`: the room in which its place is taken already."""
        request = found.request
        start = JobStart(request.candidate, request.option, found.placed, least_tasks(request.candidate.job.spec))
        if claimed is self.attempts.room:
            self.starts.append(start)
        else:
            self.promises.append(NewNomination(start, found.victims, request.tier, found.moves, found.pledged))
        self._keep(start, found, claimed)
        return start

    def _name_once(self) -> None:
        """What a gang gives up in a round leaves for one job: for the first of those that are promised some of its tasks."""
        latest, others = self.promises[-1], list[Victim]()
        for victim in latest.victims:
            first = self._lent_to.setdefault(owner_of(victim.name), len(self.promises) - 1)
            if self.promises[first] is latest:
                others.append(victim)
            else:
                known = self.promises[first]
                self.promises[first] = replace(known, victims=(*known.victims, victim))
        self.promises[-1] = replace(latest, victims=tuple(others))

    def would_serve(self, candidate: StartCandidate, tier: Tier) -> PreemptionResult | None:
        """What a preemptor would get, without giving it that; None: nothing."""
        if candidate.inside_only and tier != "entitled":
            return None
        with self.attempts.room.trying(), self.attempts.soon.trying():
            return self._find(candidate, self.preemptor(candidate, tier), tier)[0]

    def _find(
        self, candidate: StartCandidate, preemptor: PreemptorJob, tier: Tier
    ) -> tuple[PreemptionResult | None, FreeCapacity | None]:
        """What a preemptor gets with the least harm, and in which room its place is taken already."""
        requests = self._wishes(candidate, preemptor, tier)
        inside = [request for request in requests if self.attempts.lies_inside(request, {})]
        allowed = [request for request in inside if self.attempts.is_below_limits(request, {})]
        found, claimed = self._as_it_is(allowed or self._firm(candidate, tier))
        if found is None and not inside and tier in COUNTED:
            found, claimed = self._before_lower_work(requests, preemptor)
        if requests and found is None:
            found = next(self._with_harm(requests, allowed, preemptor, tier), None)
        return found, claimed

    def _serve_without_gpus(self, candidate: StartCandidate, preemptor: PreemptorJob, tier: Tier, alike: Alike) -> None:
        """Have work leave that has no GPUs either; what is not for a guarantee once all who wait for GPUs have been served."""
        claim = HostClaim(self.givers, self.host_dues, preemptor, self.host_dues_of_given)
        if tier == "value" or claim.is_inside != (tier == "entitled"):
            return
        if tier == "shared" and (candidate.inside_only or not claim.is_shared):
            return
        for option in candidate.options:
            request = PlacementRequest(candidate, option, "shared" if claim.is_shared else "entitled")
            fits = has_place(seen(self.attempts.soon, candidate.against), candidate.job.spec, option)
            if fits and self.attempts.is_below_limits(request, {}) and claim.is_lent:
                return  # what is free, or will be, is left to all who wait
            may_reclaim = self.may_reclaim(preemptor, tier) and self._for_host_shares < FOR_SHARES_MAX
            for side in claim.sides(may_reclaim=may_reclaim):
                found = Fewest(self.attempts).find_without_gpus(request, side)
                if found and self._keeps_to_limits(found, preemptor) and claim.may(found.victims):
                    self.give(found, None)
                    self._for_host_shares += tier == "fair"
                    return
        self._unserved.add(candidate, alike, was_refused=False)

    def settled_host_dues(self) -> HostDues:
        """The same beside what was given here alone."""
        self.beginning, self._host_dues = (), None
        return self.host_dues

    @property
    def host_dues(self) -> HostDues:
        """What jobs without GPUs are due beside what was given here, and what starts if it still can then."""
        return self._known_host_dues()[0]

    @property
    def host_dues_of_given(self) -> HostDues:
        """The same, if nothing starts but what was given here: what is promised takes of what is free."""
        return self._known_host_dues()[1]

    def _known_host_dues(self) -> tuple[HostDues, HostDues]:
        given = len(self.starts), len(self.promises)
        if self._host_dues is None or self._host_dues[0] != given:
            before, done = self.attempts.headroom.shares.host, {start.candidate.job.name for start in self.starts}
            begin = (start for start in self.beginning if start.candidate.job.name not in done)
            more = alone_among([*self.starts, *(promise.start for promise in self.promises)])
            gone = left_alone(victim for promise in self.promises for victim in promise.victims)
            alone = before.after(more, gone)
            self._host_dues = given, alone.after(alone_among(begin)), alone
        return self._host_dues[1:]

    def _wishes(self, candidate: StartCandidate, preemptor: PreemptorJob, tier: Tier) -> list[PlacementRequest]:
        """The ways in which it would be inside its share if all of its queue left who ever had to in this round: most have none."""
        if not any(sum(option.charge.values()) for option in candidate.options):
            return []
        most = self.givers.own_at_most(preemptor)
        requests = (PlacementRequest(candidate, option, tier) for option in candidate.options)
        return [request for request in requests if self.attempts.lies_inside(request, most)]

    def _firm(self, candidate: StartCandidate, tier: Tier) -> list[PlacementRequest]:
        """The ways in which a job that is not preemptible lies inside its guarantees beside other such work alone."""
        if tier != "entitled" or not self.policy.is_firm(candidate.job):
            return []
        guaranteed, used = self.attempts.headroom.shares.guaranteed, self.firm_used()
        tree, queue = self.attempts.headroom.shares.tree, candidate.job.spec.queue
        requests = [PlacementRequest(candidate, option, tier, displaces=True) for option in candidate.options]
        return [
            request
            for request in requests
            if sum(request.option.charge.values())
            and all(
                milli <= guaranteed.get(line, 0) - used.get(line, 0)
                for kind, milli in request.option.charge.items()
                for line in tree.lines(queue, kind)
            )
            and self.attempts.is_below_limits(request, {})
        ]

    def firm_used(self) -> Mapping[QuotaLine, int]:
        """Milli-GPU that not preemptible work holds, by every queue on its path, with what this round gave to such."""
        used, tree = self._firm_held(), self.attempts.headroom.shares.tree
        given = ((start.candidate.job, start.charge) for start in self.starts[self._firm_counted[0] :])
        promised = ((known.job, known.start.charge) for known in self.promises[self._firm_counted[1] :])
        for job, charge in (*given, *promised):
            if self.policy.is_firm(job):
                for kind, milli in charge.items():
                    for line in tree.lines(job.spec.queue, kind):
                        used[line] += milli
        self._firm_counted = len(self.starts), len(self.promises)
        return used

    def _firm_held(self) -> Counter[QuotaLine]:
        if self._firm_total is None:
            tree, types = self.attempts.headroom.shares.tree, self.snapshot.gpu_types
            self._firm_total = Counter[QuotaLine]()
            for job, tasks in charged(self.snapshot):
                if self.policy.is_firm(job):
                    for kind, milli in charge_of_tasks(tasks, types).items():
                        self._firm_total.update(dict.fromkeys(tree.lines(job.spec.queue, kind), milli))
        return self._firm_total

    def _as_it_is(
        self, requests: Sequence[PlacementRequest]
    ) -> tuple[PreemptionResult, FreeCapacity] | tuple[None, None]:
        """The first of these with a place on what is free now, else on what will be once all have left who were asked to."""
        for room in (self.attempts.room, self.attempts.soon):
            for request in requests:
                found = self.attempts.claim(request, room)
                if found:
                    return found, room
        return None, None

    def _before_lower_work(
        self, requests: Sequence[PlacementRequest], preemptor: PreemptorJob
    ) -> tuple[PreemptionResult, FreeCapacity | None] | tuple[None, None]:
        """A place for a preemptor whose queue holds more than its share, though only by lower work, which stands behind it in line.

        What is free, else the place of that work, GPU for GPU. Else it would take all to leave that lies beyond the share.
        """
        lower = self.givers.own(preemptor).charges
        before = [
            replace(request, displaces=True) for request in requests if self.attempts.could_displace(request, lower)
        ]
        found, claimed = self._as_it_is([request for request in before if self.attempts.is_below_limits(request, {})])
        if found:
            return found, claimed
        patient = preemptor.patient
        for request in before:
            for victims in self._each_lawful(self.givers.own(patient), request, patient):
                found = Fewest(self.attempts).find(request, victims)
                if found and self._keeps_to_limits(found, patient):
                    return found, None
                self._refused |= found is not None
        return None, None

    def keep(self, start: JobStart) -> bool:
        """Hold on to a start that was decided before, if nobody has been given its room since, or what it may have.

        Nor may it pass anybody of its strict queue whom nobody held on to.
        """
        headroom, users, lines = self.attempts.headroom, self.attempts.users, self.attempts.lines
        fits = self.attempts.room.has_free(start.held) and headroom.allows(start.queue, start.charge)
        blocked = users.blocking(start.candidate.job, start.charge, start.beside) or lines.blocker(
            start.candidate, start.option
        )
        if not fits or blocked:
            return False
        if start.inside_only and not headroom.entitled.holds(start.queue, start.charge):
            return False
        self.starts.append(start)
        self.attempts.hold(start)
        return True

    def _with_harm(
        self,
        requests: Sequence[PlacementRequest],
        allowed: Sequence[PlacementRequest],
        preemptor: PreemptorJob,
        tier: Tier,
    ) -> Iterator[PreemptionResult]:
        """How it could be served if others move or leave, the least harmful first; by partitioning what they leave only where
        nothing else does. `allowed`: what it may have even if nobody leaves.
        """
        yield from self._by_moving(allowed)
        requests = self._within_limits(requests, preemptor, tier)
        if not requests:
            return
        yield from self._by_evicting(requests, preemptor, tier)
        drains = [
            replace(request, drains=True) for request in requests if tier == "entitled" and self._may_drain(request)
        ]
        if drains:
            yield from filter(None, (self.attempts.attempt(request, ()) for request in drains))
            yield from self._by_evicting(drains, preemptor, tier)

    def _may_drain(self, request: PlacementRequest) -> bool:
        """Whether GPUs may be partitioned anew for it once others have left: these, or some that are partitioned for nobody."""
        room, ways = self.attempts.room, zip(request.option.shapes, request.option.gpu_types, strict=True)
        partitions = room.partitions
        return partitions.may_drain or (partitions.may_change and any(room.is_partitioned(*way) for way in ways))

    def _within_limits(
        self, requests: Sequence[PlacementRequest], preemptor: PreemptorJob, tier: Tier
    ) -> list[PlacementRequest]:
        """Of these those in which it could be served for all that shares and limits say, if everybody left who may have to now."""
        own = self.givers.own(preemptor).charges
        inside = [request for request in requests if self.attempts.lies_inside(request, own)]
        return [
            request
            for request in inside
            if any(self.attempts.may_without(request, side.leaving) for side in self._sides(preemptor, tier))
        ]

    def _by_evicting(
        self, requests: Sequence[PlacementRequest], preemptor: PreemptorJob, tier: Tier
    ) -> Iterator[PreemptionResult]:
        # Where taking from others would not be fair, its own queue may still make room.
        for side in self._sides(preemptor, tier):
            for request in requests:
                for lawful in self._each_lawful(side, request, preemptor):
                    fewest = Fewest(self.attempts)
                    found = fewest.find(request, lawful)
                    found = found and fewest.with_one_unit(found, lawful)
                    if found and self._keeps_to_limits(found, preemptor) and self._is_fair(found):
                        yield found
                    self._refused |= found is not None

    def _each_lawful(self, side: VictimSet, request: PlacementRequest, preemptor: PreemptorJob) -> Iterator[VictimSet]:
        """Of some who may give way those whose leaving is neither unfair nor too much for what is gained.

        For a fair share first what queues hold above theirs; then any whose leaving alone would do.
        """
        min_gain = self._min_gain(preemptor)
        if min_gain:
            side = self.givers.no_larger(side, ceil(sum(request.option.charge.values()) / min_gain))
        if request.tier in GUARANTEED:
            yield side
            return
        above = self.givers.above_shares(side, request, self.attempts.headroom)
        yield above
        if request.tier == "value":
            return
        fairly = self.givers.fairly(side, request, self.attempts.headroom)
        if not np.array_equal(above.places, fairly.places):  # else it is the same search, and as vain
            yield fairly

    def _sides(self, preemptor: PreemptorJob, tier: Tier) -> Iterator[VictimSet]:
        """Everybody who may have to give way for a preemptor, first without work of its own queue that is itself inside; then
        those of its own queue alone.
        """
        own = self.givers.own(preemptor)
        if not self.may_reclaim(preemptor, tier):
            yield own
            return
        straddling = tier in GUARANTEED
        everybody = self.givers.everybody(preemptor, straddling=straddling, fair=not straddling)
        if tier == "value":
            yield everybody
            return
        if preemptor.exceeds:
            # What it asks for beyond its GPUs' share may come free with GPUs alone.
            yield self.givers.with_gpus(everybody)
        # Each is a part of everybody: where it is all of it, it is not searched twice.
        if straddling:
            others = self.givers.own_inside_last(preemptor, straddling=True)
            if len(others.places) < len(everybody.places):
                yield others
        yield everybody
        if len(own.places) < len(everybody.places):
            yield own

    def may_reclaim(self, preemptor: PreemptorJob, tier: Tier) -> bool:
        """Whether other queues' work may leave for it at all."""
        tree = self.attempts.evictable.rules.tree
        if tier == "value":
            return preemptor.below is not None
        return tier in GUARANTEED or may_reclaim_fair_share(self.policy, tree, preemptor.job.spec.queue)

    def _by_moving(self, requests: Sequence[PlacementRequest]) -> Iterator[PreemptionResult]:
        """Who moves keeps what it has: that takes from nobody."""
        for request in requests:
            found = self._moving_for(request)
            if found:
                yield PreemptionResult(request, (), *found)

    def _moving_for(self, request: PlacementRequest) -> tuple[PlacedGang, tuple[Move, ...]] | None:
        rooms = self.attempts.room, self.attempts.soon
        return self.moving.find(request.candidate, request.option, *rooms, self.gone)

    def preemptor(self, candidate: StartCandidate, tier: Tier) -> PreemptorJob:
        """A candidate as one for which others may have to leave."""
        job = candidate.job
        known = self.policy.priority_class(job)
        queue, tree = job.spec.queue, self.attempts.evictable.rules.tree
        if queue not in self._within:
            self._within[queue] = reclaim_within(self.policy, tree, queue), budgets_hold_for(self.policy, tree, queue)
        overdue, past_budgets = (
            tier in GUARANTEED and self.snapshot.time >= job.submitted_at.after(within)
            for within in self._within[queue]
        )
        carried = self.attempts.evictable.rules.host.shares
        exceeds = any(carried.asks_beyond(job.spec, option) for option in candidate.options)
        has_gpus = any(sum(option.charge.values()) for option in candidate.options)
        # Who grows runs, and waits for nothing.
        opens = None if candidate.sub_layer.growth else preempts_from(self.policy, tree, job)
        waited = opens is None or self.snapshot.time >= opens
        value, source = known.value if known else 0, self._claims_from(candidate) if tier == "shared" else None
        below = reclaims_below(tree, queue, known) if tier == "value" else None
        return PreemptorJob(job, value, overdue, exceeds, has_gpus, past_budgets, waited, source, below)

    def _claims_from(self, candidate: StartCandidate) -> QueueName | None:
        """The queue above whose shared guarantee it may claim; of several, one for each type, the highest."""
        tree, queue = self.attempts.evictable.rules.tree, candidate.job.spec.queue
        kinds = {kind for option in candidate.options for kind in option.charge}
        sharing = {line.queue for kind in kinds if (line := tree.sharing(QuotaLine(queue, kind))) is not None}
        if not any(sum(option.charge.values()) for option in candidate.options):
            held = HeldAlone(queue, beside_least(candidate.job.spec))
            sharing = {line.queue for line, _ in self.attempts.headroom.shares.host.guarantees.sharing(held)}
        return next((name for name in reversed(tree.path(queue)) if name in sharing), None)

    def _keeps_to_limits(self, found: PreemptionResult, preemptor: PreemptorJob) -> bool:
        """Blast radius and gain; neither delays a guarantee that has waited for long enough."""
        limits: Evictions = self.policy.scheduling.evictions
        leaving = {owner_of(victim.name) for victim in found.victims}
        given_up = sum(victim.holder.gpus for victim in found.victims)
        gained = sum(found.request.option.charge.values())
        within_round = limits.per_round is None or len(self.gone | leaving) <= limits.per_round
        may = is_gpu_for_gpu(found) and self._has_right(found)
        within = preemptor.overdue or within_round
        return may and within and gained >= self._min_gain(preemptor) * given_up

    def _has_right(self, found: PreemptionResult) -> bool:
        """Whether it may take from other queues: one that holds more than its share gains no right by its own work's leaving."""
        if all(victim.means not in ("reclaim", "straddle") for victim in found.victims):
            return True
        queue, tier, own = found.request.candidate.job.spec.queue, found.request.tier, Counter[GpuType]()
        for victim in found.victims:
            if victim.means in ("preempt", "turn"):
                own.update(victim.holder.charge)
        held = self.attempts.headroom
        makes_room = {kind: milli for kind, milli in own.items() if not holds_more(held, tier, queue, kind)}
        return self.attempts.lies_inside(found.request, {queue: makes_room})

    def _min_gain(self, preemptor: PreemptorJob) -> float:
        """GPUs that a preemptor gains for each GPU its victims give up, at least; 0: any number."""
        gain = 0.0 if preemptor.overdue else self.policy.scheduling.evictions.min_gain
        return max(gain, 1.0) if self.strictly else gain

    def _is_fair(self, found: PreemptionResult) -> bool:
        """Above a guarantee, work of others is taken back only where the least served become better served."""
        request = found.request
        if request.tier != "fair":
            return True  # By its value it was offered nothing but what queues hold above their fair shares.
        queue, headroom = request.candidate.job.spec.queue, self.attempts.headroom
        losses = [(v.holder.job.spec.queue, v.holder.charge) for v in found.victims if v.means == "reclaim"]
        return only_above_shares(headroom, queue, losses) and fairer(headroom, queue, request.option.charge, losses)

    @property
    def served(self) -> Iterator[tuple[Job, Charge]]:
        """Who was given something so far, and what it costs."""
        yield from ((start.candidate.job, start.charge) for start in self.starts)
        yield from ((known.job, known.start.charge) for known in self.promises)

    def take(self, given: Sequence[tuple[JobStart, PreemptionResult, bool]]) -> None:
        """Start jobs, or nominate them, and have their victims leave, as was decided for all of them together.

        Of each: its start, what it gets, and whether it starts now.
        """
        # One may get what leaves for another: all leave before anybody holds anything.
        for start, found, _ in given:
            self._release(start, found)
        for start, found, starts_now in given:
            if starts_now:
                self.starts.append(start)
            else:
                self.promises.append(
                    NewNomination(start, found.victims, found.request.tier, found.moves, found.pledged)
                )
            self._hold(start, found, None)

    def _keep(self, start: JobStart, found: PreemptionResult, claimed: FreeCapacity | None) -> None:
        self._release(start, found)
        self._hold(start, found, claimed)

    def _release(self, start: JobStart, found: PreemptionResult) -> None:
        """Who leaves or moves is asked to, and what it holds will be free."""
        attempts = self.attempts
        for victim in found.victims:
            leave(attempts.soon, victim.holder.job)
            self._unserved.open(victim.holder.charge)
            self._ask(owner_of(victim.name))
        for move in found.moves:
            move.mover.leave(attempts.soon)
            self._unserved.open(move.mover.charge)
            self._ask(move.name)
        if start.candidate.strict:
            self._unserved.open([None])
        attempts.charge_less(found.victims)

    def _hold(self, start: JobStart, found: PreemptionResult, claimed: FreeCapacity | None) -> None:
        attempts = self.attempts
        if found.request.displaces:
            self.displacing[start.candidate.job.name] = found.request.tier
        attempts.hold(start, found.pledged, claimed, displaces=found.request.displaces)
        self.moving.keep(found.moves, (attempts.room, attempts.soon))

    def _lend(self, found: PreemptionResult) -> None:
        """Have gangs that shrink for a guarantee lend more of what they borrowed: what the first job could have had, too."""
        tree, queue = self.attempts.evictable.rules.tree, found.request.candidate.job.spec.queue
        asked, lenders = {victim.name for victim in found.victims}, dict[JobName, QueueName]()
        for victim in found.victims:
            if victim.means == "reclaim" and owner_of(victim.name) not in asked:
                lenders[owner_of(victim.name)] = victim.holder.job.spec.queue
        for gang, theirs in lenders.items():
            paths = zip(tree.path(queue)[::-1], tree.path(theirs)[::-1], strict=False)
            depth = next((depth for depth, (mine, other) in enumerate(paths) if mine != other), None)
            if depth is not None:
                self.givers.lend(gang, asked, depth)

    def _ask(self, name: JobName) -> None:
        self.gone.add(name)
        self.givers.ask((name,))


def is_gpu_for_gpu(found: PreemptionResult) -> bool:
    """Whether no more GPUs leave than it gets, but for the rest of one job, be that all of it or some of its tasks."""
    gangs, gained = Counter[JobName](), sum(found.request.option.charge.values())
    for victim in found.victims:
        gangs[owner_of(victim.name)] += victim.holder.gpus
    return gangs.total() <= gained or gangs.total() - max(gangs.values()) < gained
