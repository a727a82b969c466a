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
    """Who may leave for any of the preemptors, and what they leave. `soon`: the room once all have left who were asked before.

    `moves`: how many jobs may move in a round; which they are is left open. `lower`: by preemptor, what work of its own queue is
    charged that may leave for it.
    """

    evictable: EvictionCandidates
    preemptors: Iterable[PreemptorJob]
    soon: FreeCapacity
    moves: int
    lower: Mapping[JobName, Charge] = field(init=False)
    leaving: Mask = field(init=False)
    _gpus: Ints = field(init=False)

    def __post_init__(self) -> None:
        preemptors = tuple(self.preemptors)
        self.lower, self.leaving = self._lower(preemptors), self._leaving(preemptors)
        released = self.evictable.released(self.soon)
        gone = self.leaving[released.holder]
        self._gpus = self.soon.free_gpus.copy()
        np.add.at(self._gpus, released.node[gone], released.gpus[gone])
        # GPUs in parts may be made whole, or are counted by their parts elsewhere: all of their nodes are taken for free.
        for node in {*self.soon.shared, *self.soon.partitions.rules, *self._left_by_who_holds_parts()}:
            self._gpus[node] = len(self.soon.nodes[node].gpus)
        self._gpus[~self.soon.open_nodes] = 0

    def charges(self) -> Mapping[QuotaLine, int]:
        """Milli-GPU that they are charged, by their queue and type."""
        allocations, found = self.evictable.allocations, dict[QuotaLine, int]()
        for queue, own in allocations.own.items():
            milli = allocations.charge[own][self.leaving[own]].sum(axis=0).tolist()
            found |= {
                QuotaLine(queue, known): most for known, most in zip(allocations.gpu_types, milli, strict=True) if most
            }
        return found

    def slots(self, gpu_type: GpuType, gpus: int) -> int:
        """How many tasks of so many whole GPUs there is room for. Whoever moves makes room for larger ones alone."""
        there = self._gpus[self.soon.of_type(gpu_type)] // gpus
        return int(there.sum()) + (self._slots_by_moving(gpus) if gpus > 1 else 0)

    def _left_by_who_holds_parts(self) -> Iterator[int]:
        """The nodes of those who leave and hold a part of a GPU somewhere: nothing of what they leave is counted."""
        for number in np.flatnonzero(self.leaving & ~self.evictable.countable).tolist():
            tasks = self.evictable.allocations.holders[number].job.placement
            yield from (self.soon.index[task.node] for task in tasks if task.node in self.soon.index)

    def _slots_by_moving(self, gpus: int) -> int:
        released, stays = self.evictable.released(self.soon), ~self.leaving
        slots = np.bincount(released.holder, -(-released.gpus // gpus), minlength=len(stays)) * stays
        gangs = (sum(slots[number] for number in gang) for gang in self.evictable.allocations.of_gang.values())
        return int(sum(nlargest(self.moves, gangs)))

    def _lower(self, preemptors: Iterable[PreemptorJob]) -> dict[JobName, Charge]:
        evictable, known = self.evictable, dict[object, Charge]()
        found = dict[JobName, Charge]()
        for preemptor in preemptors:
            alike = evictable.likeness(preemptor)
            if alike not in known:
                milli = (
                    evictable.allocations.charge[evictable.holders_of(evictable.of_its_own(preemptor))]
                    .sum(axis=0)
                    .tolist()
                )
                known[alike] = {
                    kind: most for kind, most in zip(evictable.allocations.gpu_types, milli, strict=True) if most
                }
            found[preemptor.job.name] = known[alike]
        return found

    def _leaving(self, preemptors: Iterable[PreemptorJob]) -> Mask:
        evictable, leaving = self.evictable, np.zeros(len(self.evictable.allocations.holders), dtype=bool)
        alike = {evictable.likeness(preemptor): preemptor for preemptor in preemptors}
        for preemptor in alike.values():
            leaving[evictable.holders_of(evictable.of_its_own(preemptor))] = True
        for branch, overdue in sorted(set(_branches(evictable, alike.values()))):
            leaving[evictable.holders_of(evictable.beside(branch, overdue=overdue))] = True
        return evictable.allocations.with_all_parts(leaving)


def _branches(evictable: EvictionCandidates, preemptors: Iterable[PreemptorJob]) -> Iterator[tuple[QueueName, bool]]:
    for preemptor in preemptors:
        yield from ((branch, preemptor.overdue) for branch in evictable.rules.tree.path(preemptor.job.spec.queue))
