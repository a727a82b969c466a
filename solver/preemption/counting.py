"""Whether a preemptor fits once certain victims have left, by counting: no placement, and no copy of what is free.

Of a preemptor that is one group of tasks with whole GPUs, without bundles and spreads, and of victims with whole GPUs, counting
says it all: it fits where as many tasks do as it needs, in one domain where it requires one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.model.arrays import Ints, Mask, begins, running_sums
from solver.placement import homogeneous_gangs as plain
from solver.preemption.eviction_candidates import EvictionCandidates
from solver.preemption.trial import PlacementRequest


def says_it_all(request: PlacementRequest, room: FreeCapacity) -> bool:
    """Whether counting decides that a preemptor fits."""
    return can_count(request) and plain.says_it_all(room, request.candidate.job.spec, request.option)


def can_count(request: PlacementRequest) -> bool:
    """Whether a preemptor fits wherever counting finds room, which it does on nodes whose GPUs are never in parts."""
    if request.drains or request.candidate.against or not request.option.shapes[0].gpus:
        return False
    return plain.is_homogeneous(request.candidate.job.spec, request.option)


def could_fit(request: PlacementRequest, room: FreeCapacity) -> bool:
    """Whether a preemptor of whom counting says it all fits as it is."""
    spec = request.candidate.job.spec
    return plain.has_room(room, spec, request.option, spec.task_groups[0].least)


class Counting:
    """How many tasks of a preemptor fit that does not as it is, once holders have left, and while some of them come back."""

    def __init__(self, request: PlacementRequest, room: FreeCapacity, evictable: EvictionCandidates) -> None:
        spec = request.candidate.job.spec
        self._room, self._holdings, self._freeing = room, evictable.allocations, evictable.released(room)
        shape, gpu_type = request.option.shapes[0], request.option.gpu_types[0]
        beside = {name: need for name, need in shape.beside.items() if need}
        self._names, self._needs = tuple(beside), (shape.gpus, *beside.values())
        self._needed = spec.task_groups[0].least
        self._usable = room.usable(shape, gpu_type)
        self._at_first = room.slots(shape, gpu_type, fresh=False)
        level = spec.effective_topology.required
        self._domain_at = room.topology[level].of_node if level else np.zeros(len(room.nodes), dtype=np.int64)
        self._in_domain: list[int] = _added_up(self._domain_at, self._at_first).tolist()
        self._able = 0
        self._free: dict[int, tuple[int, ...]] = {}
        self._slots: dict[int, int] = {}
        self._slots_at_first: dict[int, int] = {}
        self._domain_of: dict[int, int] = {}

    @property
    def fits(self) -> bool:
        """Whether the preemptor does now."""
        return bool(self._able)

    def fewest(self, holders: Ints) -> int | None:
        """How many of the holders have to leave, the first of them first, until the preemptor fits; None if all are too few."""
        when = self._when_they_leave(holders)[self._freeing.holder]
        leaves = (when < len(holders)) & self._usable[self._freeing.node]
        when, node = when[leaves], self._freeing.node[leaves]
        order = np.lexsort((when, node))
        when, node = when[order], node[order]
        first = begins(node)
        fitting = self._fitting(
            [free[node] + running_sums(first, freed[leaves][order]) for free, freed in self._free_and_freed()]
        )
        before = np.empty_like(fitting)
        before[1:] = fitting[:-1]
        before[first] = self._at_first[node[first]]
        more = fitting - before
        return self._first_that_suffices(when[more > 0], self._domain_at[node[more > 0]], more[more > 0])

    def _first_that_suffices(self, when: Ints, domain: Ints, more: Ints) -> int | None:
        """`more` slots in these domains, each `when` so many have left already."""
        order = np.lexsort((when, domain))
        when, domain = when[order], domain[order]
        first = begins(domain)
        enough = np.array(self._in_domain)[domain] + running_sums(first, more[order]) >= self._needed
        return int(when[enough].min()) + 1 if enough.any() else None

    def _when_they_leave(self, holders: Ints) -> Ints:
        """By number, after how many of these each leaves, by itself or with what it can't be without; `len(holders)`: it stays."""
        base = self._holdings.base
        when = np.full(len(base), len(holders), dtype=np.int64)
        when[holders] = np.arange(len(holders))
        return np.minimum(when, when[base])

    def leave(self, gone: Mask) -> None:
        """All of these have left; nobody has before."""
        released = self._freeing
        leaves = gone[released.holder] & self._usable[released.node]
        node, left = released.node[leaves], list[Ints]()
        touched = np.unique(node)
        for free, freed in self._free_and_freed():
            after = free.copy()
            np.add.at(after, node, freed[leaves])
            left.append(after[touched])
        fitting = self._fitting(left)
        numbers = touched.tolist()
        self._slots = dict(zip(numbers, fitting.tolist(), strict=True))
        self._slots_at_first = dict(zip(numbers, self._at_first[touched].tolist(), strict=True))
        self._domain_of = dict(zip(numbers, self._domain_at[touched].tolist(), strict=True))
        self._free = dict(zip(numbers, zip(*(of.tolist() for of in left), strict=True), strict=True))
        more = _added_up(self._domain_at[touched], fitting - self._at_first[touched])
        for domain, slots in enumerate(more.tolist()):
            self._in_domain[domain] += slots
        self._able = sum(fitting >= self._needed for fitting in self._in_domain)

    def helpful(self) -> Mask:
        """By number, whom of those that left `helps` speaks of; later they are no more."""
        released, able = self._freeing, np.array(self._in_domain) >= self._needed
        now = self._at_first.copy()
        now[list(self._slots)] = list(self._slots.values())
        gained: Mask = (now > self._at_first) & able[self._domain_at]
        helping = np.zeros(len(self._holdings.holders), dtype=bool)
        holders = released.holder[gained[released.node]]
        helping[holders] = helping[self._holdings.base[holders]] = True
        return helping

    def helps(self, number: int) -> bool:
        """Whether more of the preemptor fits where these left, in a domain that takes all of it; else all of them could stay."""
        slots, needed = self._slots, self._needed
        return any(
            node in slots
            and slots[node] > self._slots_at_first[node]
            and self._in_domain[self._domain_of[node]] >= needed
            for part in self._holdings.leaving_with(number)
            for node, *_ in self._freeing.of(part, self._names)
        )

    def change(self, holders: Sequence[int], sign: int) -> None:
        """These leave (1), or come back (-1)."""
        for number in holders:
            self._change(number, sign)

    def _change(self, number: int, sign: int) -> None:
        slots, in_domain = self._slots, self._in_domain
        for node, *freed in self._freeing.of(number, self._names):
            if node not in slots:
                continue
            free = self._free[node] = tuple([has + sign * of for has, of in zip(self._free[node], freed, strict=True)])
            fitting = max(0, min([has // need for has, need in zip(free, self._needs, strict=True)]))
            if fitting != slots[node]:
                domain = self._domain_of[node]
                before = in_domain[domain]
                after = in_domain[domain] = before + fitting - slots[node]
                slots[node] = fitting
                self._able += (after >= self._needed) - (before >= self._needed)

    def _free_and_freed(self) -> Iterator[tuple[Ints, Ints]]:
        """Of all that a task takes what is free on each node, and what each gives back that leaves."""
        yield self._room.free_gpus, self._freeing.gpus
        for name in self._names:
            yield self._room.free_beside[name], self._freeing.beside(name)

    def _fitting(self, free: Sequence[Ints]) -> Ints:
        """How many tasks fit where this is free."""
        fitting = [has // need for has, need in zip(free, self._needs, strict=True)]
        return np.maximum(reduce(np.minimum, fitting), 0)


def _added_up(domain_of: Ints, slots: Ints) -> Ints:
    """Slots by domain."""
    found: Ints = np.bincount(domain_of, weights=slots).astype(np.int64)
    return found
