"""What nodes get back when holders leave: GPUs, CPU and memory, of those who hold whole GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
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
        self.of = [
            tuple(_freed(holder.job, room, healthy)) if holds_whole_gpus(holder.job) else () for holder in holders
        ]
        rows = [(number, *one) for number, freed in enumerate(self.of) for one in freed]
        columns = np.array(sorted(rows, key=itemgetter(1)), dtype=np.int64).reshape(-1, 5).T.copy()
        self.holder, self.node, self.gpus, self.cpu, self.memory = columns


def holds_whole_gpus(job: Job) -> bool:
    """Whether it has no part of a GPU."""
    return all(task.share is None and task.mig is None for task in job.placement)


def _freed(job: Job, room: Room, healthy: Sequence[set[DeviceId]]) -> Iterator[Freed]:
    shapes = {group.name: group.shape for group in job.spec.task_groups}
    for task in job.placement:
        node = room.index.get(task.node)
        if node is not None and room.open_nodes[node]:
            shape = shapes.get(task.group, NOTHING)
            yield Freed(node, len(healthy[node].intersection(task.devices)), int(shape.cpu), int(shape.memory))
