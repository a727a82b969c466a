"""The order of a round: entitled demand with what may be evicted for it, then fair shares likewise, then what is left over.

Each tier is first decided on what is free. What then still waits inside the tier's shares may have others evicted; victims
are settled there, before anything is handed out below, so that nothing is evicted for a lower tier's sake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import groupby
from typing import Self

import numpy as np

from solver.capacity.free_capacity import Room
from solver.capacity.sharing import Sharing
from solver.milp.certificate import Proof, layer_results, loose_bounds, with_victims
from solver.milp.optimiser import Optimiser
from solver.milp.prices import fit_for
from solver.milp.start_decision import Answer, Asked, begin
from solver.model.quantities import MILLI_PER_GPU
from solver.model.round_cache import Kept
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName, QueueName
from solver.placement.fit import Fit
from solver.placement.placement import Placed, least_tasks
from solver.placement.starts import Start, layer_values
from solver.placement.strain import strain_of
from solver.plan.plan import Certificate
from solver.policy.policy import Policy
from solver.preemption.attempts import Attempts
from solver.preemption.consolidation import Moving
from solver.preemption.eviction import MakingRoom
from solver.preemption.eviction_candidates import Lawful
from solver.preemption.eviction_rules import Law
from solver.preemption.new_nomination import TIERS, Promise, Tier
from solver.queueing.demand import Candidate, SubLayer, sub_layers_of
from solver.queueing.strict_queues import Lines
from solver.quota.allocation_table import Charges
from solver.quota.entitlement import Charge, Headroom, Shares
from solver.quota.users import UserRoom
from solver.round.compaction import compacted


@dataclass(frozen=True, slots=True)
class Decision:
    """Who starts, who is promised what, and how good that is. `shares` and `room` are those that the starts count against.

    `proof`: states what may be asked to know better how good it is. `displacing`: as in `MakingRoom`.
    """

    starts: tuple[Start, ...]
    promises: tuple[Promise, ...]
    certificate: Certificate
    shares: Shares
    room: Room
    proof: Callable[[], Proof] | None = None
    displacing: Mapping[JobName, Tier] = field(default_factory=dict)

    def take(self, room: Room) -> None:
        """Everything that is given to somebody is nobody else's."""
        for start in self.starts:
            room.occupy(start.held)
        for promise in self.promises:
            promise.take(room)


@dataclass(frozen=True)
class Ground:
    """What a round is decided on, with the program and without. `departing`: who is evicted in any case.

    `room`: what is free; `soon`: what will be once all who were asked to stop have stopped.
    """

    snapshot: Snapshot
    policy: Policy
    candidates: Sequence[Candidate]
    shares: Shares
    departing: frozenset[JobName]
    sharing: Sharing
    room: Room
    soon: Room
    kept: Kept

    @cached_property
    def lawful(self) -> Lawful:
        """Who may leave for whom."""
        return Lawful(Law.of(self.snapshot, self.policy, self.shares, self.kept), self.kept)


@dataclass(slots=True)
class Round:
    """A round while it is decided: what is settled already, and what the rest may count on.

    `asked`: who starts on what is free, once that is waited for; `told`: how each answer so far came about; `displacing`: as in
    `MakingRoom`.
    """

    ground: Ground
    optimiser: Optimiser | None
    waiting: tuple[Candidate, ...]
    room: Room
    soon: Room
    shares: Shares
    starts: list[Start]
    promises: list[Promise]
    fit_of: Callable[[], Fit | None]
    moving: Moving
    asked: Asked = field(init=False)
    told: list[Certificate] = field(default_factory=list)
    displacing: dict[JobName, Tier] = field(default_factory=dict)

    @classmethod
    def begin(cls, ground: Ground, optimiser: Optimiser | None) -> Self:
        """Ask who starts on what is free."""
        snapshot, policy, shares, candidates = ground.snapshot, ground.policy, ground.shares, ground.candidates
        room, limits = ground.room.copy(), policy.scheduling.solver
        fit_of = cache(partial(fit_for, snapshot, room, ground.sharing, limits, optimiser))
        moving, waiting = Moving(snapshot, policy, shares, ground.sharing), tuple(candidates)
        begun = cls(ground, optimiser, waiting, room, ground.soon, shares, [], [], fit_of, moving)
        begun.ask()
        return begun

    def ask(self) -> None:
        """Have the best found for those who wait, on what is free."""
        limits = self.ground.policy.scheduling.solver
        self.asked = begin(self.waiting, self.room, self.shares, limits, self.optimiser, self.fit_of)

    def end(self) -> Decision:
        """Wait for who starts, have others leave for who still waits, and pack fractions where they divide fewer GPUs."""
        decision = self._decided()
        fit = self.fit_of() if decision.starts else None
        if fit is None:
            return decision
        return replace(decision, starts=compacted(decision.starts, decision.promises, decision.room, fit))

    def _decided(self) -> Decision:
        if self.asked.by_program:
            _ = self.ground.lawful  # Who still waits will need it, and the program takes its time.
        room, answer = self.room, self.answer()
        for tier in TIERS if len(answer.starts) < len(self.waiting) else ():
            if self.evict_for(tier, answer):
                self.ask()
                answer = self.answer()
        if self.promises:
            return _conclude(self, answer, room)
        return Decision(answer.starts, (), answer.certificate, self.shares, room, answer.proof)

    def answer(self) -> Answer:
        """What was asked for."""
        answer = self.asked.answer()
        self.told.append(answer.by)
        return answer

    def evict_for(self, tier: Tier, answer: Answer) -> bool:
        """Promise devices to who still waits inside the tier; returns whether anybody was promised any.

        Sub-layer by sub-layer: what the answer starts inside the tier stays, then the others of the sub-layer are served.
        What the answer starts below the tier is decided anew.
        """
        making = self._making_room()
        inside = {start.candidate.job.name: start for start in _inside_tier(answer.starts, tier, Headroom(self.shares))}
        # Who can start without harm needs no victims, even where it is outside the tier until somebody has left.
        started = {start.candidate.job.name for start in answer.starts}
        for _, group in groupby(self.waiting, key=lambda candidate: candidate.sub_layer):
            alike = tuple(group)
            ousted = {name for name in _names(alike) if name in inside and not making.keep(self._ungrown(inside[name]))}
            making.serve_all([c for c in alike if c.job.name not in started or c.job.name in ousted], tier)
        if making.promises:
            self._settle(making)
        return bool(making.promises)

    def _ungrown(self, start: Start) -> Start:
        """The start at its least size: nobody is evicted so that another can grow."""
        spec = start.candidate.job.spec
        least = least_tasks(spec)
        sizes = {group.name: count for group, count in zip(spec.task_groups, least, strict=True)}
        tasks = tuple(task for task in start.placed.tasks if task.index < sizes[task.group])
        # Fewer tasks may lie closer together.
        return replace(start, placed=Placed(tasks, strain_of(self.room, spec, tasks)), tasks=least)

    def _making_room(self) -> MakingRoom:
        headroom, users = Headroom(self.shares), UserRoom(self.shares.users)
        gone = set(self.ground.departing).union(*(promise.asked for promise in self.promises))
        rooms, lines = (self.room.copy(), self.soon.copy()), Lines(self.waiting)
        attempts = Attempts(self.ground.lawful, *rooms, headroom, users, lines)
        return MakingRoom(self.ground.snapshot, self.ground.policy, attempts, gone, self.moving)

    def _settle(self, making: MakingRoom) -> None:
        self.starts += making.starts
        self.promises += making.promises
        self.displacing |= making.displacing
        done = {start.candidate.job.name for start in making.starts} | {promise.job.name for promise in making.promises}
        self.waiting = tuple(candidate for candidate in self.waiting if candidate.job.name not in done)
        self.room, self.soon = making.attempts.room, making.attempts.soon
        self.shares = _holding(making.attempts)


