"""The order of a round: entitled demand with what may be evicted for it, then fair shares likewise, then what is left over.

Each tier is first decided on what is free. What then still waits inside the tier's shares may have others evicted; victims
are settled there, before anything is handed out below, so that nothing is evicted for a lower tier's sake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import groupby
from typing import Self

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.sharing import Sharing
from solver.milp.certificate import Proof, layer_results, loose_bounds, with_victims
from solver.milp.optimiser import Optimiser
from solver.milp.preemption_decision import PreemptionDecision, can_serve, can_state
from solver.milp.prices import fit_for
from solver.milp.start_decision import PendingDecision, StartDecision, begin
from solver.model.cluster import GpuType
from solver.model.parts import owner_of
from solver.model.quantities import MILLI_PER_GPU
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot, charged
from solver.model.workload import JobName, QueueName
from solver.placement.fit import Fit
from solver.placement.growth import LINES, grow_all
from solver.placement.placement import PlacedGang, least_tasks
from solver.placement.starts import JobStart, held_by, layer_names, layer_values
from solver.placement.strain import strain_of
from solver.plan.plan import Certificate
from solver.policy.policy import Policy
from solver.policy.reclaim import preempts_from, reclaims_below
from solver.policy.tree import QuotaLine
from solver.preemption.attempts import Attempts
from solver.preemption.consolidation import ConsolidationSearch
from solver.preemption.eviction import Preemptor
from solver.preemption.eviction_candidates import EvictionCandidates
from solver.preemption.eviction_rules import EvictionRules
from solver.preemption.growth_search import GrowthSearch
from solver.preemption.new_nomination import NewNomination
from solver.preemption.spared_victims import SparedVictims
from solver.preemption.trial import leave
from solver.queueing.demand import StartCandidate, SubLayer, sub_layers_of
from solver.queueing.strict_queues import Lines
from solver.quota.allocation_table import Charges
from solver.quota.entitlement import Charge, QuotaHeadroom, Shares, charge_of_tasks
from solver.quota.host_guarantees import HeldAlone
from solver.quota.host_shares import sum_of, tasks_with_shapes
from solver.quota.users import UserRoom, beside_least
from solver.quota.vacated import COUNTED, GUARANTEED, Tier, lines_of, tiers_in
from solver.round.compaction import compacted
from solver.round.growing_gangs import awaited_types, fit_beside, in_gangs, kept_to_domains, missing_tasks, with_domains
from solver.round.unneeded_evictions import spared

SPARED_PROMISES_MAX = 100
"""Promises of rounds in which each try whether a victim can stay places all of them anew; of more, that of its own job alone."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Which jobs start, which are promised what, and how good that is. `shares` and `room` are those that the starts count against.

    `proof`: states what may be asked to know better how good it is. `displacing`: as in `Preemptor`.
    `growth`, `growth_promises`: tasks that join running gangs inside their
    guarantees, now or once others have left, each as a job of its own.
    """

    starts: tuple[JobStart, ...]
    promises: tuple[NewNomination, ...]
    certificate: Certificate
    shares: Shares
    room: FreeCapacity
    proof: Callable[[], Proof] | None = None
    displacing: Mapping[JobName, Tier] = field(default_factory=dict)
    growth: tuple[JobStart, ...] = ()
    growth_promises: tuple[NewNomination, ...] = ()

    @property
    def nominations(self) -> tuple[NewNomination, ...]:
        """What is promised to jobs that wait, and to gangs that grow."""
        return (*self.promises, *self.growth_promises)

    def take(self, room: FreeCapacity) -> None:
        """Everything that is given to a job is no other's."""
        for start in (*self.starts, *self.growth):
            room.occupy(start.held)
        for promise in self.nominations:
            promise.take(room)


@dataclass(frozen=True)
class RoundContext:
    """What a round is decided on, with the program and without. `departing`: jobs that are evicted in any case.

    `room`: what is free; `soon`: what will be once all jobs that were asked to stop have stopped. `standing_back`: jobs that are
    not to start or grow, since they would in vain; `staying`: jobs that are not to leave.
    """

    snapshot: Snapshot
    policy: Policy
    candidates: Sequence[StartCandidate]
    shares: Shares
    departing: frozenset[JobName]
    sharing: Sharing
    room: FreeCapacity
    soon: FreeCapacity
    kept: RoundCache
    standing_back: Collection[JobName] = ()
    staying: frozenset[JobName] = frozenset()

    @cached_property
    def evictable(self) -> EvictionCandidates:
        """Which jobs may leave, and for which."""
        rules = EvictionRules.of(self.snapshot, self.policy, self.shares, self.kept)
        return EvictionCandidates(replace(rules, staying=self.staying), self.kept)


