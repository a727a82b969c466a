"""What a gang pays, per GPU, for lying further apart than it wishes: the same for placement, program and yardstick.

One for each preferred level at which it is not in one domain, and for each of its data that is not near all of its tasks. Some of
its tasks that are best together pay one for each of their GPUs and levels, if they are not; no program sees that. A gang
that is bound by communication pays for its slowest link besides: how much longer that takes than one of 900 GB/s, which is
NVLink inside an island; less than nothing it never pays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from solver.capacity.free_capacity import FreeCapacity
from solver.model.arrays import Floats
from solver.model.cluster import LEVELS, Level, is_wider
from solver.model.topology import Topology
from solver.model.workload import JobSpec, TaskPlacement, TopologyRequest

FAST_ENOUGH = 900.0
"""GB/s of a link that costs nothing."""


def level_of(room: FreeCapacity, tasks: Iterable[TaskPlacement]) -> Level | None:
    """The closest level at which all tasks are in one domain; None: not even in one pool."""
    nodes = [room.index[task.node] for task in tasks]
    return next((level for level in LEVELS if len(set(room.topology[level].of_node[nodes].tolist())) <= 1), None)


def strain_of(room: FreeCapacity, spec: JobSpec, tasks: tuple[TaskPlacement, ...]) -> float:
    """What these tasks of a gang pay."""
    asked, nodes = spec.effective_topology, [room.index[task.node] for task in tasks]
    far = float(sum(any(name not in room.nodes[node].data for node in nodes) for name in spec.data))
    far += _torn(room, spec, tasks) if spec.has_inner_wishes else 0.0
    if not asked.wishes and asked.communication == "normal":
        return far
    level = level_of(room, tasks)
    domains = room.topology[level or "pool"]
    bandwidth = float(domains.bandwidth[domains.of_node[nodes]].min(initial=np.inf))
    return far + _strain(asked, level, bandwidth)


def _torn(room: FreeCapacity, spec: JobSpec, tasks: Sequence[TaskPlacement]) -> float:
    """For each preferred level of groups, bundles and groups together at which they are not in one domain: its part of the GPUs."""
    # Of a gang without GPUs tasks count, so that its wishes count too.
    has_gpus = any(task.gpus for task in tasks)

    def weight(counted: Iterable[TaskPlacement]) -> int:
        return sum(int(task.gpus) if has_gpus else 1 for task in counted)

    torn = 0
    for wishes, kept in _wishing(spec, tasks):
        nodes = [room.index[task.node] for task in kept]
        torn += weight(kept) * sum(len(set(room.topology[level].of_node[nodes].tolist())) > 1 for level in wishes)
    return torn / weight(tasks) if torn else 0.0


def _wishing(
    spec: JobSpec, tasks: Sequence[TaskPlacement]
) -> Iterator[tuple[tuple[Level, ...], Sequence[TaskPlacement]]]:
    """Tasks that are best together, each with the levels of which."""
    for known in spec.topology.together:
        units = defaultdict[int, list[TaskPlacement]](list)
        for task in tasks if known.wishes else ():
            if task.group in known.groups:
                units[spec.unit_number(known, task.group, task.index)].append(task)
        yield from ((known.wishes, kept) for kept in units.values())
    for group in spec.task_groups:
        for bundle in spec.bundles_of(group):
            found = defaultdict[int, list[TaskPlacement]](list)
            for task in tasks if bundle.wishes else ():
                if task.group == group.name:
                    found[task.index // bundle.tasks].append(task)
            yield from ((bundle.wishes, kept) for kept in found.values())


def near_data(room: FreeCapacity, names: Collection[str]) -> npt.NDArray[np.bool_]:
    """The nodes at which all of these data are near."""
    nowhere = np.zeros(len(room.nodes), dtype=bool)
    near: npt.NDArray[np.bool_] = np.logical_and.reduce([room.near.get(name, nowhere) for name in names])
    return near


def strains_at(topology: Topology, asked: TopologyRequest, level: Level) -> Floats:
    """What a gang pays, by domain of a level, for being no closer than that."""
    bandwidth = topology[level].bandwidth
    slow = (
        np.maximum(0.0, FAST_ENOUGH / bandwidth - 1.0) if asked.communication == "bound" else np.zeros(len(bandwidth))
    )
    return np.asarray(sum(is_wider(level, wish) for wish in asked.wishes) + slow, dtype=np.float64)


def ladder(topology: Topology, asked: TopologyRequest) -> list[tuple[Level | None, float]]:
    """The levels between which a gang can tell, from the closest: each the widest at which it pays no more than this, at best."""
    steps: list[tuple[Level | None, float]] = []
    for level in (*LEVELS, None):
        if is_wider(level, asked.required):
            break
        best = float(topology[level or "pool"].bandwidth.max(initial=0.0))
        strain = _strain(asked, level, best)
        if steps and steps[-1][1] == strain:
            steps.pop()
        steps.append((level, strain))
    return steps


def _strain(asked: TopologyRequest, level: Level | None, bandwidth: float) -> float:
    slow = max(0.0, FAST_ENOUGH / bandwidth - 1.0) if asked.communication == "bound" else 0.0
    return sum(is_wider(level, wish) for wish in asked.wishes) + slow
