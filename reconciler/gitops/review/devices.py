"""How GPUs are left under two revisions: what is free and of no use, what is held by rack, and how MIG GPUs are partitioned."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from reconciler.gitops.review.side import Played
from reconciler.model.review_findings import DeviceChange, Fragments, RackUse, Stranded
from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.partitioning import pool_rules
from solver.capacity.sharing import sharing_of
from solver.model.cluster import DeviceId, GpuType, MigInstance, NodeName
from solver.model.quantities import MILLI_PER_GPU, MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.placement.fragmentation import expected_of


class FreeGpus(NamedTuple):
    """Milli-GPU of one type that are free, and of them those that the shapes of the cluster's jobs can't use."""

    milli: int = 0
    unusable: int = 0


def fragments(base: Played, head: Played) -> Iterator[Fragments]:
    """GPU types of which something else is free, or of use."""
    before, after = free_by_type(base), free_by_type(head)
    for gpu_type in sorted(before.keys() | after.keys()):
        old, new = before.get(gpu_type, FreeGpus()), after.get(gpu_type, FreeGpus())
        if old != new:
            free, unusable = (
                (MilliGpu(old.milli), MilliGpu(new.milli)),
                (MilliGpu(old.unusable), MilliGpu(new.unusable)),
            )
            yield Fragments(gpu_type, *free, *unusable)


def free_by_type(side: Played) -> Mapping[GpuType, FreeGpus]:
    """What is free once the next round has come true. GPUs in MIG mode are not counted: what they can become is open."""
    after, policy = side.ahead.after, side.policy
    sharing = sharing_of(policy, side.shares.tree, after.nodes)
    room = FreeCapacity.of(after, sharing.domain, pool_rules(policy, after))
    left = [
        [max(0, gpu.free_milli) for gpu in room.shared.get(node, ())] * bool(room.open_nodes[node])
        for node in range(len(room.nodes))
    ]
    divided = np.zeros((len(left), max(map(len, left), default=0) or 1), dtype=np.int64)
    for node, parts in enumerate(left):
        divided[node, : len(parts)] = parts
    whole = np.maximum(room.free_gpus, 0)
    expected = expected_of(side.snapshot.jobs, room.gpu_types, sharing)
    free = whole * MILLI_PER_GPU + divided.sum(axis=1)
    # Instances are no part of the measure: where jobs ask for nothing else, nothing that is free is lost.
    wanted = any(need.uses_gpus for need in expected.tasks)
    cpu, memory = room.free_cpu, room.free_memory
    unusable = expected.unusable(room.type_of_node, cpu, memory, whole, divided) if wanted else np.zeros(len(whole))
    return {
        gpu_type: FreeGpus(int(free[of_type].sum()), round(float(unusable[of_type].sum())))
        for gpu_type in room.gpu_types
        if gpu_type and (of_type := room.of_type(gpu_type)).any()
    }


def device_changes(base: Played, head: Played) -> Iterator[DeviceChange]:
    """GPUs that have other instances under the head once the next round has come true, by node and GPU."""
    before, after = _instances(base), _instances(head)
    for known in sorted(before.keys() & after.keys()):
        if before[known] != after[known]:
            yield DeviceChange(*known, before[known], after[known])


def _instances(side: Played) -> Mapping[tuple[NodeName, DeviceId], tuple[MigInstance, ...] | None]:
    return {(node.name, gpu.id): gpu.instances for node in side.ahead.after.nodes for gpu in node.gpus}


@dataclass(slots=True)
class RackContent:
    """What a rack has, and what each job holds there, in milli-GPU."""

    gpus: int = 0
    held: Counter[JobName] = field(default_factory=Counter)


def rack_uses(base: Played, head: Played) -> Iterator[RackUse]:
    """Every rack with GPUs under either, by block and name, once the next round of each has come true."""
    before, after = _racks(base), _racks(head)
    for place in sorted(before.keys() | after.keys()):
        old, new = before[place], after[place]
        yield RackUse(
            *place,
            MilliGpu(old.gpus),
            MilliGpu(new.gpus),
            MilliGpu(old.held.total()),
            MilliGpu(new.held.total()),
            comes=tuple(sorted(job for job, milli in new.held.items() if milli > old.held[job])),
            goes=tuple(sorted(job for job, milli in old.held.items() if milli > new.held[job])),
        )


def _racks(side: Played) -> defaultdict[tuple[str, str], RackContent]:
    found, after = defaultdict[tuple[str, str], RackContent](RackContent), side.ahead.after
    place_of = {node.name: (node.block, node.rack) for node in after.nodes if node.gpus}
    for node in after.nodes:
        if node.gpus:
            found[place_of[node.name]].gpus += len(node.gpus) * MILLI_PER_GPU
    for job in after.jobs:
        for task in job.placement:
            # What is held on a node that is gone, or on one without GPUs, is in no rack of this inventory.
            if task.gpus and task.node in place_of:
                found[place_of[task.node]].held[job.name] += int(task.gpus)
    return found


def stranded_jobs(snapshot: Snapshot, base: Played, head: Played) -> Iterator[Stranded]:
    """Jobs that run on nodes of which only the base knows, by name."""
    removed = {node.name for node in base.snapshot.nodes} - {node.name for node in head.snapshot.nodes}
    for job in snapshot.jobs:
        tasks = [task for task in job.placement if task.node in removed]
        if tasks:
            gpus = MilliGpu(sum(task.gpus for task in tasks))
            yield Stranded(job.name, job.spec.queue, gpus, tuple(sorted({task.node for task in tasks})))
