"""What there would be if everybody left who may lawfully be evicted for one of those who wait: no round takes more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nlargest

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.model.arrays import Ints, Mask
from solver.model.cluster import GpuType
from solver.model.workload import JobName, QueueName
from solver.policy.tree import QuotaLine
from solver.preemption.eviction_candidates import EvictionCandidates
from solver.quota.entitlement import Charge
from solver.quota.victims import PreemptorJob


@dataclass(slots=True)
class Freeable:
    """Who may leave for any of the takers, and what they leave. `soon`: the room once all have left who were asked before.

    `moves`: how many jobs may move in a round; which they are is left open. `lower`: by taker, what work of its own queue is
    charged that may leave for it.
    """

    lawful: EvictionCandidates
    takers: Iterable[PreemptorJob]
    soon: FreeCapacity
    moves: int
    lower: Mapping[JobName, Charge] = field(init=False)
    leaving: Mask = field(init=False)
    _gpus: Ints = field(init=False)

    def __post_init__(self) -> None:
        takers = tuple(self.takers)
        self.lower, self.leaving = self._lower(takers), self._leaving(takers)
        freeing = self.lawful.freeing(self.soon)
        gone = self.leaving[freeing.holder]
        self._gpus = self.soon.free_gpus.copy()
        np.add.at(self._gpus, freeing.node[gone], freeing.gpus[gone])
        # GPUs in parts may be made whole, or are counted by their parts elsewhere: all of their nodes are taken for free.
        for node in {*self.soon.shared, *self.soon.partitions.rules, *self._left_by_who_holds_parts()}:
            self._gpus[node] = len(self.soon.nodes[node].gpus)
        self._gpus[~self.soon.open_nodes] = 0

    def charges(self) -> Mapping[QuotaLine, int]:
        """Milli-GPU that they are charged, by their queue and type."""
        holdings, found = self.lawful.holdings, dict[QuotaLine, int]()
        for queue, own in holdings.own.items():
            milli = holdings.charge[own][self.leaving[own]].sum(axis=0).tolist()
            found |= {
                QuotaLine(queue, known): most for known, most in zip(holdings.gpu_types, milli, strict=True) if most
            }
        return found

    def slots(self, gpu_type: GpuType, gpus: int) -> int:
        """How many tasks of so many whole GPUs there is room for. Whoever moves makes room for larger ones alone."""
        there = self._gpus[self.soon.of_type(gpu_type)] // gpus
        return int(there.sum()) + (self._slots_by_moving(gpus) if gpus > 1 else 0)

    def _left_by_who_holds_parts(self) -> Iterator[int]:
        """The nodes of those who leave and hold a part of a GPU somewhere: nothing of what they leave is counted."""
        for number in np.flatnonzero(self.leaving & ~self.lawful.countable).tolist():
            tasks = self.lawful.holdings.holders[number].job.placement
            yield from (self.soon.index[task.node] for task in tasks if task.node in self.soon.index)

    def _slots_by_moving(self, gpus: int) -> int:
        freeing, stays = self.lawful.freeing(self.soon), ~self.leaving
        slots = np.bincount(freeing.holder, -(-freeing.gpus // gpus), minlength=len(stays)) * stays
        gangs = (sum(slots[number] for number in gang) for gang in self.lawful.holdings.of_gang.values())
        return int(sum(nlargest(self.moves, gangs)))

    def _lower(self, takers: Iterable[PreemptorJob]) -> dict[JobName, Charge]:
        lawful, known = self.lawful, dict[object, Charge]()
        found = dict[JobName, Charge]()
        for taker in takers:
            alike = lawful.likeness(taker)
            if alike not in known:
                milli = lawful.holdings.charge[lawful.holders_of(lawful.of_its_own(taker))].sum(axis=0).tolist()
                known[alike] = {kind: most for kind, most in zip(lawful.holdings.gpu_types, milli, strict=True) if most}
            found[taker.job.name] = known[alike]
        return found

    def _leaving(self, takers: Iterable[PreemptorJob]) -> Mask:
        lawful, leaving = self.lawful, np.zeros(len(self.lawful.holdings.holders), dtype=bool)
        alike = {lawful.likeness(taker): taker for taker in takers}
        for taker in alike.values():
            leaving[lawful.holders_of(lawful.of_its_own(taker))] = True
        for branch, overdue in sorted(set(_branches(lawful, alike.values()))):
            leaving[lawful.holders_of(lawful.beside(branch, overdue=overdue))] = True
        return lawful.holdings.with_all_parts(leaving)


def _branches(lawful: EvictionCandidates, takers: Iterable[PreemptorJob]) -> Iterator[tuple[QueueName, bool]]:
    for taker in takers:
        yield from ((branch, taker.overdue) for branch in lawful.law.tree.path(taker.job.spec.queue))
