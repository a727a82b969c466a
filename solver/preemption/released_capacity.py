"""What nodes get back when holders leave: GPUs, CPU and memory, of those who hold whole GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.model.arrays import Ints
from solver.model.cluster import Node
from solver.model.kept_columns import KeptColumns, Rows
from solver.model.round_cache import RoundCache
from solver.model.shape import Shape
from solver.model.workload import Job
from solver.quota.victims import HeldGang

NOTHING = Shape()


class NodeRelease(NamedTuple):
    """What a node gets back: GPUs, milli-cores and bytes."""

    node: int
    gpus: int
    cpu: int
    memory: int


class ReleasedCapacity:
    """What each holder gives back when it leaves, as arrays: sorted by node, with the number of the `holder`; and by that number.

    Nothing is said of who holds parts of GPUs.
    """

    def __init__(self, gangs: Sequence[HeldGang], parts: Ints, room: FreeCapacity, kept: RoundCache) -> None:
        """`parts`: of each gang, how many holders it is."""
        (part, *rows), count = kept.lasting("released by gangs", _KeptReleases).of(gangs, room)
        holder = np.repeat(np.cumsum(parts) - parts, count) + part
        by_node = np.argsort(rows[0], kind="stable")
        self.holder, (self.node, self.gpus, self.cpu, self.memory) = holder[by_node], [of[by_node] for of in rows]
        self._rows, self._first = np.array(rows).T, np.searchsorted(holder, np.arange(int(parts.sum()) + 1)).tolist()
        self._of: dict[int, list[NodeRelease]] = {}

    def of(self, number: int) -> list[NodeRelease]:
        """What a holder gives back."""
        found = self._of.get(number)
        if found is None:
            rows = self._rows[self._first[number] : self._first[number + 1]].tolist()
            found = self._of[number] = [NodeRelease(*row) for row in rows]
        return found


class _KeptReleases:
    """What gangs give back, carried from round to round: worked out anew where a gang or one of its nodes is another."""

    def __init__(self) -> None:
        self._columns = KeptColumns[HeldGang](5)
        self._nodes: tuple[Node, ...] = ()

    def of(self, gangs: Sequence[HeldGang], room: FreeCapacity) -> Rows:
        """By gang: the number of the holder among its own, the node, GPUs, CPU and memory."""
        nodes, before = room.nodes, self._nodes
        names = [node.name for node in nodes]
        changed = {node.name for node, was in zip(nodes, before, strict=False) if node is not was and node != was}
        self._nodes = nodes

        def is_stale(gang: HeldGang) -> bool:
            return any(task.node in changed for holder in gang.holders for task in holder.job.placement)

        return self._columns.of(gangs, lambda gang: _freed(gang, room), names, is_stale=is_stale if changed else None)


def _freed(gang: HeldGang, room: FreeCapacity) -> Iterator[tuple[int, int, int, int, int]]:
    """By each of its parts that has no part of a GPU."""
    for part, (holder, whole) in enumerate(zip(gang.holders, gang.whole, strict=True)):
        for released in _of_job(holder.job, room) if whole else ():
            yield part, *released


def _of_job(job: Job, room: FreeCapacity) -> list[NodeRelease]:
    shapes, found = {group.name: group.shape for group in job.spec.task_groups}, list[NodeRelease]()
    for task in job.placement:
        number = room.index.get(task.node)
        if number is not None and (node := room.nodes[number]).schedulable:
            devices, shape = task.devices, shapes.get(task.group, NOTHING)
            healthy = [gpu.healthy and gpu.instances is None and gpu.id in devices for gpu in node.gpus].count(True)
            found.append(NodeRelease(number, healthy, int(shape.cpu), int(shape.memory)))
    return found
