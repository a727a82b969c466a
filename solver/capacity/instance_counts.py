"""Tasks that find a MIG instance on a node: counted anew only where its GPUs are others than the last time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from solver.capacity.mig_gpus import MigGpu, MigRule, most_besides, tasks_on
from solver.model.cluster import DeviceId
from solver.model.mig_table import MigProfile


class Counted(NamedTuple):
    """Tasks on a node as it is, and how many more each of its GPUs takes that gains by being changed."""

    as_it_is: int
    gains: tuple[int, ...]


NONE = Counted(0, ())


class InstanceCounts:
    """What was counted last of each node and profile. Rooms share it: what a node has is never changed in place, but replaced."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str, bool], tuple[Sequence[MigGpu], Sequence[DeviceId] | None, Counted]] = {}

    def of(
        self,
        node: int,
        rule: MigRule,
        profile: MigProfile,
        gpus: Sequence[MigGpu],
        whole: Sequence[DeviceId] | None,
    ) -> Counted:
        """Of a node with these GPUs in MIG mode and these devices free as a whole; None: no GPU may be changed."""
        key = (node, profile.name, whole is None)
        known = self._known.get(key)
        if known is None or known[0] is not gpus or known[1] is not whole:
            known = self._known[key] = (gpus, whole, _count(rule, profile, gpus, whole))
        return known[2]


class _Step(NamedTuple):
    """Changes at one node that give it more tasks. Sorted by what a task costs, then by node."""

    changes_per_task: float
    node: int
    changes: int


def best_spent(tasks: Mapping[int, Sequence[int]], left: int) -> dict[int, int]:
    """By node its tasks, where no more than `left` changes are made altogether. `tasks`: by node, of 0, 1, 2 … changes there.

    Of all steps that are affordable the one is taken again and again in which a task costs fewest changes.
    """
    made, steps = dict.fromkeys(tasks, 0), list[_Step]()
    for node in tasks:
        _push(steps, tasks[node], node, 0, left)
    while steps:
        step = heappop(steps)
        if step.changes <= left:
            left -= step.changes
            made[step.node] += step.changes
        _push(steps, tasks[step.node], step.node, made[step.node], left)
    return {node: known[made[node]] for node, known in tasks.items()}


def _push(steps: list[_Step], tasks: Sequence[int], node: int, made: int, left: int) -> None:
    """The best step that a node can go on with."""
    ends = range(made + 1, min(len(tasks), made + left + 1))
    further = [
        _Step((end - made) / (tasks[end] - tasks[made]), node, end - made) for end in ends if tasks[end] > tasks[made]
    ]
    if further:
        heappush(steps, min(further))


def _count(rule: MigRule, profile: MigProfile, gpus: Sequence[MigGpu], whole: Sequence[DeviceId] | None) -> Counted:
    tasks = [tasks_on(rule, gpu.before, gpu.held, profile) for gpu in gpus]
    as_it_is = sum(now for now, _ in tasks)
    if whole is None:
        return Counted(as_it_is, ())
    gains = [then - now for now, then in tasks if then > now]
    if rule.changes:
        gains += [most_besides(rule, (), profile)] * len(whole)
    return Counted(as_it_is, tuple(gain for gain in gains if gain))