@dataclass(slots=True)
class RoundState:
    """A round while it is decided: what is settled already, and what the rest may count on.

    `asked`: what starts on what is free, once that is waited for; `told`: how each answer so far came about; `displacing`: as in
    `Preemptor`. `confirmed`: jobs that start as the answer has it, because a tier before this one found nothing better. `gaps`: by
    layer, how much more the program says could be reached at most.
    """

    ground: RoundContext
    optimiser: Optimiser | None
    waiting: tuple[StartCandidate, ...]
    room: FreeCapacity
    soon: FreeCapacity
    shares: Shares
    starts: list[JobStart]
    promises: list[NewNomination]
    fit_of: Callable[[], Fit | None]
    moving: ConsolidationSearch
    asked: PendingDecision = field(init=False)
    told: list[Certificate] = field(default_factory=list)
    displacing: dict[JobName, Tier] = field(default_factory=dict)
    by_program: set[JobName] = field(default_factory=set)
    confirmed: frozenset[JobName] = frozenset()
    gaps: dict[str, float] = field(default_factory=dict)
    growth: list[JobStart] = field(default_factory=list)
    growth_promises: list[NewNomination] = field(default_factory=list)

    @classmethod
    def begin(cls, ground: RoundContext, optimiser: Optimiser | None) -> Self:
        """Ask which jobs start on what is free."""
        snapshot, policy, shares, candidates = ground.snapshot, ground.policy, ground.shares, ground.candidates
        room, limits = ground.room.copy(), policy.scheduling.solver
        fit_of = cache(partial(fit_for, snapshot, room, ground.sharing, limits, optimiser, ground.kept))
        moving = ConsolidationSearch(snapshot, policy, shares, ground.sharing)
        waiting = tuple(candidate for candidate in candidates if candidate.job.name not in ground.standing_back)
        begun = cls(ground, optimiser, waiting, room, ground.soon, shares, [], [], fit_of, moving)
        begun.ask()
        return begun

    def ask(self) -> None:
        """Have the best found for waiting jobs, on what is free."""
        limits = self.ground.policy.scheduling.solver
        self.asked = begin(self.waiting, self.room, self.shares, limits, self.optimiser, self.fit_of)

    def end(self) -> Decision:
        """Wait for the starts, have others leave for jobs that still wait, and pack fractions where they divide fewer GPUs."""
        decision = self._decided()
        fit = self.fit_of() if decision.starts else None
        if fit is None:
            return decision
        return replace(decision, starts=compacted(decision.starts, decision.nominations, decision.room, fit))

    def _decided(self) -> Decision:
        if self.asked.by_program:
            _ = self.ground.evictable  # Jobs that still wait will need it, and the program takes its time.
        room, answer = self.room, self.answer()
        for tier in tiers_in(self.shares.tree):
            if len(answer.starts) < len(self.waiting) and self.evict_for(tier, answer):
                if tier in GUARANTEED:
                    self._grow_settled()
                self.ask()
                answer = self.answer()
            if tier == "entitled" and self.grow(answer):
                self.ask()
                answer = self.answer()
        if self.promises or self.growth_promises:
            self._spare(answer)
        else:
            self._grow_beyond(answer)
        given = self.promises or self.starts or self.growth or self.growth_promises
        if given or self.ground.standing_back:
            return _conclude(self, answer, room)
        return Decision(answer.starts, (), answer.certificate, self.shares, room, answer.proof)

    def _grow_beyond(self, answer: StartDecision) -> None:
        """Where no job leaves, what a tier has settled at its least size takes its part of what all starts leave free."""
        if not any(start.candidate.can_grow for start in self.starts):
            return
        room, headroom, users = self.room.copy(), QuotaHeadroom(self.shares), UserRoom(self.shares.users)
        for start in answer.starts:
            room.occupy(start.held)
            headroom.take(start.queue, start.charge)
            users.take(start.candidate.job, start.charge, start.beside)
        for lines in LINES:
            self.starts = grow_all(self.starts, room, headroom, users, lines)

    def _spare(self, answer: StartDecision) -> None:
        """Have jobs stay that need not leave once all is decided."""
        starts = [*self.starts, *self.growth, *answer.starts]
        soon = self.ground.soon.copy()
        for start in starts:
            soon.occupy(start.held)
        nominations = [*self.promises, *self.growth_promises]
        ground = self.ground
        spared = SparedVictims(
            ground.policy, ground.evictable, soon, ground.shares, starts, self.displacing, nominations
        )
        if len(nominations) <= SPARED_PROMISES_MAX:
            spared.spare_all()
        else:
            spared.spare_apart()
        count = len(self.promises)
        self.promises, self.growth_promises = spared.nominations[:count], spared.nominations[count:]

    def answer(self) -> StartDecision:
        """What was asked for."""
        answer = self.asked.answer()
        self.told.append(answer.by)
        return answer

    def evict_for(self, tier: Tier, answer: StartDecision) -> bool:
        """Promise devices to jobs that still wait inside the tier; returns whether any job was promised some.

        Sub-layer by sub-layer: what the answer starts inside the tier stays, then the others of the sub-layer are served.
        What the answer starts below the tier is decided anew.
        """
        started = _names_of(answer.starts)
        making, covered = self._by_program(tier, answer)
        making.beginning = answer.starts
        inside = {
            start.candidate.job.name: start for start in inside_tier(answer.starts, tier, QuotaHeadroom(self.shares))
        }
        # A job that can start without harm needs no victims, even where it is outside the tier until others have left.
        done = covered | self.confirmed | _names_of(making.starts)
        for _, group in groupby(self.waiting, key=lambda candidate: candidate.sub_layer):
            alike = tuple(c for c in group if c.job.name not in done and self._may_claim(c, tier))
            if tier == "entitled":
                making.serve_all(list(overtaken(alike, inside)), tier)
            ousted = {name for name in _names(alike) if name in inside and not making.keep(self._ungrown(inside[name]))}
            served = _names_of(making.starts) | {promise.job.name for promise in making.promises}
            left = (c for c in alike if c.job.name not in served)
            making.serve_all([c for c in left if c.job.name not in started or c.job.name in ousted], tier)
        if tier == "entitled" and making.promises:
            making.serve_firm(candidate for candidate in self.waiting if candidate.job.name not in started | done)
        by_program = covered & _names_of(making.starts)
        # Work that is not preemptible starts inside its guarantee where the answer sees it beyond.
        ahead = {name for name in _names_of(making.starts) if name in making.displacing}
        # What starts beyond its own queue's guarantee is no layer of the answer.
        claimed = _names_of(making.starts) if tier not in COUNTED else frozenset[JobName]()
        is_new = bool(making.promises) or not by_program | ahead | claimed <= started
        if is_new:
            self._settle(making)
        self.confirmed = frozenset() if is_new else self.confirmed | by_program
        return is_new

    def grow(self, answer: StartDecision) -> bool:
        """Have running gangs grow inside their guarantees; returns whether any does that would not on what the answer leaves free.

        All that starts inside a guarantee comes before, all that lies beyond one after.
        """
        ground = self.ground
        gangs = kept_to_domains(ground.snapshot, ground.kept)
        self.room, self.soon = with_domains(gangs, self.room), with_domains(gangs, self.soon)
        making = self._making_room()
        missing = missing_tasks(
            *(
                ground.snapshot,
                ground.policy,
                self.waiting,
                _names_of(answer.starts),
                self.shares,
                self.room,
                ground.kept,
            )
        )
        # A gang that is asked to leave, to shrink or to move does not grow meanwhile; nor one that would shrink again.
        busy = making.gone.union(ground.standing_back)
        tasks = [task for task in missing if owner_of(task.job.name) not in busy]
        is_settled = len(answer.starts) == len(self.waiting) and fit_beside(tasks, answer.starts, self.room)
        if not tasks or is_settled:
            return False
        inside = _names_of(self._inside(answer.starts, "entitled")) | self.confirmed
        self._keep(making, [start for start in answer.starts if start.candidate.job.name in inside])
        kept = len(making.starts)
        started, now = _names_of(answer.starts), ground.snapshot.time
        left = [candidate for candidate in self.waiting if candidate.job.name not in started]
        awaited = awaited_types(left, ground.policy, self.shares, now)
        if not self._grow_by_program(making, tasks, awaited):
            GrowthSearch(making).serve_all(tasks, awaited)
        starts = in_gangs(making.starts[kept:], ground.snapshot)
        if starts or making.promises:
            self._settle_growth(starts, making.promises)
        return bool(starts or making.promises)

    def _has_to_wait(self, candidate: StartCandidate) -> bool:
        """Whether others do not leave for it yet."""
        opens = preempts_from(self.ground.policy, self.shares.tree, candidate.job)
        return opens is not None and opens > self.ground.snapshot.time

    def _grow_settled(self) -> None:
        """What starts inside guarantees, or was promised its place there, grows inside them before anything beyond them starts."""
        before = [*self.starts, *(promise.start for promise in self.promises)]
        if not any(start.candidate.can_grow for start in before):
            return
        count, room = len(self.starts), self.room.copy()
        headroom, users, after = self._grown(before, room)
        promised = [new.joined(old) for old, new in zip(before[count:], after[count:], strict=True)]
        # What starts now may have GPUs partitioned anew for it; nothing of these is there yet to be promised.
        if any(PlacedGang(more, 0.0).pledged(self.room.partitions, room) for more in promised):
            room = self.room.copy()
            headroom, users, after = self._grown(self.starts, room)
            after += before[count:]
        self.soon = self.soon.copy()
        for old, new in zip(before, after, strict=True):
            self.soon.occupy(held_by(new.candidate.job.spec, new.option, new.joined(old)))
        self.room, self.shares = room, _with_more(self.shares, headroom, users)
        self.starts = after[:count]
        self.promises = [
            replace(promise, start=start) for promise, start in zip(self.promises, after[count:], strict=True)
        ]

    def _grown(self, starts: Sequence[JobStart], room: FreeCapacity) -> tuple[QuotaHeadroom, UserRoom, list[JobStart]]:
        """What is settled, with the tasks that join it in a room inside the guarantees, and what these leave of quota."""
        headroom, users = QuotaHeadroom(self.shares), UserRoom(self.shares.users)
        grown = grow_all(starts, room, headroom, users, lambda left: left.entitled)
        return headroom, users, grown

    def _grow_by_program(
        self, making: Preemptor, tasks: Sequence[StartCandidate], awaited: Collection[GpuType]
    ) -> bool:
        if self.optimiser is None or not can_state(making):
            return False
        for evicts in (False, True):
            # What is free comes first: others leave for what finds no place there, GPU for GPU.
            joining = {job.name for job, _ in making.served}
            left = [task for task in tasks if task.job.name not in joining]
            if evicts and awaited:
                left = [task for task in left if task.options[0].charge.keys().isdisjoint(awaited)]
            decision = PreemptionDecision(making, "entitled", left, grows=True, evicts=evicts)
            if not decision.serve(self.optimiser, self.ground.policy.scheduling.solver):
                return False
        self.by_program.update(name for promise in making.promises for name in promise.asked)
        return True

    def _settle_growth(self, starts: Sequence[JobStart], promises: Sequence[NewNomination]) -> None:
        self.growth += starts
        self.growth_promises += promises
        self.room, self.soon = self.room.copy(), self.soon.copy()
        for promise in promises:
            for victim in promise.victims:
                leave(self.soon, victim.holder.job)
        given = [*starts, *(promise.start for promise in promises)]
        for room in (self.room, self.soon):
            for start in given:
                room.occupy(start.held)
        headroom = QuotaHeadroom(_less_beside(self.shares.without(_charges(promises)), promises))
        users = UserRoom(headroom.shares.users)
        for start in given:
            headroom.take(start.queue, start.charge)
            users.take(start.candidate.job, start.charge)
        self.shares = _with_more(headroom.shares, headroom, users)

    def _by_program(self, tier: Tier, answer: StartDecision) -> tuple[Preemptor, frozenset[JobName]]:
        """Have the program serve the jobs of which it knows all rules; returns what it did, and of which jobs it decided."""
        making = self._beside_confirmed(answer, tier)
        kept = self.confirmed | _names_of(making.starts)
        waiting = (c for c in self.waiting if c.job.name not in kept and self._may_claim(c, tier))
        # Else one that has waited has others leave, and what is free goes to one that has not.
        started = _names_of(answer.starts)
        early = [
            candidate
            for candidate in self.waiting
            if candidate.job.name not in started
            and self._has_to_wait(candidate)
            and not making.preemptor(candidate, tier).overdue
        ]
        left_out = frozenset(_names(early))
        able = [candidate for candidate in waiting if can_serve(candidate) and candidate.job.name not in left_out]
        if self.optimiser is None or not able or not can_state(making):
            return making, frozenset()
        decision = PreemptionDecision(making, tier, able)
        concerned = [start for start in answer.starts if start.candidate.job.name in decision.concerned]
        if len(concerned) == len(decision.concerned) == len(list(self._inside(concerned, tier))):
            self._keep(making, concerned)
            return making, _decided(making, able)
        if not decision.serve(self.optimiser, self.ground.policy.scheduling.solver):
            return making, frozenset()
        if not making.promises and self._worth(concerned, tier) >= self._worth(making.starts):
            # As many start without it, where that was decided for all of them together.
            making = self._beside_confirmed(answer, tier)
            self._keep(making, concerned)
            return making, _decided(making, able)
        self.by_program.update(name for promise in making.promises for name in promise.asked)
        self.gaps |= _with_left_out(decision.gaps, tier, early)
        return making, _decided(making, able)

    def _beside_confirmed(self, answer: StartDecision, tier: Tier) -> Preemptor:
        """What starts whatever the tier decides; what lies inside the queues' own guarantees before what is claimed in common."""
        making, first = self._making_room(), self.confirmed
        if tier == "shared":
            first |= _names_of(self._inside(answer.starts, "entitled"))
        if tier == "fair":
            first |= _names_of(inside_tier(answer.starts, "entitled", QuotaHeadroom(self.shares)))
        if tier == "value":
            first |= _names_of(answer.starts)
        kept = [self._ungrown(start) for start in answer.starts if start.candidate.job.name in first]
        # Beyond guarantees nothing is handed out before gangs have grown inside them.
        for start in kept if tier in GUARANTEED else self._grown_inside(kept):
            making.keep(start)
        return making

    def _may_claim(self, candidate: StartCandidate, tier: Tier) -> bool:
        """Whether it asks for anything in a tier: for what is shared only below a queue that shares it."""
        tree, queue = self.shares.tree, candidate.job.spec.queue
        if tier == "value":
            known = self.ground.policy.priority_class(candidate.job)
            return reclaims_below(tree, queue, known) is not None
        if tier != "shared":
            return True
        kinds = {kind for option in candidate.options for kind in option.charge}
        if not any(sum(option.charge.values()) for option in candidate.options):
            return bool(self.shares.host.guarantees.sharing(HeldAlone(queue, beside_least(candidate.job.spec))))
        return any(tree.sharing(QuotaLine(queue, kind)) is not None for kind in kinds)

    def _keep(self, making: Preemptor, starts: Iterable[JobStart]) -> None:
        for start in starts:
            making.keep(self._ungrown(start))

    def _grown_inside(self, starts: Sequence[JobStart]) -> Sequence[JobStart]:
        """Those that start beside each other, with the tasks that join them inside their guarantees on what is free."""
        if not any(start.candidate.can_grow for start in starts):
            return starts
        room, headroom, users = self.room.copy(), QuotaHeadroom(self.shares), UserRoom(self.shares.users)
        for start in starts:
            room.occupy(start.held)
            headroom.take(start.queue, start.charge)
            users.take(start.candidate.job, start.charge, start.beside)
        return grow_all(starts, room, headroom, users, lambda left: left.entitled)

    def _worth(self, starts: Iterable[JobStart], tier: Tier | None = None) -> list[float]:
        """By sub-layer, the GPUs of starts that lie inside a tier as a whole; None: all of them do."""
        worth = dict.fromkeys(sub_layers_of(self.waiting), 0.0)
        for start in starts if tier is None else self._inside(starts, tier):
            worth[start.candidate.sub_layer] += start.candidate.weight * start.option.worth
        return [round(value, 6) for value in worth.values()]

    def _inside(self, starts: Iterable[JobStart], tier: Tier) -> Iterator[JobStart]:
        """The starts that lie inside a tier to the last GPU; none without GPUs, which lie inside none."""
        headroom = QuotaHeadroom(self.shares)
        lines = lines_of(headroom, tier)
        for start in starts:
            if any(start.option.charge.values()) and lines.holds(start.queue, start.option.charge):
                headroom.take(start.queue, start.option.charge)
                yield start

    def _ungrown(self, start: JobStart) -> JobStart:
        """The start at its least size: no job is evicted so that another can grow."""
        spec = start.candidate.job.spec
        least = least_tasks(spec)
        sizes = {group.name: count for group, count in zip(spec.task_groups, least, strict=True)}
        tasks = tuple(task for task in start.placed.tasks if task.index < sizes[task.group])
        # Fewer tasks may lie closer together.
        return replace(start, placed=PlacedGang(tasks, strain_of(self.room, spec, tasks)), tasks=least)

    def _making_room(self) -> Preemptor:
        headroom, users = QuotaHeadroom(self.shares), UserRoom(self.shares.users)
        promises = (*self.promises, *self.growth_promises)
        gone = set(self.ground.departing).union(*(promise.asked for promise in promises))
        rooms, lines = (self.room.copy(), self.soon.copy()), Lines(self.waiting)
        attempts = Attempts(self.ground.evictable, *rooms, headroom, users, lines)
        return Preemptor(self.ground.snapshot, self.ground.policy, attempts, gone, self.moving)

    def _settle(self, making: Preemptor) -> None:
        self.starts += making.starts
        self.promises += making.promises
        self.displacing |= making.displacing
        done = {start.candidate.job.name for start in making.starts} | {promise.job.name for promise in making.promises}
        self.waiting = tuple(candidate for candidate in self.waiting if candidate.job.name not in done)
        self.room, self.soon = making.attempts.room, making.attempts.soon
        self.shares = shares_after(making)


