"""What queues hold, added up from what each job holds; of jobs and nodes that are as they were, the round before has told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from solver.model.arrays import Ints, Mask
from solver.model.cluster import GpuType, Node, NodeName
from solver.model.kept_columns import KeptColumns
from solver.model.quantities import MILLI_PER_GPU
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot, charged
from solver.model.workload import Job, QueueName, TaskPlacement
from solver.quota.dominance import HostUse

NEVER = -(2**62)
"""Before any instant."""

NOT_THERE = -1


@dataclass(frozen=True, slots=True)
class NodeTotals:
    """Milli-GPU by type, in the order of the nodes: all that are declared; those that are `live`, healthy on nodes that are there.

    `beside`: CPU and memory of all nodes.
    """

    gpus: Mapping[GpuType, int]
    live: Mapping[GpuType, int]
    beside: HostUse


@dataclass(frozen=True, slots=True)
class HeldByLines:
    """What jobs of each queue itself hold: of GPU types in milli-GPU, 0 where only CPU is held on nodes of a type; CPU and memory.

    Of GPUs only what is not being evicted counts. `last_start`: when a job of the queue was started last.
    """

    gpus: Mapping[tuple[QueueName, GpuType], int]
    beside: Mapping[QueueName, HostUse]
    last_start: Mapping[QueueName, int]


class HeldUse:
    """Adds up, from round to round."""

    def __init__(self) -> None:
        self._jobs = KeptColumns[Job](6)
        self._charges = KeptColumns[Job](2)
        self._nodes = KeptColumns[Node](5)
        self._types: dict[GpuType, int] = {}
        self._queues: dict[QueueName, int] = {}

    @classmethod
    def kept(cls, kept: RoundCache | None) -> HeldUse:
        """With what is known from the rounds before."""
        return cls() if kept is None else kept.lasting("held use", cls)

    def of_nodes(self, nodes: Sequence[Node]) -> NodeTotals:
        """What there is."""
        kind, gpus, live, cpu, memory = self._nodes.of(nodes, self._of_node).columns
        is_there = live != NOT_THERE
        return NodeTotals(
            self._by_type(kind[gpus > 0], gpus[gpus > 0]),
            self._by_type(kind[is_there], live[is_there]),
            HostUse(int(cpu.sum()), int(memory.sum())),
        )

    def of_jobs(self, snapshot: Snapshot) -> HeldByLines:
        """What is held."""
        types = snapshot.gpu_types
        jobs = [job for job in snapshot.jobs if job.phase != "pending" or job.placement]
        queue, waits, started, beside, cpu, memory = self._jobs.of(jobs, self._of_job).columns
        found = self._charges.of(jobs, lambda job: self._of_tasks(job.placement, types), types)
        (kind, milli), queue_of = found.columns, np.repeat(queue, found.lengths)
        promised = self._promised(snapshot, types)
        goes_on, runs, known = (
            np.repeat(self._goes_on(snapshot, jobs, waits), found.lengths),
            started != NEVER,
            beside > 0,
        )
        last = np.full(len(self._queues), NEVER, dtype=np.int64)
        np.maximum.at(last, queue[runs], started[runs])
        names, hosts = (
            list(self._queues),
            (_added_up(queue[known], of[known], len(self._queues)) for of in (cpu, memory)),
        )
        uses = [HostUse(*use) for use in zip(*hosts, strict=True)]
        return HeldByLines(
            self._by_line(
                *map(np.concatenate, zip((queue_of[goes_on], kind[goes_on], milli[goes_on]), promised, strict=True))
            ),
            {names[number]: uses[number] for number in np.unique(queue[known]).tolist()},
            {names[number]: int(last[number]) for number in np.unique(queue[runs]).tolist()},
        )

    def _goes_on(self, snapshot: Snapshot, jobs: Sequence[Job], waits: Ints) -> Mask:
        """Which jobs are charged for what they hold."""
        leaving = {(intent.job, intent.attempt) for intent in snapshot.in_flight.evictions}
        goes_on: Mask = waits == 0
        if leaving:
            goes_on &= np.array([(job.name, job.attempt) not in leaving for job in jobs], dtype=bool)
        return goes_on

    def _promised(self, snapshot: Snapshot, types: Mapping[NodeName, GpuType]) -> Ints:
        """What jobs were promised that wait, or are being evicted: queues, types and milli-GPU."""
        asked = {intent.job for intent in snapshot.in_flight.nominations}
        found = [
            (self._queues.setdefault(job.spec.queue, len(self._queues)), *charge)
            for job, tasks in (charged(snapshot) if asked else ())
            if job.name in asked and tasks is not job.placement
            for charge in self._of_tasks(tasks, types)
        ]
        return np.array(found, dtype=np.int64).reshape(-1, 3).T

    def _by_line(self, queue: Ints, kind: Ints, milli: Ints) -> dict[tuple[QueueName, GpuType], int]:
        count, queues, types = len(self._types), list(self._queues), list(self._types)
        lines, line = np.unique(queue * count + kind, return_inverse=True)
        held = zip(lines.tolist(), _added_up(line, milli, len(lines)), strict=True)
        return {(queues[number // count], types[number % count]): total for number, total in held}

    def _by_type(self, kind: Ints, gpus: Ints) -> dict[GpuType, int]:
        kinds, first, place = np.unique(kind, return_index=True, return_inverse=True)
        total, types = _added_up(place, gpus, len(kinds)), list(self._types)
        return {types[kinds[number]]: total[number] * MILLI_PER_GPU for number in np.argsort(first).tolist()}

    def _of_node(self, node: Node) -> Iterator[tuple[int, ...]]:
        is_there = node.ready and node.gpus
        live = [gpu.healthy for gpu in node.gpus].count(True) if is_there else NOT_THERE
        yield self._number_of(node.gpu_type), len(node.gpus), live, int(node.cpu), int(node.memory)

    def _of_job(self, job: Job) -> Iterator[tuple[int, ...]]:
        shapes = {group.name: group.shape for group in job.spec.task_groups}
        held = [shapes[task.group] for task in job.placement if task.group in shapes]
        queue = self._queues.setdefault(job.spec.queue, len(self._queues))
        waits = job.phase == "pending"
        started = NEVER if waits or job.started_at is None else job.started_at
        beside = sum([int(shape.cpu) for shape in held]), sum([int(shape.memory) for shape in held])
        yield queue, waits, started, len(held), *beside

    def _of_tasks(self, tasks: Iterable[TaskPlacement], types: Mapping[NodeName, GpuType]) -> Iterator[tuple[int, int]]:
        """What each is charged; lost nodes are of no type."""
        return ((self._number_of(types.get(task.node, GpuType(""))), int(task.gpus)) for task in tasks)

    def _number_of(self, gpu_type: GpuType) -> int:
        return self._types.setdefault(gpu_type, len(self._types))


def _added_up(keys: Ints, amounts: Ints, count: int) -> list[int]:
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, keys, amounts)
    return total.tolist()
