"""What nodes get back when victims leave: GPUs, CPU and memory, of those who hold whole GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solver.rules.victims import Holder, Law
from solver.world.room import Room
from solver.world.shape import Shape
from solver.world.workload import Job, JobName

Ints = npt.NDArray[np.int64]


class Freed(NamedTuple):
    """What a node gets back: GPUs, milli-cores and bytes."""

    node: int
    gpus: int
    cpu: int
    memory: int


class Freeing:
    """What each holder gives back when it leaves; None where parts of GPUs are among it. Worked out once for each."""

    def __init__(self, law: Law, room: Room) -> None:
        self._law = law
        self._room = room
        self._known: dict[JobName, tuple[Freed, ...] | None] = {}

    def leaving_with(self, holder: Holder) -> Sequence[Holder]:
        """A holder, and what leaves with it."""
        return self._law.whole(holder)

    def of(self, job: Job) -> tuple[Freed, ...] | None:
        """Of one holder alone."""
        if job.name not in self._known:
            countable = all(task.share is None and task.mig is None for task in job.placement)
            self._known[job.name] = tuple(self._freed(job)) if countable else None
        return self._known[job.name]

    def _freed(self, job: Job) -> Iterator[Freed]:
        shapes = {group.name: group.shape for group in job.spec.task_groups}
        for task in job.placement:
            node = self._room.index.get(task.node)
            if node is None or not self._room.open_nodes[node]:
                continue
            healthy = {gpu.id for gpu in self._room.nodes[node].gpus if gpu.healthy}
            shape = shapes.get(task.group, Shape())
            yield Freed(node, len(healthy.intersection(task.devices)), int(shape.cpu), int(shape.memory))


class FreedNodes:
    """What nodes would get back, as arrays over those that get anything: GPUs, milli-cores and bytes."""

    def __init__(self, freed: Sequence[Freed]) -> None:
        self.nodes: Ints = np.unique(np.array([each.node for each in freed], dtype=np.int64))
        self._place = {node: place for place, node in enumerate(self.nodes.tolist())}
        self.gpus, self.cpu, self.memory = (np.zeros(len(self.nodes), dtype=np.int64) for _ in range(3))
        self.add(freed, 1)

    def add(self, freed: Iterable[Freed], sign: int) -> None:
        """Nodes get back more, or less."""
        for node, gpus, cpu, memory in freed:
            place = self._place[node]
            self.gpus[place] += sign * gpus
            self.cpu[place] += sign * cpu
            self.memory[place] += sign * memory