def overtaken(alike: Sequence[StartCandidate], inside: Mapping[JobName, JobStart]) -> Iterator[StartCandidate]:
    """Those that would wait though later ones of their queue start, which all together get fewer GPUs: a small job costs its queue
    no gang.
    """
    later = Counter[QueueName]()
    found = list[StartCandidate]()
    for candidate in reversed(alike):
        queue, name = candidate.job.spec.queue, candidate.job.name
        if name in inside:
            later[queue] += sum(inside[name].option.charge.values())
        elif 0 < later[queue] < max((sum(option.charge.values()) for option in candidate.options), default=0):
            found.append(candidate)
    yield from reversed(found)


def _decided(making: Preemptor, able: Iterable[StartCandidate]) -> frozenset[JobName]:
    """The jobs that the program decided: all that it could serve; but it drains no GPU to partition it anew, as the search may."""
    if making.attempts.soon.partitions:
        return frozenset(job.name for job, _ in making.served)
    return frozenset(candidate.job.name for candidate in able)


def _names_of(starts: Iterable[JobStart]) -> set[JobName]:
    return {start.candidate.job.name for start in starts}


def _with_left_out(gaps: Mapping[str, float], tier: Tier, left_out: Iterable[StartCandidate]) -> dict[str, float]:
    """By layer how many more GPUs could at most be served, if these could be by moving others, which the program was not asked."""
    more = dict(gaps)
    for candidate in left_out:
        layer = f"{tier}.{candidate.sub_layer}"
        if layer in more:
            more[layer] += candidate.weight * max(option.worth for option in candidate.options)
    return more


