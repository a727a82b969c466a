"""What each queue is guaranteed, what it uses, and what of that lies inside a limit: by the checker's own arithmetic.

Part of the checker. It shares nothing with what decides (solver/quota), so that a fault there shows as a plan that is refused.
All amounts are milli-GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from solver.checker.policy_index import PolicyIndex
from solver.model.cluster import GpuType, NodeName
from solver.model.quantities import MILLI_PER_GPU
from solver.model.snapshot import Snapshot
from solver.model.workload import QueueName, TaskPlacement
from solver.policy.tree import QuotaLine

Charged = tuple[QueueName, GpuType, int]
"""A queue, and how much it has of a type by itself."""

_CLUSTER = QueueName("")
"""Stands above the roots. No queue is called so."""


def guaranteed_lines(lookup: PolicyIndex, capacity: Mapping[GpuType, int]) -> dict[QuotaLine, int]:
    """What every queue is guaranteed of every type.

    As it says, but no more than its parent; a queue that says nothing has its weighted part of what its parent has not given
    to those that say something, in whole GPUs, rounded down. Above the roots stands the cluster, with all that is declared.
    """
    given, weights = Counter[QuotaLine](), Counter[QuotaLine]()
    said: dict[QuotaLine, int | None] = {}
    for queue in lookup.from_the_top:
        stated = {entry.gpu_type: entry.guaranteed for entry in queue.quota}
        for gpu_type in capacity:
            said[QuotaLine(queue.name, gpu_type)] = mine = stated.get(gpu_type)
            above = QuotaLine(_above(lookup, queue.name), gpu_type)
            given[above] += mine or 0
            weights[above] += queue.weight if mine is None else 0
    found = {QuotaLine(_CLUSTER, gpu_type): milli for gpu_type, milli in capacity.items()}
    for queue in lookup.from_the_top:
        for gpu_type in capacity:
            line, above = QuotaLine(queue.name, gpu_type), QuotaLine(_above(lookup, queue.name), gpu_type)
            there, stated_here, share = found.get(above, 0), said[line], 0
            if stated_here is None and weights[above]:
                gpus = max(0, there - given[above]) // MILLI_PER_GPU
                share = gpus * queue.weight // weights[above] * MILLI_PER_GPU
            found[line] = min(there, share if stated_here is None else stated_here)
    return {line: milli for line, milli in found.items() if line.queue != _CLUSTER}


def common_lines(lookup: PolicyIndex, guaranteed: Mapping[QuotaLine, int]) -> dict[QuotaLine, int]:
    """The same, but that nothing limits queues below one that shares its guarantee: they have what it has in common."""
    all_there_is = sum(guaranteed.values()) + MILLI_PER_GPU * 10**6
    return {line: milli if lookup.shares_from(*line) is None else all_there_is for line, milli in guaranteed.items()}


def _above(lookup: PolicyIndex, name: QueueName) -> QueueName:
    path = lookup.path(name)
    return path[1].name if len(path) > 1 else _CLUSTER


def charged_to(snapshot: Snapshot, types: Mapping[NodeName, GpuType]) -> Iterator[Charged]:
    """What each job that holds something, or was promised it, is charged.

    A job that was asked to leave, or waits, has what it was promised alone.
    """
    leaves, promised = set[tuple[str, int]](), dict[str, tuple[TaskPlacement, ...]]()
    for intent in snapshot.in_flight.intents:
        if intent.evicts:
            leaves.add((intent.job, intent.attempt))
        elif intent.kind == "nominate":
            promised[intent.job] = intent.tasks
    for job in snapshot.jobs:
        stays = job.phase != "pending" and (job.name, job.attempt) not in leaves
        for task in job.placement if stays else promised.get(job.name, ()):
            yield job.spec.queue, types.get(task.node, GpuType("")), _milli(task)


def _milli(task: TaskPlacement) -> int:
    """What one task counts: each instance its slices, a part of a GPU that part, else its GPUs."""
    if task.mig is not None:
        return sum(int(slot.cost) for slot in task.slots)
    return len(task.devices) * (MILLI_PER_GPU if task.share is None else int(task.share))


def inside_limits(lookup: PolicyIndex, limits: Mapping[QuotaLine, int], own: Iterable[Charged]) -> Counter[QuotaLine]:
    """What of the use on each line lies inside the limits of every queue from its holder's up to that line.

    A queue that has queues below it counts with what lies inside those: what one of them has beyond its limit is in no
    other's way. `own`: what queues hold by themselves.
    """
    inside = Counter[QuotaLine]()
    for holder, gpu_type, milli in own:
        if holder in lookup.queues and holder not in lookup.parents:
            inside[QuotaLine(holder, gpu_type)] += milli
    types = {line.gpu_type for line in inside}
    for queue in reversed(lookup.from_the_top):
        above = _above(lookup, queue.name)
        for gpu_type in types:
            line = QuotaLine(queue.name, gpu_type)
            if inside[line]:
                inside[line] = min(inside[line], limits.get(line, 0))
                if above != _CLUSTER:
                    inside[QuotaLine(above, gpu_type)] += inside[line]
    return inside


@dataclass
class InsideLedger:
    """What lies inside limits on each line while the plan goes on. A line counts with what lies inside those below it."""

    lookup: PolicyIndex
    limits: Mapping[QuotaLine, int]
    held: Counter[QuotaLine] = field(default_factory=Counter)
    _inside: Counter[QuotaLine] = field(default_factory=Counter)

    def add(self, queue: QueueName, gpu_type: GpuType, milli: int) -> None:
        """A queue has more by itself, or less."""
        for line in self.lookup.lines(queue, gpu_type):
            if not milli:
                return
            held = self.held[line] = self.held[line] + milli
            now = min(held, self.limits.get(line, 0))
            milli, self._inside[line] = now - self._inside[line], now

    def left(self, line: QuotaLine) -> int:
        """Milli-GPU that may still lie inside."""
        return self.limits.get(line, 0) - self._inside[line]
