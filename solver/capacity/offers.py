"""How many tasks of a shape each node and each domain of a room takes: counted once, then kept up to date where nodes change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np

from solver.capacity.changes import ChangeLog
from solver.capacity.free_amounts import FreeAmounts
from solver.capacity.gpu_parts import GpuParts, Parts
from solver.model.arrays import Counts, Ints, Mask
from solver.model.cluster import GpuType, Level
from solver.model.topology import Topology

SLOTS_OF_A_TASK_THAT_NEEDS_NOTHING = 1_000_000
"""A task that takes nothing fits any node any number of times; sums over 100,000 nodes still fit 64 bits."""

KEPT_MAX = 192
"""Shapes of which a room keeps what it offers. Of more, the one that was asked for first is counted anew when it comes again."""

ASKED_MAX = 1_000
"""Shapes that a room remembers its copies were asked for."""

BEHIND_MAX = 1_000
"""A copy of a room does not take over what is further behind: it would have more to read than to count."""

ONE_BY_ONE_MAX = 8
"""So many nodes are brought up to date one after the other; more, all at once."""


class TaskDemand(NamedTuple):
    """What one task takes of a node, and which nodes it may be on: of a type (None: any), and in a set ("": in any).

    `gpus`: of those that are free as a whole now; `beside`: CPU, memory and others, by name; `parts`: what it takes of other GPUs.
    """

    gpus: int
    beside: tuple[tuple[str, int], ...]
    gpu_type: GpuType | None
    node_set: str
    parts: Parts | None = None


class Offer:
    """The tasks of one shape that each node takes by itself, and their sums. One that a room keeps changes when the room does."""

    def __init__(self, slots: Ints | Counts, topology: Topology) -> None:
        self.slots: Counts = slots.astype(np.int32, copy=False)
        self.total = int(slots.sum())
        self._topology = topology
        self._in_domains: dict[Level, Ints] = {}

    def in_domains(self, level: Level) -> Ints:
        """By domain of a level, what its nodes take."""
        if level not in self._in_domains:
            domains = self._topology[level]
            sums = np.bincount(domains.of_node, weights=self.slots, minlength=len(domains.names))
            self._in_domains[level] = sums.astype(np.int64)
        return self._in_domains[level]

    def most(self, level: Level | None) -> int:
        """What the domain of a level takes that takes most; None: all nodes together."""
        return self.total if level is None else int(self.in_domains(level).max(initial=0))

    def copy(self) -> Offer:
        """An independent one."""
        made = Offer.__new__(Offer)
        made.slots, made.total, made._topology = self.slots.copy(), self.total, self._topology
        # Rooms of two threads may have the same one, and one of them add up another level meanwhile.
        made._in_domains = {level: sums.copy() for level, sums in dict(self._in_domains).items()}
        return made

    def within(self, nodes: Mask) -> Offer:
        """That of some of the nodes alone."""
        return Offer(self.slots * nodes, self._topology)

    def put(self, node: int, slots: int) -> None:
        """A node takes so many now."""
        more = slots - int(self.slots[node])
        if more:
            self.slots[node] = slots
            self.total += more
            for level, sums in self._in_domains.items():
                sums[self._topology[level].of_node[node]] += more

    def put_all(self, nodes: Ints, slots: Ints) -> None:
        """Each of these nodes, none of them twice, takes so many now."""
        more = slots - self.slots[nodes]
        if not more.any():
            return
        self.slots[nodes] = slots
        self.total += int(more.sum())
        for level, sums in self._in_domains.items():
            np.add.at(sums, self._topology[level].of_node[nodes], more)


@dataclass(slots=True)
class _Kept:
    """`seen`: how many of the changes it knows. `is_lent`: another room has the same offer, which is not to be changed in place."""

    offer: Offer
    usable: Mask
    seen: int
    is_lent: bool = False


@dataclass(slots=True)
class Offers:
    """What a room offers; `gpus` and `beside` are the room's own of what is free, `parts` what is in parts."""

    topology: Topology
    gpus: Ints
    beside: FreeAmounts
    parts: GpuParts
    changes: ChangeLog
    asked: dict[TaskDemand, None] = field(default_factory=dict)
    """What was counted, in this room or in copies of it: they share it."""
    _known: dict[TaskDemand, _Kept] = field(default_factory=dict)

    def known(self, need: TaskDemand) -> Offer | None:
        """What is kept, as it is now."""
        kept = self._known.get(need)
        if kept is None:
            return None
        if kept.seen < len(self.changes.nodes):
            self._follow(kept, need, set(self.changes.nodes[kept.seen :]))
            kept.seen = len(self.changes.nodes)
        return kept.offer

    def may_reach(self, need: TaskDemand, tasks: int, level: Level | None) -> bool:
        """False where what is kept, be it behind, tells that no domain of a level takes so many tasks."""
        kept = self._known.get(need)
        if kept is None or need.parts is not None or kept.seen < self.changes.gained:
            return True
        # Nothing was given back since: a domain that took too few then takes no more now.
        return kept.offer.most(level) >= tasks

    def count(self, need: TaskDemand, usable: Mask) -> Offer:
        """Count what the usable nodes offer, and keep it."""
        if len(self._known) == KEPT_MAX:
            del self._known[next(iter(self._known))]
        if need.parts is not None:
            usable = usable & need.parts.possible(self.parts)
        slots, nodes = np.zeros(len(usable), dtype=np.int64), np.flatnonzero(usable)
        slots[nodes] = self._among(need, nodes)
        offer = Offer(slots, self.topology)
        if len(self.asked) < ASKED_MAX:
            self.asked[need] = None
        self._known[need] = _Kept(offer, usable, len(self.changes.nodes))
        return offer

    def take_over(self, others: Offers) -> None:
        """Keep what a room keeps of which this one's is a copy, until one of the two changes."""
        self.asked = others.asked
        begin = max(0, len(others.changes.nodes) - BEHIND_MAX)
        self.changes.nodes[:] = others.changes.nodes[begin:]
        self.changes.gained = max(0, others.changes.gained - begin)
        for need, kept in others._known.items():
            if kept.seen >= begin:
                kept.is_lent = True
                self._known[need] = _Kept(kept.offer, kept.usable, kept.seen - begin, is_lent=True)

    def settle(self, usable_of: Callable[[TaskDemand], Mask | None]) -> None:
        """Bring all that is kept up to date, and count what copies were asked for, so that copies to come know it.

        `usable_of`: the nodes that a task may be on; None: they are not known here.
        """
        changed = cache(lambda seen: set(self.changes.nodes[seen:]))
        for need, kept in self._known.items():
            self._follow(kept, need, changed(kept.seen))
            kept.seen = 0
        self.changes.begin()
        for need in list(self.asked):
            usable = None if need in self._known else usable_of(need)
            if usable is not None:
                self.count(need, usable)
        self.asked.clear()

    def forget_sets(self) -> None:
        """The sets of nodes are others now."""
        for need in [need for need in self._known if need.node_set]:
            del self._known[need]

    def back_to(self, mark: int) -> None:
        """All changes but the first so many have been undone."""
        undone = self.changes.back_to(mark)
        for need, kept in self._known.items():
            if kept.seen > mark:
                self._follow(kept, need, undone)
                kept.seen = mark

    def _follow(self, kept: _Kept, need: TaskDemand, changed: Collection[int]) -> None:
        if not changed:
            return
        if kept.is_lent:
            kept.offer, kept.is_lent = kept.offer.copy(), False
        if len(changed) > ONE_BY_ONE_MAX:
            nodes = np.fromiter(changed, dtype=np.int64, count=len(changed))
            nodes = nodes[kept.usable[nodes]]
            kept.offer.put_all(nodes, self._among(need, nodes))
            return
        for node in changed:
            if kept.usable[node]:
                kept.offer.put(node, self._slots_of(need, node))

    def _among(self, need: TaskDemand, nodes: Ints) -> Ints:
        slots = self._limits(need, nodes)
        return slots if need.parts is None else np.minimum(slots, need.parts.among(self.parts, nodes))

    def _limits(self, need: TaskDemand, nodes: Ints) -> Ints:
        """How many tasks some nodes take, but for what they need in parts."""
        count = np.full(len(nodes), SLOTS_OF_A_TASK_THAT_NEEDS_NOTHING, dtype=np.int64)
        for free, each in self._each(need):
            np.minimum(count, np.maximum(free[nodes], 0) // each, out=count)
        return count

    def _slots_of(self, need: TaskDemand, node: int) -> int:
        count = SLOTS_OF_A_TASK_THAT_NEEDS_NOTHING if need.parts is None else need.parts.at(self.parts, node)
        for free, each in self._each(need):
            count = min(count, max(0, int(free[node])) // each)
        return count

    def _each(self, need: TaskDemand) -> Iterator[tuple[Ints, int]]:
        """What is free of all that a task takes, and how much it takes."""
        if need.gpus:
            yield self.gpus, need.gpus
        for name, each in need.beside:
            yield self.beside[name], each