def _names(candidates: Iterable[StartCandidate]) -> list[JobName]:
    return [candidate.job.name for candidate in candidates]


def _conclude(this: RoundState, answer: StartDecision, room: FreeCapacity) -> Decision:
    starts, promises = (*this.starts, *answer.starts), _needed(this, answer)
    growth, growing = tuple(this.growth), tuple(this.growth_promises)
    shares, candidates = this.ground.shares, this.ground.candidates
    after = _less_beside(shares.without(_charges((*promises, *growing))), (*promises, *growing))
    sub_layers = sub_layers_of(candidates)
    served = (*starts, *(promise.start for promise in promises))
    displacing = [start for start in served if start.candidate.job.name in this.displacing]
    held = after.beside([(start.queue, start.option.charge) for start in displacing])
    others = [start for start in served if start.candidate.job.name not in this.displacing]
    values = layer_values(others, sub_layers, held, displacing)
    values = _with_displacing(values, sub_layers, displacing, this.displacing)
    # What no answer could exceed bounds these values: every job is preempted, which makes room inside its own queue's guarantee.
    allocations = this.ground.evictable.allocations
    everybody = Charges(allocations, np.ones(len(allocations.holders), dtype=bool)).items()
    beside = _not_counted_beside(displacing, this.ground.snapshot, this.ground.policy)
    bounds = loose_bounds(candidates, sub_layers, shares.without([*everybody, *beside]))
    gaps = {} if this.ground.standing_back or growth or growing else this.gaps
    bounds = tuple(
        min(bound, value + gaps[name]) if name in gaps else bound
        for name, value, bound in zip(layer_names(sub_layers), values, bounds, strict=True)
    )
    layers = layer_results(values, sub_layers, bounds, None, this.ground.policy.scheduling.solver.gap)
    certificate = with_victims(this.told, layers, (*promises, *growing), this.by_program)
    return Decision(
        starts,
        promises,
        certificate,
        after,
        room,
        displacing=this.displacing,
        growth=growth,
        growth_promises=growing,
    )


