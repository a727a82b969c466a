"""The jobs that may be evicted for each preemptor, least harm first: judged for all holders at once, and once for like preemptors.

A victim is written as one number, its place in the order of harm among all holders by all means; so victims sort, merge and
are passed over as arrays.

Whether work of another queue may be taken back depends on the two queues alone, and of these only on where their paths meet.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from math import inf

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.model.arrays import Floats, Ints, Mask
from solver.model.cluster import GpuType
from solver.model.parts import owner_of
from solver.model.quantities import MILLI_PER_GPU
from solver.model.round_cache import RoundCache
from solver.model.workload import JobName, QueueName
from solver.policy.harm import MEANS
from solver.preemption.eviction_rules import EvictionRules
from solver.preemption.released_capacity import ReleasedCapacity
from solver.quota.allocation_table import AllocationTable
from solver.quota.victims import BORROWED, STRADDLES, PreemptorJob, Victim

RECLAIM, PREEMPT, TURN, STRADDLE = (MEANS.index(means) for means in ("reclaim", "preempt", "turn", "straddle"))


@dataclass(slots=True)
class EvictionCandidates:
    """The victims that the rules allow, by preemptor: their places in the order of harm, ascending."""

    rules: EvictionRules
    kept: RoundCache = field(default_factory=RoundCache)
    allocations: AllocationTable = field(init=False)
    _priority: Ints = field(init=False)
    _lost_gpu_s: Floats = field(init=False)
    _harm_gpu_s: Floats = field(init=False)
    _preemptible: Mask = field(init=False)
    _evictable: Mask = field(init=False)
    _protected: Mask = field(init=False)
    _held: Mask = field(init=False)
    _standing: Ints = field(init=False)
    _place: Ints = field(init=False)
    _in_order: Ints = field(init=False)
    _gpus: Ints = field(init=False)
    _known: dict[object, Ints] = field(default_factory=dict)
    _freeing: ReleasedCapacity | None = None
    _on_mig_alone: Mask | None = None

    def __post_init__(self) -> None:
        rules = self.rules
        self.allocations = allocations = rules.allocations
        holders, gangs, gang = allocations.holders, allocations.columns, allocations.gang
        self._judge()
        self._priority = gangs.value[gang]
        # How protected it is from its own queue up to each depth.
        self._standing = np.maximum.accumulate(rules.standing[:, ::-1], axis=1)[:, ::-1]
        lost_ms = gangs.unsaved_ms(rules.now) + rules.restart_cost
        self._lost_gpu_s = allocations.gpus / MILLI_PER_GPU * lost_ms[gang] / 1000
        # What work without GPUs loses counts as that of the GPUs whose share it holds.
        self._harm_gpu_s = rules.host.milli / MILLI_PER_GPU * lost_ms[gang] / 1000
        self._gpus = _gpus_at_most(allocations)
        by_harm, places = self._by_harm(rules.rank), rules.precedence.places
        costs = [places[name].cost if name in places else inf for name in allocations.of_gang] if places else []
        by_turn = self._by_harm(-np.array(costs, dtype=float)[gang]) if places else by_harm
        self._in_order = np.concatenate([by_turn if means == TURN else by_harm for means in range(len(MEANS))])
        self._place = np.empty((len(MEANS), len(holders)), dtype=np.int64)
        for means in range(len(MEANS)):
            first = means * len(holders)
            self._place[means, by_turn if means == TURN else by_harm] = np.arange(first, first + len(holders))

    def _judge(self) -> None:
        """By number, who may be evicted at all, who is protected for a while, and who is held by a PodDisruptionBudget."""
        rules, gangs, gang = self.rules, self.allocations.columns, self.allocations.gang
        held = gangs.held & ("disruptionBudget" not in rules.without)
        leaves = gangs.leaves | held | ("disruptionBudget" in rules.without)
        if rules.staying:
            leaves &= ~np.array([name in rules.staying for name in self.allocations.of_gang], dtype=bool)
        until = gangs.until_any_day if "evictionsPerDay" in rules.without else gangs.until
        self._preemptible = (leaves & gangs.preemptible)[gang]
        self._evictable = (leaves & gangs.evictable)[gang]
        self._protected = (until > rules.now)[gang]
        self._held = held[gang]

    def under(self, rules: EvictionRules) -> EvictionCandidates:
        """The same by other protections, those of another time: what evictions cost stays as it is."""
        other = copy(self)
        other.rules, other._known = rules, {}
        other._judge()
        return other

    def _by_harm(self, ranks: Floats | Ints) -> Ints:
        """The holders' numbers from the least harm up, where the means are the same; as `Victim.harm` sorts."""
        held = self.allocations
        order: Ints = np.lexsort((held.by_name, -held.place, held.gpus, self._harm_gpu_s, ranks))
        return order

    @property
    def countable(self) -> Mask:
        """By number, who holds no part of a GPU."""
        return self.allocations.countable

    @property
    def protected(self) -> set[JobName]:
        """Jobs that leave for no guarantee but one that has waited for too long."""
        kept = np.flatnonzero(self._protected | self._held)
        return {owner_of(self.allocations.holders[n].job.name) for n in kept.tolist()}

    def released(self, room: FreeCapacity) -> ReleasedCapacity:
        """What nodes get back from whom; the same for all rooms of a round."""
        if self._freeing is None:
            self._freeing = ReleasedCapacity(self.allocations.gangs, self.allocations.parts, room, self.kept)
        return self._freeing

    def on_mig_alone(self, room: FreeCapacity) -> Mask:
        """By number, who holds parts of GPUs on nodes all of whose GPUs are in MIG mode: leaving makes none of these whole."""
        if self._on_mig_alone is None:
            whole = {node.name for node in room.nodes if any(gpu.instances is None for gpu in node.gpus)}
            found = ~self.countable
            for number in np.flatnonzero(found).tolist():
                found[number] = whole.isdisjoint(task.node for task in self.allocations.holders[number].job.placement)
            self._on_mig_alone = found
        return self._on_mig_alone

    def harm_gpu_s(self, number: int) -> float:
        """What evicting a holder throws away, in GPU-seconds; without GPUs, of those whose share of CPU or memory it holds."""
        return float(self._harm_gpu_s[number])

    def gpus_of(self, leaving: Mask) -> dict[GpuType, int]:
        """By type at most how many GPUs nobody has any part of any more once these have left."""
        return dict(zip(self.allocations.gpu_types, self._gpus[leaving].sum(axis=0).tolist(), strict=True))

    def holders_of(self, places: Ints) -> Ints:
        """The numbers of the holders that are meant."""
        numbers: Ints = self._in_order[places]
        return numbers

    def place_of(self, number: int, means: int) -> int:
        """The place in the order of harm of a holder that is evicted by some means."""
        return int(self._place[means, number])

    def is_reclaim(self, places: Ints) -> Mask:
        """Of each place in the order of harm, whether it is that of borrowed work which leaves for others."""
        found: Mask = places // len(self.allocations.holders) == RECLAIM
        return found

    def is_borrowed(self, number: int, depth: int) -> bool:
        """Whether a holder is beyond its guarantees from its queue up to a depth of the tree."""
        return bool(self._standing[number, depth] == BORROWED)

    def victim(self, place: int) -> Victim:
        """The victim at a place in the order of harm."""
        number = int(self._in_order[place])
        holder, means = self.allocations.holders[number], MEANS[place // len(self.allocations.holders)]
        rank: float = self.rules.ranks[holder.job.spec.queue, holder.base_priority]
        if means == "turn":
            rank = -self.rules.precedence.places[owner_of(holder.job.name)].cost
        return Victim(holder, means, rank, float(self._lost_gpu_s[number]))

    def of_its_own(self, preemptor: PreemptorJob) -> Ints:
        """Work of the preemptor's queue. Where jobs take turns, who gives way depends on who comes."""
        key, precedence = self.likeness(preemptor), self.rules.precedence
        if key not in self._known:
            own = self._numbers(preemptor.job.spec.queue)
            # What a gang holds beyond its minima yields to the minima of others of its value, too.
            is_part = self.allocations.base[own] != own
            lower = self._priority[own] < preemptor.base_priority + is_part
            # No GPU leaves for work without GPUs.
            yields = self._preemptible[own] & (preemptor.has_gpus | self.rules.host.alone[own])
            junior = self._junior(own, lower, preemptor)
            below = own[yields & junior]
            freely = self._free(overdue=preemptor.overdue, past_budgets=preemptor.past_budgets, waited=preemptor.waited)
            found = [self._place[PREEMPT, below[freely[below]]]]
            if self._takes_turn(preemptor):
                # Nobody's guarantee waits for a turn: what protects holds however long the preemptor has waited.
                others = own[yields & ~lower & ~junior]
                name, holders = preemptor.job.name, self.allocations.holders
                later = [n for n in others.tolist() if precedence.yields(owner_of(holders[n].job.name), name)]
                turns = np.array(later, dtype=np.int64)
                found.append(
                    self._place[
                        TURN, turns[self._free(overdue=False, past_budgets=False, waited=preemptor.waited)[turns]]
                    ]
                )
            self._known[key] = np.sort(np.concatenate(found))
        return self._known[key]

    def _junior(self, own: Ints, lower: Mask, preemptor: PreemptorJob) -> Mask:
        """Of work of a preemptor's queue, what leaves for it: what is lower by value, as far as the queue says nothing else."""
        within = self.rules.within.get(preemptor.job.spec.queue)
        if within is None or (within == "never" and "preemptWithin" in self.rules.without):
            return lower
        if within == "never":
            return np.zeros(len(own), dtype=bool)
        holders = (self.allocations.holders[number] for number in own.tolist())
        newer = [holder.job.submitted_at > preemptor.job.submitted_at for holder in holders]
        junior: Mask = lower | ((self._priority[own] == preemptor.base_priority) & np.array(newer, dtype=bool))
        return junior

    def likeness(self, preemptor: PreemptorJob) -> object:
        """The same for preemptors for whom the same may have to leave."""
        turn = self.rules.precedence.places[preemptor.job.name] if self._takes_turn(preemptor) else None
        claims = preemptor.overdue, preemptor.past_budgets, preemptor.exceeds, preemptor.has_gpus, preemptor.waited
        seniority = self.rules.seniority(preemptor.job, preemptor.base_priority)
        return preemptor.job.spec.queue, seniority, claims, preemptor.claims_from, preemptor.below, turn

    def _takes_turn(self, preemptor: PreemptorJob) -> bool:
        return preemptor.job.name in self.rules.precedence.in_turn

    def _free(self, *, overdue: bool, past_budgets: bool, waited: bool) -> Mask:
        """By number, whom nothing keeps from a preemptor that may pass over what protects, or over PodDisruptionBudgets.

        From one that has not `waited` for long enough everybody is protected.
        """
        return ((~self._protected & waited) | overdue) & (~self._held | past_budgets)

    def _kept_from_shares(self) -> Mask:
        """By number, whose queue gives nothing for fair shares of others."""
        kept = np.zeros(len(self.allocations.holders), dtype=bool)
        for queue in self.rules.not_for_shares if "reclaimedFor" not in self.rules.without else ():
            kept[self.allocations.own.get(queue, slice(0, 0))] = True
        return kept

    def _numbers(self, queue: QueueName) -> Ints:
        own = self.allocations.own[queue]
        return np.arange(own.start, own.stop)

    def beside(
        self,
        branch: QueueName,
        *,
        overdue: bool,
        past_budgets: bool = False,
        straddling: bool = True,
        exceeds: bool = False,
        has_gpus: bool = True,
        waited: bool = True,
        fair: bool = False,
        value_below: int | None = None,
    ) -> Ints:
        """Work of other queues: of those below the parent of a branch on the preemptor's path, but not in it.

        So whoever comes from that branch may have the same; all branches of a path together have all other queues beside them.
        `straddling` False: nobody who is in part inside a guarantee. `exceeds`: the preemptor asks for more CPU or memory than its
        GPUs carry; then it takes nothing from jobs that hold more than theirs carry, and are inside their guarantees by GPUs.
        `has_gpus` False: the preemptor has no GPUs, so nobody leaves for it that has some. `waited` False: it has not waited for
        long enough yet. `fair`: it takes for its fair share, or by its value.
        `value_below`: of that, work of a lower value of scope `cluster`.
        """
        key = (branch, overdue, past_budgets, straddling, exceeds, has_gpus, waited, fair, value_below)
        if key not in self._known:
            path, below = self.rules.tree.path(branch), self.allocations.below
            around = below[path[1]] if len(path) > 1 else slice(0, len(self.allocations.holders))
            numbers = np.concatenate(
                [np.arange(around.start, below[branch].start), np.arange(below[branch].stop, around.stop)]
            )
            may = (self._evictable & self._free(overdue=overdue, past_budgets=past_budgets, waited=waited))[numbers]
            if fair:
                may &= ~self._kept_from_shares()[numbers]
            if value_below is not None:
                compares = (self.allocations.holders[n].priority_class.scope == "cluster" for n in numbers.tolist())
                may &= (self._priority[numbers] < value_below) & np.fromiter(compares, dtype=bool, count=len(numbers))
            numbers = numbers[may & (has_gpus | self.rules.host.alone[numbers])]
            standing = self._standing[numbers, len(path) - 1] if len(numbers) else numbers
            found = [self._place[RECLAIM, numbers[standing == BORROWED]]]
            if straddling:
                crosses = standing == STRADDLES
                if not exceeds:
                    crosses |= self.rules.host.exceeds[numbers] & (standing != BORROWED)
                found.append(self._place[STRADDLE, numbers[crosses & self._preemptible[numbers]]])
            self._known[key] = np.sort(np.concatenate(found))
        return self._known[key]


def _gpus_at_most(allocations: AllocationTable) -> Ints:
    """By holder and type, of how many GPUs it has all, or some part."""
    gpus = allocations.charge // MILLI_PER_GPU
    in_parts = ~allocations.countable
    gpus[in_parts] = allocations.has[in_parts] * allocations.devices[in_parts, None]
    return gpus
