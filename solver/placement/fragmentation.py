"""How much of the free GPUs of a node the shapes that are expected could not use: what placement leaves as small as it can.

The measure is that of Q. Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent" (USENIX ATC 2023): for a task drawn from the expected mix, the expected free milli-GPU that it can't use. On a
node that can't take the task at all (GPUs, CPU, memory, or the wrong type) that is everything; else the GPUs with less
free than the task asks for. Memory counts here as CPU does there. Trust domains are not part of the measure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solver.capacity.sharing import Sharing
from solver.model.arrays import Floats, Ints
from solver.model.cluster import GpuType
from solver.model.kept_columns import KeptColumns
from solver.model.quantities import MILLI_PER_GPU
from solver.model.round_cache import RoundCache
from solver.model.shape import Shape
from solver.model.workload import Job, QueueName, TaskGroup

NEEDS_MAX = 64
"""Expected needs told apart by the measure, the most frequent ones: rarer ones hardly change it."""


class ExpectedTask(NamedTuple):
    """What one expected task asks for: whole GPUs, or `milli` of one; CPU in milli-cores, memory in bytes.

    `gpu_types` in sorted order; empty: any.
    """

    gpus: int
    milli: int
    cpu: int
    memory: int
    gpu_types: tuple[GpuType, ...]

    @property
    def uses_gpus(self) -> bool:
        """It asks for a GPU or a part of one."""
        return self.gpus > 0 or self.milli > 0

    @property
    def all_milli(self) -> int:
        """Its milli-GPU."""
        return self.gpus * MILLI_PER_GPU + self.milli


@dataclass(frozen=True)
class Expected:
    """The mix of tasks to keep room for: tasks by need. What waits and what runs stands for what will come."""

    tasks: Mapping[ExpectedTask, int]
    gpu_types: tuple[GpuType, ...]

    @property
    def has_fractions(self) -> bool:
        """Some job asks for a part of a GPU; else all that is free is free as whole GPUs."""
        return any(need.milli for need in self.tasks)

    @cached_property
    def _frequent(self) -> tuple[tuple[ExpectedTask, ...], Floats]:
        total = sum(self.tasks.values())
        ranked = sorted(((count, need) for need, count in self.tasks.items() if need.uses_gpus), reverse=True)
        kept = ranked[:NEEDS_MAX]
        return tuple(need for _, need in kept), np.array([count / total for count, _ in kept])

    @cached_property
    def _table(self) -> tuple[Ints, Ints, Ints, Ints, Ints, npt.NDArray[np.bool_]]:
        needs, _ = self._frequent
        gpus, milli, cpu, memory = (
            np.array([need[field] for need in needs], dtype=np.int64) for field in range(len(ExpectedTask._fields) - 1)
        )
        thresholds, which = np.unique(np.where(milli, milli, MILLI_PER_GPU), return_inverse=True)
        fits_type = np.array(
            [[not need.gpu_types or known in need.gpu_types for need in needs] for known in self.gpu_types], dtype=bool
        ).reshape(len(self.gpu_types), len(needs))
        return gpus, cpu, memory, thresholds, which, fits_type

    def unusable(self, gpu_type: Ints, cpu: Ints, memory: Ints, whole: Ints, divided: Ints) -> Floats:
        """For each of some nodes, the free milli-GPU that a task of the mix is expected not to be able to use.

        `gpu_type` indexes `gpu_types`; `whole` counts free GPUs; `divided` has a row for each node, with what is left of each
        GPU that is divided (0: none).
        """
        _, share = self._frequent
        if not len(share):  # No job asks for a GPU.
            return np.zeros(len(whole))
        gpus, need_cpu, need_memory, thresholds, which, fits_type = self._table
        whole_milli = whole * MILLI_PER_GPU
        free = whole_milli + divided.sum(axis=1)
        # By the part asked for: what is free in pieces that are large enough.
        large = np.stack([(divided * (divided >= least)).sum(axis=1) for least in thresholds], axis=1)
        large = (large + whole_milli[:, None])[:, which] if len(which) else np.zeros((len(free), 0))
        able = fits_type[gpu_type] & (cpu[:, None] >= need_cpu) & (memory[:, None] >= need_memory)
        able &= whole[:, None] >= gpus
        return np.asarray(free * share.sum() - (able * large) @ share, dtype=np.float64)


def expected_of(
    jobs: Sequence[Job], gpu_types: Iterable[GpuType], sharing: Sharing, kept: RoundCache | None = None
) -> Expected:
    """The mix of all tasks of a snapshot's jobs, waiting and running. `kept`: what was known in the rounds before."""
    known = tuple(gpu_types)
    tasks: Counter[ExpectedTask] = Counter()
    # Alike jobs are many, and looking a need up is dear.
    for (queue, group), count in _GroupCounts.kept(kept).of(jobs):
        accepted = tuple(sorted(set(group.shape.gpu_types) & set(known)))
        if accepted or not group.shape.gpu_types:
            first = next(iter(accepted or [gpu_type for gpu_type in known if gpu_type]), None)
            served = sharing.served(group.shape, first, queue, "standard")
            tasks[need_of(served, accepted)] += group.replicas * count
    return Expected(tasks, known)


class _GroupCounts:
    """Counts alike task groups, from round to round."""

    def __init__(self) -> None:
        self._columns = KeptColumns[Job](1)
        self._numbers: dict[tuple[QueueName, TaskGroup], int] = {}

    @classmethod
    def kept(cls, kept: RoundCache | None) -> _GroupCounts:
        """With what is known from the rounds before."""
        return cls() if kept is None else kept.lasting("task groups", cls)

    def of(self, jobs: Sequence[Job]) -> list[tuple[tuple[QueueName, TaskGroup], int]]:
        """The groups of some jobs with their queues, and how many are alike; in the order in which they are first met."""
        if len(self._numbers) > 2 * len(jobs):
            # Of groups that are long gone.
            self._columns, self._numbers = KeptColumns[Job](1), {}
        (numbers,), _ = self._columns.of(jobs, self._of_job)
        found, first, count = np.unique(numbers, return_index=True, return_counts=True)
        groups, in_order = list(self._numbers), np.argsort(first)
        return [(groups[n], many) for n, many in zip(found[in_order].tolist(), count[in_order].tolist(), strict=True)]

    def _of_job(self, job: Job) -> Iterator[tuple[int]]:
        for group in job.spec.task_groups:
            yield (self._numbers.setdefault((job.spec.queue, group), len(self._numbers)),)


def need_of(shape: Shape, gpu_types: tuple[GpuType, ...]) -> ExpectedTask:
    """A settled shape as a need."""
    # Of several GPUs by one of them: a part of each is worth what such a part is.
    milli = int(shape.cost) // shape.devices if shape.is_shared else 0
    if milli >= MILLI_PER_GPU:
        return ExpectedTask(1, 0, int(shape.cpu), int(shape.memory), gpu_types)
    return ExpectedTask(shape.gpus, milli, int(shape.cpu), int(shape.memory), gpu_types)