def _not_counted_beside(
    displacing: Collection[JobStart], snapshot: Snapshot, policy: Policy
) -> Iterator[tuple[QueueName, Charge]]:
    """What displaces work stands before what was promised in earlier rounds, too; and what is firm, before all that is not."""
    is_firm = any(policy.is_firm(start.candidate.job) for start in displacing)
    types = snapshot.gpu_types
    for job, tasks in charged(snapshot) if displacing else ():
        if job.phase == "pending" or (is_firm and not policy.is_firm(job)):
            yield job.spec.queue, charge_of_tasks(tasks, types)


def _needed(this: RoundState, answer: StartDecision) -> tuple[NewNomination, ...]:
    """The promises without jobs that need not leave for them any more; below a max of CPU or memory all that leave are needed."""
    if this.by_program or this.ground.shares.users.limits_host:
        return tuple(this.promises)
    left = this.soon.copy()
    for start in answer.starts:
        left.occupy(start.held)
    return spared(this.promises, left)


def _with_displacing(
    values: Sequence[float], sub_layers: Sequence[SubLayer], starts: Iterable[JobStart], tiers: Mapping[JobName, Tier]
) -> tuple[float, ...]:
    """The layers, with jobs that displace lower work of their queue: at their least size they are inside before that is."""
    more, place = list(values), {layer: number for number, layer in enumerate(sub_layers)}
    for start in starts:
        candidate, least = start.candidate, sum(start.option.charge.values()) / MILLI_PER_GPU
        for number, tier in enumerate(COUNTED):
            # What lies inside a guarantee is inside the fair share.
            if tiers[candidate.job.name] in ("entitled", tier):
                more[number * len(sub_layers) + place[candidate.sub_layer]] += candidate.weight * least
    return tuple(round(value, 9) for value in more)


