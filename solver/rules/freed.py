"""What nodes get back when holders leave: GPUs, CPU and memory, of those who hold whole GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from solver.rules.victims import Holder
from solver.world.cluster import DeviceId
from solver.world.room import Room
from solver.world.shape import Shape
from solver.world.workload import Job

NOTHING = Shape()


class Freed(NamedTuple):
    """What a node gets back: GPUs, milli-cores and bytes."""

    node: int
    gpus: int
    cpu: int
    memory: int


class Freeing:
    """What each holder gives back when it leaves, by its number; and all of that as arrays, sorted by node, with the `holder`.

    Nothing is said of who holds parts of GPUs.
    """

    def __init__(self, holders: Sequence[Holder], room: Room) -> None:
        healthy = [{gpu.id for gpu in node.gpus if gpu.healthy} for node in room.nodes]
        self.of = [_freed(holder.job, room, healthy) if holds_whole_gpus(holder.job) else [] for holder in holders]
        rows = np.array(list(chain.from_iterable(self.of)), dtype=np.int64).reshape(-1, len(Freed._fields))
        holder = np.repeat(np.arange(len(self.of)), [len(freed) for freed in self.of])
        by_node = np.argsort(rows[:, 0], kind="stable")
        self.holder, (self.node, self.gpus, self.cpu, self.memory) = holder[by_node], rows[by_node].T.copy()


def holds_whole_gpus(job: Job) -> bool:
    """Whether it has no part of a GPU."""
    return all(task.share is None and task.mig is None for task in job.placement)


def _freed(job: Job, room: Room, healthy: Sequence[set[DeviceId]]) -> list[Freed]:
    shapes, index, opened = {group.name: group.shape for group in job.spec.task_groups}, room.index, room.open_nodes
    return [
        Freed(node, len(healthy[node].intersection(task.devices)), int(shape.cpu), int(shape.memory))
        for task in job.placement
        if (node := index.get(task.node)) is not None and opened[node]
        for shape in (shapes.get(task.group, NOTHING),)
    ]
