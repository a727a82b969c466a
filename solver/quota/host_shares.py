"""CPU and memory beside GPUs: what GPUs carry of them, what running jobs hold beyond that, and what a waiting job may claim.

A guarantee of GPUs carries their share of the node's CPU and memory (DESIGN section 5, amendment 8). What a job holds beyond the
share of its GPUs is borrowed, and so is all that a job without GPUs holds on nodes that have some.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from solver.model.arrays import Ints, Mask
from solver.model.cluster import GpuType, Node, NodeName
from solver.model.kept_columns import KeptColumns
from solver.model.quantities import MILLI_PER_GPU
from solver.model.round_cache import RoundCache
from solver.model.shape import Shape
from solver.model.workload import Job, JobSpec, TaskPlacement
from solver.policy.host_share import HostShare
from solver.quota.allocation_table import AllocationTable
from solver.quota.dominance import HostUse
from solver.quota.options import Option
from solver.quota.victims import HeldGang

NOTHING = HostUse()


@dataclass(frozen=True, slots=True)
class HostShares:
    """What one GPU carries, by pool; and by type the least of its pools. `pool_of`: the pool of each node that has GPUs."""

    by_pool: Mapping[str, HostUse] = field(default_factory=dict)
    by_type: Mapping[GpuType, HostUse] = field(default_factory=dict)
    pool_of: Mapping[NodeName, str] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Iterable[Node], stated: Iterable[HostShare]) -> HostShares:
        """As policy states it, else each GPU's equal part of all nodes with GPUs of its pool, broken or not."""
        said, in_pool = {known.pool: known for known in stated}, defaultdict[str, list[Node]](list)
        for node in nodes:
            if node.gpus:
                in_pool[node.pool].append(node)
        by_pool, by_type = dict[str, HostUse](), defaultdict[GpuType, list[HostUse]](list)
        for pool, members in in_pool.items():
            gpus, written = sum(len(node.gpus) for node in members), said.get(pool, HostShare(pool))
            cpu = sum(node.cpu for node in members) // gpus if written.cpu is None else written.cpu
            memory = sum(node.memory for node in members) // gpus if written.memory is None else written.memory
            by_pool[pool] = HostUse(int(cpu), int(memory))
            for gpu_type in {node.gpu_type for node in members}:
                by_type[gpu_type].append(by_pool[pool])
        least = {kind: HostUse(min(s.cpu for s in of), min(s.memory for s in of)) for kind, of in by_type.items()}
        return cls(by_pool, least, {node.name: pool for pool, members in in_pool.items() for node in members})

    def asks_beyond(self, spec: JobSpec, option: Option) -> bool:
        """Whether the tasks without which a gang with GPUs does not start ask for more, together, than their GPUs carry."""
        asked, carried, milli = NOTHING, NOTHING, 0
        for group, shape, gpu_type in zip(spec.task_groups, option.shapes, option.gpu_types, strict=True):
            asked = asked.plus(HostUse(int(shape.cpu), int(shape.memory)), group.least)
            carried = carried.plus(self.of_task(shape, gpu_type), group.least)
            milli += group.least * int(shape.cost)
        return milli > 0 and not _fits(asked, carried)

    def of_task(self, shape: Shape, gpu_type: GpuType | None) -> HostUse:
        """What the GPUs of one task carry, wherever of this type they are."""
        share = self.by_type.get(gpu_type, NOTHING) if gpu_type is not None else NOTHING
        return _carried(int(shape.cost), share)

    def beyond(self, shape: Shape, pool: str) -> HostUse:
        """What a task asks for beyond what its own GPUs carry in a pool."""
        share = _carried(int(shape.cost), self.by_pool.get(pool, NOTHING))
        return HostUse(max(0, int(shape.cpu) - share.cpu), max(0, int(shape.memory) - share.memory))

    def claim(self, shape: Shape, pool: str) -> HostUse:
        """What a task asks for of what its own GPUs carry in a pool."""
        share = _carried(int(shape.cost), self.by_pool.get(pool, NOTHING))
        return HostUse(min(int(shape.cpu), share.cpu), min(int(shape.memory), share.memory))

    def exceeds(self, jobs: Iterable[Job]) -> bool:
        """Whether a running job, given in its parts, holds more than its GPUs carry."""
        held, carried = NOTHING, NOTHING
        for task, shape in (known for job in jobs for known in tasks_with_shapes(job)):
            held = held.plus(HostUse(int(shape.cpu), int(shape.memory)))
            carried = carried.plus(_carried(int(task.gpus), self._of_node(task.node)))
        return not _fits(held, carried)

    def in_gpus(self, job: Job) -> int:
        """Milli-GPU whose share of CPU or memory a job without GPUs holds on nodes that have GPUs; 0: none there."""
        cpu = memory = 0.0
        for task, shape in tasks_with_shapes(job):
            share = self._of_node(task.node)
            cpu += shape.cpu / share.cpu if share.cpu else 0.0
            memory += shape.memory / share.memory if share.memory else 0.0
        return int(max(cpu, memory) * MILLI_PER_GPU)

    def is_beside_gpus(self, job: Job) -> bool:
        """Whether some of a job's tasks are on nodes that have GPUs."""
        return any(task.node in self.pool_of for task in job.placement)

    def _of_node(self, name: NodeName) -> HostUse:
        return self.by_pool.get(self.pool_of.get(name, ""), NOTHING)