def _charges(promises: Iterable[NewNomination]) -> Iterator[tuple[QueueName, Charge]]:
    for promise in promises:
        for victim in promise.victims:
            yield victim.holder.job.spec.queue, victim.holder.charge


def _less_beside(shares: Shares, promises: Iterable[NewNomination]) -> Shares:
    """The shares without what victims hold of CPU and memory below a max of either, and of queues that users share."""
    caps = shares.users
    if not caps.limits_host and not caps.sharing:
        return shares
    used = Counter(caps.used)
    for victim in (victim for promise in promises for victim in promise.victims):
        job, charge = victim.holder.job, victim.holder.charge
        beside = sum_of(shape for _, shape in tasks_with_shapes(job))
        for line, amount in caps.host_charges(job.spec.queue, job.user, beside):
            used[line] -= amount
        for of_user in caps.uncapped(job, charge):
            used[of_user] -= charge[of_user.gpu_type]
    return replace(shares, users=replace(caps, used=used))


def inside_tier(starts: Iterable[JobStart], tier: Tier, headroom: QuotaHeadroom) -> Iterator[JobStart]:
    """The starts that lie, at least in part, inside the tier's shares."""
    for start in starts:
        inside = lines_of(headroom, tier)
        if inside.part(start.queue, start.charge):
            yield start
        headroom.take(start.queue, start.charge)


def shares_after(making: Preemptor) -> Shares:
    """The shares once victims have left and preemptors have come."""
    given = making.attempts
    shares = replace(given.headroom.shares, host=making.settled_host_dues())
    return _less_beside(_with_more(shares, given.headroom, given.users), making.promises)


def _with_more(shares: Shares, headroom: QuotaHeadroom, users: UserRoom) -> Shares:
    """The shares with what was taken of them."""
    used, by_user = Counter(shares.used), Counter(shares.users.used)
    used.update(headroom.taken)
    by_user.update(users.taken)
    return replace(shares.holding(used), users=replace(shares.users, used=by_user))
