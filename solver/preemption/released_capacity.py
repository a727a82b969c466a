"""What nodes get back when holders leave: GPUs, CPU and memory, of those who hold whole GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.model.cluster import Node, NodeName
from solver.model.round_cache import CachedResults, RoundCache
from solver.model.shape import Shape
from solver.model.workload import Job
from solver.quota.victims import HeldGang

NOTHING = Shape()
NOWHERE = -1, None


class NodeRelease(NamedTuple):
    """What a node gets back: GPUs, milli-cores and bytes."""

    node: int
    gpus: int
    cpu: int
    memory: int


class ReleasedCapacity:
    """What each holder gives back when it leaves, by its number; and all of that as arrays, sorted by node, with the `holder`.

    Nothing is said of who holds parts of GPUs.
    """

    def __init__(self, gangs: Sequence[HeldGang], room: FreeCapacity, kept: RoundCache) -> None:
        nodes = {node.name: (number, node) for number, node in enumerate(room.nodes)}
        known: CachedResults[list[list[NodeRelease]]] = kept.results("freed", [*nodes])
        self.of = list[list[NodeRelease]]()
        for gang in gangs:
            on = [nodes.get(task.node) for holder in gang.holders for task in holder.job.placement]
            self.of += known.get(gang.holders[0].job.name, partial(_freed, gang, nodes), gang, on)
        count = sum(map(len, self.of))
        rows = np.fromiter(chain.from_iterable(chain.from_iterable(self.of)), dtype=np.int64, count=4 * count)
        rows = rows.reshape(-1, 4)
        holder = np.repeat(np.arange(len(self.of)), list(map(len, self.of)))
        by_node = np.argsort(rows[:, 0], kind="stable")
        self.holder, (self.node, self.gpus, self.cpu, self.memory) = holder[by_node], rows[by_node].T.copy()


def _freed(gang: HeldGang, nodes: Mapping[NodeName, tuple[int, Node]]) -> list[list[NodeRelease]]:
    """By each of its parts."""
    return [_of_job(holder.job, nodes) if whole else [] for holder, whole in zip(gang.holders, gang.whole, strict=True)]


def _of_job(job: Job, nodes: Mapping[NodeName, tuple[int, Node]]) -> list[NodeRelease]:
    shapes, found = {group.name: group.shape for group in job.spec.task_groups}, list[NodeRelease]()
    for task in job.placement:
        number, node = nodes.get(task.node, NOWHERE)
        if node is not None and node.schedulable:
            devices, shape = task.devices, shapes.get(task.group, NOTHING)
            healthy = [gpu.healthy and gpu.instances is None and gpu.id in devices for gpu in node.gpus].count(True)
            found.append(NodeRelease(number, healthy, int(shape.cpu), int(shape.memory)))
    return found
