"""Whether a taker fits once certain victims have left, by counting: no place is sought, and no room copied.

Of a taker that is one group of tasks with whole GPUs, without bundles and spreads, and of victims with whole GPUs, counting says
it all: it fits where as many tasks do as it needs, in one domain where it requires one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from solver import placement
from solver.freed import Freed, FreedNodes, Freeing
from solver.givers import add_charge
from solver.rules.victims import Holder
from solver.trial import Wish
from solver.world.cluster import GpuType
from solver.world.room import Room
from solver.world.workload import Job, JobName, QueueName

UNLIMITED = 1_000_000
"""Tasks that fit a node by what they do not ask for."""


def says_it_all(wish: Wish, room: Room) -> bool:
    """Whether counting decides that a taker fits."""
    if wish.drains or wish.candidate.against or not wish.option.shapes[0].gpus:
        return False
    return placement.says_it_all(room, wish.candidate.job.spec, wish.option)


def could_fit(wish: Wish, room: Room) -> bool:
    """Whether a taker of whom counting says it all fits as it is."""
    spec, (shape, *_) = wish.candidate.job.spec, wish.option.shapes
    offer = room.offer(shape, wish.option.gpu_types[0])
    return offer.most(spec.effective_topology.required) >= spec.task_groups[0].least


def would_fit(wish: Wish, room: Room, freed: Sequence[FreedNodes]) -> bool:
    """Whether it would if nodes got back all this."""
    gpus, cpu, memory = room.free_gpus.copy(), room.free_cpu.copy(), room.free_memory.copy()
    for each in freed:
        gpus[each.nodes] += each.gpus
        cpu[each.nodes] += each.cpu
        memory[each.nodes] += each.memory
    return could_fit(wish, replace(room, free_gpus=gpus, free_cpu=cpu, free_memory=memory))


class Counting:
    """How many tasks of a taker fit while holders leave, and come back. `charges`: what those who left are charged."""

    def __init__(self, wish: Wish, room: Room, freeing: Freeing) -> None:
        spec = wish.candidate.job.spec
        self._room, self._freeing = room, freeing
        self._shape, gpu_type = wish.option.shapes[0], wish.option.gpu_types[0]
        self._needed = spec.task_groups[0].least
        self._usable = room.usable(self._shape, gpu_type)
        slots = room.slots(self._shape, gpu_type)
        level = spec.effective_topology.required
        self._domain_of = room.topology[level].of_node if level else np.zeros(len(slots), dtype=np.int64)
        # What fits where nobody asked is all that is read of these: as lists they are read faster.
        self._in_domain: list[int] = np.bincount(self._domain_of, weights=slots).astype(np.int64).tolist()
        self._able: int = sum(fitting >= self._needed for fitting in self._in_domain)
        self._free: dict[int, Freed] = {}
        self._slots: dict[int, int] = {}
        self._slots_at_first: dict[int, int] = {}
        self._leaving: Counter[JobName] = Counter()
        self.charges: dict[QueueName, dict[GpuType, int]] = {}

    @property
    def fits(self) -> bool:
        """Whether the taker does now."""
        return self._able > 0

    def leave(self, holder: Holder) -> None:
        """The holder leaves, with what can't be without it."""
        for part in self._freeing.leaving_with(holder):
            self._leaving[part.job.name] += 1
            if self._leaving[part.job.name] == 1:
                self._change(part.job, 1)
                add_charge(self.charges.setdefault(part.job.spec.queue, {}), part.charge, 1)

    def come_back(self, holder: Holder) -> None:
        """It stays after all, and so does what would have left for its sake alone."""
        for part in self._freeing.leaving_with(holder):
            self._leaving[part.job.name] -= 1
            if not self._leaving[part.job.name]:
                self._change(part.job, -1)
                add_charge(self.charges[part.job.spec.queue], part.charge, -1)

    def helps(self, holder: Holder) -> bool:
        """Whether more of the taker fits where these left, in a domain that takes all of it; else they could stay, all at once."""
        return any(
            self._slots.get(each.node, 0) > self._slots_at_first.get(each.node, 0)
            and self._in_domain[int(self._domain_of[each.node])] >= self._needed
            for part in self._freeing.leaving_with(holder)
            for each in self._freeing.of(part.job) or ()
        )

    def _change(self, job: Job, sign: int) -> None:
        for node, gpus, cpu, memory in self._freeing.of(job) or ():
            if not self._usable[node]:
                continue
            free = self._free.get(node) or self._first(node)
            now = Freed(node, free.gpus + sign * gpus, free.cpu + sign * cpu, free.memory + sign * memory)
            self._free[node] = now
            self._recount(int(self._domain_of[node]), node, self._fitting(now))

    def _recount(self, domain: int, node: int, fitting: int) -> None:
        before = self._in_domain[domain]
        after = self._in_domain[domain] = before + fitting - self._slots[node]
        self._slots[node] = fitting
        self._able += (after >= self._needed) - (before >= self._needed)

    def _first(self, node: int) -> Freed:
        room = self._room
        free = Freed(node, int(room.free_gpus[node]), int(room.free_cpu[node]), int(room.free_memory[node]))
        self._slots[node] = self._slots_at_first[node] = self._fitting(free)
        return free

    def _fitting(self, free: Freed) -> int:
        shape = self._shape
        return max(
            0,
            min(
                free.gpus // shape.gpus,
                free.cpu // shape.cpu if shape.cpu else UNLIMITED,
                free.memory // shape.memory if shape.memory else UNLIMITED,
            ),
        )
