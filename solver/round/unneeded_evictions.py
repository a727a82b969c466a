"""Jobs without GPUs that were chosen to leave, and turn out not to be needed once all is decided: they stay.

What leaves later in a round can leave enough beside GPUs for those that were served before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from solver.capacity.free_capacity import FreeCapacity
from solver.model.parts import owner_of
from solver.model.shape import Shape
from solver.model.workload import JobName, TaskPlacement
from solver.preemption.new_nomination import NewNomination
from solver.quota.host_shares import tasks_with_shapes
from solver.quota.victims import Victim


def spared(promises: Sequence[NewNomination], left: FreeCapacity) -> tuple[NewNomination, ...]:
    """The same promises without victims that can stay. `left`: once all have left who leave, and everybody has its place.

    The most recently chosen are asked first; of a gang what it can't do without, and then its other tasks. A promise keeps what
    leaves from its nodes, if nothing else does.
    """
    found = list(promises)
    for number in reversed(range(len(found))):
        for victims in _without_gpus(found[number].victims):
            for victim in victims:
                tasks = tasks_with_shapes(victim.holder.job)
                others = tuple(other for other in found[number].victims if other is not victim)
                without = [*found[:number], replace(found[number], victims=others), *found[number + 1 :]]
                stays = _fit(tasks, left) and _waits_for_some(found[number], without)
                if stays:
                    left.occupy(tasks)
                    found = without
                elif victim.name == owner_of(victim.name):
                    break  # all of the gang leaves with it
    return tuple(found)


def _without_gpus(victims: Iterable[Victim]) -> list[list[Victim]]:
    """Jobs that hold no GPUs at all: of each what leaves, what it can't do without first."""
    by_job = defaultdict[JobName, list[Victim]](list)
    for victim in victims:
        by_job[owner_of(victim.name)].append(victim)
    alone = [parts for parts in by_job.values() if not any(map(_asks_gpus, parts))]
    return [sorted(parts, key=lambda known: known.name != owner_of(known.name)) for parts in reversed(alone)]


def _asks_gpus(victim: Victim) -> bool:
    return any(group.shape.uses_gpus for group in victim.holder.job.spec.task_groups)


def _fit(tasks: Iterable[tuple[TaskPlacement, Shape]], left: FreeCapacity) -> bool:
    """Whether nodes have room for them where they are."""
    needs = defaultdict[int, Counter[str]](Counter)
    for task, shape in tasks:
        node = left.index.get(task.node)
        if node is None or not left.open_nodes[node]:
            return False
        needs[node].update(shape.beside)
    return all(
        need <= int(left.free_beside[name][node]) for node, there in needs.items() for name, need in there.items()
    )


def _waits_for_some(promise: NewNomination, promises: Iterable[NewNomination]) -> bool:
    """Whether anybody still leaves, or moves from, a node where a promise is to come true."""
    nodes = {task.node for task in promise.start.placed.tasks}
    return any(
        task.node in nodes
        for known in promises
        for job in (*(v.holder.job for v in known.victims), *(move.mover.job for move in known.moves))
        for task in job.placement
    )