def _names(candidates: Iterable[Candidate]) -> list[JobName]:
    return [candidate.job.name for candidate in candidates]


def _conclude(this: Round, answer: Answer, room: Room) -> Decision:
    starts, promises = (*this.starts, *answer.starts), tuple(this.promises)
    shares, candidates = this.ground.shares, this.ground.candidates
    after = shares.without(_charges(promises))
    sub_layers = sub_layers_of(candidates)
    served = (*starts, *(promise.start for promise in promises))
    displacing = [start for start in served if start.candidate.job.name in this.displacing]
    held = after.beside([(start.queue, start.charge) for start in displacing])
    others = [start for start in served if start.candidate.job.name not in this.displacing]
    values = layer_values(others, sub_layers, held, displacing)
    values = _with_displacing(values, sub_layers, displacing, this.displacing)
    # What no answer could exceed bounds these values: everybody is preempted, which makes room inside its own queue's guarantee.
    holdings = this.ground.lawful.holdings
    everybody = Charges(holdings, np.ones(len(holdings.holders), dtype=bool)).items()
    bounds = loose_bounds(candidates, sub_layers, shares.without(everybody))
    layers = layer_results(values, sub_layers, bounds, None, this.ground.policy.scheduling.solver.gap)
    certificate = with_victims(this.told, layers, promises)
    return Decision(starts, promises, certificate, after, room, displacing=this.displacing)


def _with_displacing(
    values: Sequence[float], sub_layers: Sequence[SubLayer], starts: Iterable[Start], tiers: Mapping[JobName, Tier]
) -> tuple[float, ...]:
    """The layers, with those who displace lower work of their queue: they are inside before that is."""
    more, place = list(values), {layer: number for number, layer in enumerate(sub_layers)}
    for start in starts:
        candidate, gpus = start.candidate, sum(start.charge.values()) / MILLI_PER_GPU
        for number, tier in enumerate(TIERS):
            # What lies inside a guarantee is inside the fair share.
            if tiers[candidate.job.name] in ("entitled", tier):
                more[number * len(sub_layers) + place[candidate.sub_layer]] += candidate.weight * gpus
    return tuple(round(value, 9) for value in more)


def _charges(promises: Iterable[Promise]) -> Iterator[tuple[QueueName, Charge]]:
    for promise in promises:
        for victim in promise.victims:
            yield victim.holder.job.spec.queue, victim.holder.charge


def _inside_tier(starts: Iterable[Start], tier: Tier, headroom: Headroom) -> Iterator[Start]:
    """The starts that lie, at least in part, inside the tier's shares."""
    for start in starts:
        inside = headroom.entitled if tier == "entitled" else headroom.fair
        if inside.part(start.queue, start.charge):
            yield start
        headroom.take(start.queue, start.charge)


def _holding(given: Attempts) -> Shares:
    """The shares once victims have left and takers have come."""
    shares, used = given.headroom.shares, Counter(given.headroom.shares.used)
    used.update(given.headroom.taken)
    by_user = Counter(shares.users.used)
    by_user.update(given.users.taken)
    return replace(shares.holding(used), users=replace(shares.users, used=by_user))
