"""CPU and memory of hosts with nominations: whether they suffice once the evicted jobs have left, and which jobs have them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from solver.model.cluster import NodeName
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, TaskPlacement

Host = tuple[int, int]
"""CPU (milli-cores) and memory (bytes)."""

NONE: Host = (0, 0)


@dataclass(slots=True)
class NominatedHosts:
    """`left`: beside the jobs that stay, and what was promised so far. `leaving`: what jobs that were asked to stop still have."""

    left: dict[NodeName, Host]
    leaving: dict[NodeName, dict[JobName, Host]]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """Those of the nodes on which a snapshot promises something."""
        promised = {task.node for intent in snapshot.in_flight.nominations for task in intent.tasks}
        stopping = {intent.job for intent in snapshot.in_flight.intents if intent.kind == "stop"}
        left = {node.name: (int(node.cpu), int(node.memory)) for node in snapshot.nodes if node.name in promised}
        leaving = {name: dict[JobName, Host]() for name in left}
        for job in snapshot.jobs:
            for name, has in taken(job, (task for task in job.placement if task.node in left)).items():
                if job.name in stopping:
                    leaving[name][job.name] = has
                else:
                    left[name] = _less(left[name], has)
        return cls(left, leaving)

    def take(self, job: Job, tasks: Iterable[TaskPlacement]) -> bool:
        """Whether what is promised fits beside the jobs that stay and what was taken before; it takes it then."""
        needs = taken(job, tasks)
        after = {name: _less(self.left.get(name, NONE), need) for name, need in needs.items()}
        if any(rest < 0 and need for name in needs for rest, need in zip(after[name], needs[name], strict=True)):
            return False
        self.left |= after
        return True

    def in_the_way(self, job: Job, tasks: Iterable[TaskPlacement]) -> set[JobName]:
        """The jobs that must be gone before it can begin, of those that have CPU or memory that it needs."""
        return {
            name
            for node, need in taken(job, tasks).items()
            for which in (0, 1)
            if need[which] and self.left[node][which] < sum(has[which] for has in self.leaving[node].values())
            for name, has in self.leaving[node].items()
            if has[which]
        }


def taken(job: Job, tasks: Iterable[TaskPlacement]) -> dict[NodeName, Host]:
    """What these tasks of a job take of each node."""
    shapes = {group.name: group.shape for group in job.spec.task_groups}
    total: defaultdict[NodeName, Host] = defaultdict(lambda: NONE)
    for task in tasks:
        shape, (cpu, memory) = shapes.get(task.group, Shape()), total[task.node]
        total[task.node] = (cpu + shape.cpu, memory + shape.memory)
    return dict(total)


def _less(one: Host, other: Host) -> Host:
    return one[0] - other[0], one[1] - other[1]
