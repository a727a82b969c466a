"""What nodes get back when holders leave: GPUs, and what is beside them, of those who hold whole GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.model.amounts import CPU, MEMORY, Amounts
from solver.model.arrays import Ints
from solver.model.cluster import Node
from solver.model.kept_columns import KeptColumns, Rows
from solver.model.round_cache import RoundCache
from solver.model.shape import Shape
from solver.model.workload import Job
from solver.quota.victims import HeldGang

NOTHING = Shape()

ALIKE_MAX = 4096
"""What tasks take of other resources is numbered: of so many kinds of it, most are of jobs that are long gone."""


class ReleasedCapacity:
    """What each holder gives back when it leaves, as arrays: sorted by node, with the number of the `holder`; and by that number.

    Nothing is said of who holds parts of GPUs.
    """

    def __init__(self, gangs: Sequence[HeldGang], parts: Ints, room: FreeCapacity, kept: RoundCache) -> None:
        """`parts`: of each gang, how many holders it is."""
        releases = kept.lasting("released by gangs", _KeptReleases)
        (part, *self._rows), count = releases.of(gangs, room)
        node, gpus, *_ = self._rows
        holder = np.repeat(np.cumsum(parts) - parts, count) + part
        self._by_node = np.argsort(node, kind="stable")
        self.holder, self.node, self.gpus = (of[self._by_node] for of in (holder, node, gpus))
        self._first = np.searchsorted(holder, np.arange(int(parts.sum()) + 1)).tolist()
        self._kinds = releases.kinds
        self._of: dict[tuple[str, ...], dict[int, list[tuple[int, ...]]]] = {}

    def of(self, number: int, names: tuple[str, ...]) -> list[tuple[int, ...]]:
        """What a holder gives back: nodes, each with GPUs, and then what is called so beside them."""
        known = self._of.setdefault(names, {})
        found = known.get(number)
        if found is None:
            rows = slice(self._first[number], self._first[number + 1])
            columns = (*self._rows[:2], *map(self._amounts, names))
            found = known[number] = list(zip(*(of[rows].tolist() for of in columns), strict=True))
        return found

    def beside(self, name: str) -> Ints:
        """How much each gives back of what is called so, sorted by node."""
        amounts: Ints = self._amounts(name)[self._by_node]
        return amounts

    def _amounts(self, name: str) -> Ints:
        _, _, cpu, memory, kind = self._rows
        if name == CPU:
            return cpu
        if name == MEMORY:
            return memory
        of_kind = np.array([resources.get(name, 0) for resources in self._kinds], dtype=np.int64)
        return of_kind[kind]


class _KeptReleases:
    """What gangs give back, carried from round to round: worked out anew where a gang or one of its nodes is another."""

    def __init__(self) -> None:
        self._columns = KeptColumns[HeldGang](6)
        self._nodes: tuple[Node, ...] = ()
        self.kinds: dict[Amounts, int] = {}

    def of(self, gangs: Sequence[HeldGang], room: FreeCapacity) -> Rows:
        """By gang: the number of the holder among its own, the node, GPUs, CPU, memory, and which of `kinds` it is beside."""
        if len(self.kinds) > ALIKE_MAX:
            self._columns, self.kinds = KeptColumns[HeldGang](6), {}
        nodes, before = room.nodes, self._nodes
        names = [node.name for node in nodes]
        changed = {node.name for node, was in zip(nodes, before, strict=False) if node is not was and node != was}
        self._nodes = nodes

        def is_stale(gang: HeldGang) -> bool:
            return any(task.node in changed for holder in gang.holders for task in holder.job.placement)

        return self._columns.of(
            gangs, lambda gang: self._freed(gang, room), names, is_stale=is_stale if changed else None
        )

    def _freed(self, gang: HeldGang, room: FreeCapacity) -> Iterator[tuple[int, ...]]:
        """By each of its parts that has no part of a GPU."""
        for part, (holder, whole) in enumerate(zip(gang.holders, gang.whole, strict=True)):
            for released in self._of_job(holder.job, room) if whole else ():
                yield part, *released

    def _of_job(self, job: Job, room: FreeCapacity) -> Iterator[tuple[int, int, int, int, int]]:
        shapes = {group.name: group.shape for group in job.spec.task_groups}
        for task in job.placement:
            number = room.index.get(task.node)
            if number is not None and (node := room.nodes[number]).schedulable:
                devices, shape = task.devices, shapes.get(task.group, NOTHING)
                healthy = [gpu.healthy and gpu.instances is None and gpu.id in devices for gpu in node.gpus].count(True)
                kind = self.kinds.setdefault(shape.resources, len(self.kinds))
                yield number, healthy, int(shape.cpu), int(shape.memory), kind
