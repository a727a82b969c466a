"""Which gangs find enough GPUs: a necessary condition of a place, much cheaper to know than the place itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.offers import SLOTS_OF_A_TASK_THAT_NEEDS_NOTHING
from solver.model.amounts import CPU, MEMORY
from solver.model.arrays import Ints, Mask
from solver.model.cluster import GpuType
from solver.model.shape import MigShape, Shape, SharedShape
from solver.queueing.demand import StartCandidate

Way = tuple[Shape, GpuType | None]
"""What a task takes, on which type."""


class CapacityPrefilter:
    """Follows what is free, and tells for many gangs at once which find enough slots under one of their options, group by group.

    `fresh` False: without dividing a GPU that is still whole, or changing how one is partitioned.
    """

    def __init__(self, candidates: Sequence[StartCandidate], room: FreeCapacity, *, fresh: bool = True) -> None:
        self._candidates, self._room, self._fresh = candidates, room, fresh
        ways: dict[Way, int] = {}
        groups: list[tuple[int, int]] = []
        options: list[int] = []
        gangs: list[int] = []
        for candidate in candidates:
            gangs.append(len(options))
            for option in candidate.options:
                options.append(len(groups))
                parts = zip(option.shapes, option.gpu_types, candidate.job.spec.task_groups, strict=True)
                groups += (
                    (ways.setdefault((shape, gpu_type), len(ways)), group.least) for shape, gpu_type, group in parts
                )
        self._groups, self._options, self._gangs = np.array(groups, dtype=np.int64).reshape(-1, 2), options, gangs
        self._in_parts = {way: n for way, n in ways.items() if isinstance(way[0], SharedShape | MigShape)}
        self._whole = [n for way, n in ways.items() if way not in self._in_parts]
        self._slots = np.zeros(len(ways), dtype=np.int64)
        self._counted = _Counted([way for way in ways if way not in self._in_parts], room, fresh)

    def now(self) -> list[StartCandidate]:
        """The candidates that do, as the room is."""
        self._slots[self._whole] = self._counted.now()
        for (shape, gpu_type), number in self._in_parts.items():
            self._slots[number] = self._room.offer(shape, gpu_type, fresh=self._fresh).total
        way, least = self._groups.T
        suffices = np.logical_and.reduceat(self._slots[way] >= least, self._options)
        able = np.flatnonzero(np.logical_or.reduceat(suffices, self._gangs))
        return [self._candidates[number] for number in able.tolist()]


class _Counted:
    """How many tasks of each way all nodes take that are served with whole GPUs: counted again only where nodes have changed."""

    def __init__(self, ways: Sequence[Way], room: FreeCapacity, fresh: bool) -> None:
        self._room, self._fresh = room, fresh
        self._names = (CPU, MEMORY, *sorted({name for shape, _ in ways for name in shape.resources}))
        each = [
            (max(1, shape.gpus) if shape.uses_gpus else 0, *(shape.beside.get(name, 0) for name in self._names))
            for shape, _ in ways
        ]
        self._each = np.array(each, dtype=np.int64).reshape(-1, 1 + len(self._names)).T
        self._usable: Mask = np.array([room.usable(*way) for way in ways], dtype=bool).reshape(-1, len(room.nodes))
        everywhere = np.arange(len(room.nodes))
        self._free, self._mark = self._free_on(everywhere), room.changes.mark
        self._slots: Ints = self._count(self._free, everywhere)

    def now(self) -> Ints:
        changed = self._room.changes.since(self._mark)
        self._mark = self._room.changes.mark
        nodes = np.array(range(len(self._room.nodes)) if changed is None else list(changed), dtype=np.int64)
        before, free = self._free[:, nodes], self._free_on(nodes)
        differs = (before != free).any(axis=0)
        if differs.any():
            nodes, before, free = nodes[differs], before[:, differs], free[:, differs]
            self._slots += self._count(free, nodes) - self._count(before, nodes)
            self._free[:, nodes] = free
        return self._slots

    def _free_on(self, nodes: Ints) -> Ints:
        """GPUs and what is beside them of some nodes: of GPUs, those that can be had as a whole."""
        room = self._room
        gpus = np.maximum(room.free_gpus[nodes], 0)
        if self._fresh and room.partitions.unused:
            unused = np.zeros(len(room.nodes), dtype=np.int64)
            unused[list(room.partitions.unused)] = list(room.partitions.unused.values())
            gpus += unused[nodes]
        return np.stack((gpus, *(room.free_beside[name][nodes] for name in self._names)))

    def _count(self, free: Ints, nodes: Ints) -> Ints:
        slots = np.full((len(self._usable), len(nodes)), SLOTS_OF_A_TASK_THAT_NEEDS_NOTHING, dtype=np.int64)
        for there, each in zip(free, self._each[:, :, np.newaxis], strict=True):
            enough_for = np.maximum(there, 0) // np.maximum(each, 1)
            np.minimum(slots, enough_for, out=slots, where=each > 0)
        counted: Ints = (slots * self._usable[:, nodes]).sum(axis=1)
        return counted