class HeldBeside(NamedTuple):
    """Of a holder: whether it holds CPU and memory beside GPUs without having any, or has GPUs and holds more than they carry;
    and in milli-GPU, what leaves with it, or of one without GPUs those whose share it holds.
    """

    alone: bool
    exceeds: bool
    milli: int


@dataclass(frozen=True, slots=True)
class HostBorrowing:
    """What each holder holds of CPU and memory that is borrowed, as arrays: see HeldBeside."""

    shares: HostShares
    alone: Mask
    exceeds: Mask
    milli: Ints

    @classmethod
    def of(
        cls, allocations: AllocationTable, shares: HostShares, kept: RoundCache | None = None, *, divided: bool = False
    ) -> HostBorrowing:
        """What these hold. `divided`: CPU and memory are divided among jobs without GPUs, on whatever nodes."""
        kept = RoundCache() if kept is None else kept
        columns: KeptColumns[HeldGang] = kept.lasting("held beside GPUs", lambda: KeptColumns(3))
        basis = shares.by_pool, shares.pool_of, divided
        found = columns.of(allocations.gangs, lambda gang: _held_beside(gang, shares, divided=divided), *basis)
        alone, exceeds, milli = found.columns
        return cls(shares, alone.astype(bool), exceeds.astype(bool), milli)


def _held_beside(gang: HeldGang, shares: HostShares, *, divided: bool) -> tuple[HeldBeside, ...]:
    """By each part of a gang."""
    if any(holder.gpus for holder in gang.holders):
        exceeds = shares.exceeds(holder.job for holder in gang.holders)
        parts = [exceeds and shares.exceeds((holder.job,)) for holder in gang.holders]
        return tuple(HeldBeside(False, part, int(of.gpus)) for part, of in zip(parts, gang.holders, strict=True))
    beside = [divided or shares.is_beside_gpus(holder.job) for holder in gang.holders]
    # The whole of a job yields where any of it is beside GPUs.
    return tuple(
        HeldBeside(any(beside), False, max(1, shares.in_gpus(holder.job)) if any(beside) else 0)
        for holder in gang.holders
    )


def sum_of(shapes: Iterable[Shape]) -> HostUse:
    """What tasks of these shapes have of CPU and memory, together."""
    found = NOTHING
    for shape in shapes:
        found = found.plus(HostUse(int(shape.cpu), int(shape.memory)))
    return found


def tasks_with_shapes(job: Job) -> list[tuple[TaskPlacement, Shape]]:
    """A job's tasks where they are, each with what it asked for."""
    shapes = {group.name: group.shape for group in job.spec.task_groups}
    return [(task, shapes[task.group]) for task in job.placement if task.group in shapes]


def _carried(milli: int, share: HostUse) -> HostUse:
    return HostUse(milli * share.cpu // MILLI_PER_GPU, milli * share.memory // MILLI_PER_GPU)


def _fits(asked: HostUse, carried: HostUse) -> bool:
    return asked.cpu <= carried.cpu and asked.memory <= carried.memory
