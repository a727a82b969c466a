"""What nodes get back when holders leave: GPUs, CPU and memory, of those who hold whole GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from solver.rules.victims import Holder
from solver.world.cluster import DeviceId
from solver.world.masks import Mask
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

    `countable`: who holds no part of a GPU; of others nothing is known here.
    """

    def __init__(self, holders: Sequence[Holder], room: Room) -> None:
        healthy = [{gpu.id for gpu in node.gpus if gpu.healthy} for node in room.nodes]
        found = [tuple(_freed(holder.job, room, healthy)) for holder in holders]
        self.countable: Mask = np.array([_is_countable(holder.job) for holder in holders], dtype=bool)
        self.of = [freed if countable else () for freed, countable in zip(found, self.countable, strict=True)]
        rows = [(number, *one) for number, freed in enumerate(self.of) for one in freed]
        columns = np.array(sorted(rows, key=itemgetter(1)), dtype=np.int64).reshape(-1, 5).T.copy()
        self.holder, self.node, self.gpus, self.cpu, self.memory = columns


def _is_countable(job: Job) -> bool:
    return all(task.share is None and task.mig is None for task in job.placement)


def _freed(job: Job, room: Room, healthy: Sequence[set[DeviceId]]) -> Iterator[Freed]:
    shapes = {group.name: group.shape for group in job.spec.task_groups}
    for task in job.placement:
        node = room.index.get(task.node)
        if node is not None and room.open_nodes[node]:
            shape = shapes.get(task.group, NOTHING)
            yield Freed(node, len(healthy[node].intersection(task.devices)), int(shape.cpu), int(shape.memory))
