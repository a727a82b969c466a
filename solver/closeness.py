"""Which nodes take how many tasks of one group: few domains, bundles kept together, and no domain above what a spread allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solver.world.cluster import SpreadLevel
from solver.world.room import Room
from solver.world.workload import Bundle, JobSpec, Spread, TaskPlacement

Ints = npt.NDArray[np.int64]
Chosen = list[tuple[int, int]]
"""Nodes with the number of tasks that each takes, in the order of the tasks' indexes."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How many more tasks each domain of one spread takes. Whoever chooses nodes counts them here."""

    of_node: Ints
    left: Ints

    @classmethod
    def of(cls, room: Room, spread: Spread, nodes: Iterable[int]) -> Limit:
        """The limit of a spread, with tasks on `nodes` already."""
        of_node = _domains(room, spread.level)
        left = np.full(int(of_node.max(initial=0)) + 1, spread.max_per_domain, dtype=np.int64)
        for node in nodes:
            left[of_node[node]] -= 1
        return cls(of_node, left)


Limits = tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class SpreadLimits:
    """The limits that a gang's spreads set: one over all of its tasks, and one over those of each group that asks for it."""

    whole: Limits
    groups: tuple[Limits, ...]

    @classmethod
    def of(cls, room: Room, spec: JobSpec, placed: Sequence[TaskPlacement] = ()) -> SpreadLimits:
        """The limits of a gang that already has these tasks."""

        def limits(spread: Spread | None, tasks: Iterable[TaskPlacement]) -> Limits:
            return (Limit.of(room, spread, (room.index[task.node] for task in tasks)),) if spread else ()

        groups = (
            limits(group.topology.spread, [task for task in placed if task.group == group.name])
            for group in spec.task_groups
        )
        return cls(limits(spec.topology.spread, placed), tuple(groups))

    def of_group(self, number: int) -> Limits:
        """What binds the tasks of one group."""
        return (*self.whole, *self.groups[number])


def choose(room: Room, slots: Ints, tasks: int, bundle: Bundle | None, limits: Limits) -> Chosen | None:
    """Nodes for all the tasks, or None. After None the limits may have been counted down: begin with new ones."""
    chosen = more_tasks(room, slots, tasks, bundle, limits, ())
    return chosen if sum(count for _, count in chosen) == tasks else None


def more_tasks(
    room: Room, slots: Ints, tasks: int, bundle: Bundle | None, limits: Limits, before: Sequence[int]
) -> Chosen:
    """Nodes for as many of the tasks as can be; `before` has the nodes of the group's earlier tasks, in order."""
    if bundle is None:
        return _fill(room, slots, tasks, limits)
    slots, of_node = slots.copy(), room.topology[bundle.within].of_node
    chosen: Chosen = []
    done = len(before)
    begun = of_node == of_node[before[-1]] if done % bundle.tasks else None
    while tasks:
        size = min(tasks, bundle.tasks - done % bundle.tasks)
        found = _fill(room, _one_bundle(slots, of_node, size, limits) if begun is None else slots * begun, size, limits)
        for node, count in found:
            slots[node] -= count
        chosen += found
        done, tasks, begun = done + size, tasks - size, None
        if sum(count for _, count in found) < size:
            break
    return chosen


def tasks_that_fit(room: Room, slots: Ints, spec: JobSpec, number: int) -> int:
    """How many of the tasks that one group needs to start its bundles and the spreads allow, were it alone; in whole bundles."""
    limits, group = SpreadLimits.of(room, spec).of_group(number), spec.task_groups[number]
    bundle = spec.bundle_of(group)
    fit = sum(count for _, count in more_tasks(room, slots, group.least, bundle, limits, ()))
    return fit - fit % bundle.tasks if bundle and fit < group.least else fit


def _one_bundle(slots: Ints, of_node: Ints, size: int, limits: Limits) -> Ints:
    """The slots of the domain that such a bundle fills best; where none takes all of it, of the roomiest."""
    totals = room_in_domains(slots, of_node, limits)
    able = np.flatnonzero(totals >= size)
    best = able[totals[able].argmin()] if len(able) else totals.argmax()
    in_best: Ints = slots * (of_node == best)
    return in_best


def room_in_domains(slots: Ints, of_node: Ints, limits: Limits) -> Ints:
    """Tasks that each domain takes, as far as each limit alone says."""
    count = int(of_node.max(initial=0)) + 1
    totals: Ints = np.bincount(of_node, weights=slots, minlength=count).astype(np.int64)
    for limit in limits:
        both, of_pair = np.unique(np.stack((of_node, limit.of_node)), axis=1, return_inverse=True)
        each = np.bincount(of_pair.reshape(-1), weights=slots).astype(np.int64)
        clipped = np.minimum(each, limit.left[both[1]])
        totals[:] = np.minimum(totals, np.bincount(both[0], weights=clipped, minlength=count).astype(np.int64))
    return totals


def _fill(room: Room, slots: Ints, tasks: int, limits: Limits) -> Chosen:
    """Take nodes until the tasks have one or nothing is left: few racks and islands, then the nodes that are left fullest."""
    for limit in limits:
        slots = np.minimum(slots, limit.left[limit.of_node])
    nodes = np.flatnonzero(slots)
    order = nodes[np.argsort(room.free_gpus[nodes], kind="stable")]
    for level in ("island", "rack", "block"):  # stable sorts from the least to the most significant key
        order = order[np.argsort(_domain_rank(room.topology[level].of_node, slots, order, tasks), kind="stable")]
    chosen: Chosen = []
    for node in order:
        if not tasks:
            break
        count = min(tasks, int(slots[node]), *(int(limit.left[limit.of_node[node]]) for limit in limits))
        if count:
            for limit in limits:
                limit.left[limit.of_node[node]] -= count
            chosen.append((int(node), count))
            tasks -= count
    return chosen


def _domains(room: Room, level: SpreadLevel) -> Ints:
    if level == "node":
        return np.arange(len(room.nodes), dtype=np.int64)
    of_node: Ints = room.topology[level].of_node
    return of_node


def _domain_rank(of_node: Ints, slots: Ints, order: Ints, tasks: int) -> Ints:
    """Sort key that puts the tightest domain that takes all tasks first, else the roomiest first, each kept together."""
    totals = np.bincount(of_node[order], weights=slots[order], minlength=int(of_node.max()) + 1).astype(np.int64)
    mine = totals[of_node[order]]
    unwanted = np.where(mine >= tasks, mine - tasks, 2 * int(totals.max()) + tasks - mine)
    return np.asarray(unwanted * (int(of_node.max()) + 1) + of_node[order], dtype=np.int64)
