"""Free GPUs that no task of a known shape could use where they are: their node has too few, or too little CPU or memory beside.

A shape is known if a job that waits or runs has it. Of each node counts what the shape would use that uses the most of it; a mix of
shapes may use a little more. Whether a queue may use the node, and whether all tasks of a gang find places, is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.partitioning import pool_rules
from solver.capacity.sharing import sharing_of
from solver.model.arrays import Ints, Mask
from solver.model.cluster import GpuType
from solver.model.snapshot import Snapshot
from solver.placement.fragmentation import ExpectedTask, expected_of
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree


def stranded_gpus(snapshot: Snapshot, policy: Policy) -> dict[GpuType, int]:
    """By GPU type; empty where no shape is known. Of whole GPUs: parts of divided ones do not count."""
    sharing = sharing_of(policy, QueueTree.of(policy), snapshot.nodes)
    room = FreeCapacity.of(snapshot, sharing.domain, pool_rules(policy, snapshot))
    needs = [need for need in expected_of(snapshot.jobs, room.gpu_types, sharing).tasks if need.uses_gpus]
    if not needs:
        return {}
    left = room.free_gpus - _usable(room, needs)
    types = {gpu_type: room.of_type(gpu_type) for gpu_type in room.gpu_types if gpu_type}
    return {gpu_type: int(left[nodes].sum()) for gpu_type, nodes in types.items()}


def _usable(room: FreeCapacity, needs: Iterable[ExpectedTask]) -> Ints:
    """Of each node, the most free GPUs that tasks of one shape would use."""
    most = np.zeros_like(room.free_gpus)
    for need in needs:
        gpus = max(1, need.gpus)
        tasks = room.free_gpus // gpus
        for free, each in ((room.free_cpu, need.cpu), (room.free_memory, need.memory)):
            tasks = np.minimum(tasks, np.maximum(0, free) // each) if each else tasks
        most = np.maximum(most, np.where(_may_be_on(room, need), tasks * gpus, 0))
    return most


def _may_be_on(room: FreeCapacity, need: ExpectedTask) -> Mask:
    may: Mask = np.full(len(room.free_gpus), not need.gpu_types)
    for gpu_type in need.gpu_types:
        may |= room.of_type(gpu_type)
    return may
