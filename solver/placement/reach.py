"""Which nodes a gang may be on, served one way: by the types it gets, and by the sets of nodes that its groups are limited to."""

from __future__ import annotations

import numpy as np

from solver.capacity.free_capacity import FreeCapacity
from solver.model.arrays import Mask
from solver.model.cluster import GpuType
from solver.model.shape import nodes_of
from solver.quota.options import Option


def reach(room: FreeCapacity, option: Option, gpu_type: GpuType | None) -> Mask:
    """The nodes of a type that some group of a gang may be on which is served with it."""
    mask: Mask = np.zeros(len(room.nodes), dtype=bool)
    for shape, served in zip(option.shapes, option.gpu_types, strict=True):
        if served == gpu_type:
            mask |= room.usable(shape, gpu_type)
    return mask


def limits_of(room: FreeCapacity, option: Option, gpu_type: GpuType | None) -> tuple[str, int]:
    """The sets of nodes that all groups are limited to which are served with a type, and how many nodes those have.

    "" and 0 where one of the groups may be on any.
    """
    shapes = (shape for shape, served in zip(option.shapes, option.gpu_types, strict=True) if served == gpu_type)
    names = sorted({nodes_of(shape) for shape in shapes})
    if not all(names):
        return "", 0
    return ", ".join(names), int(np.logical_or.reduce([room.sets[name] for name in names]).sum())
