"""What is beside GPUs on hosts with nominations: whether they suffice once the evicted jobs have left, and which jobs have them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from solver.model.amounts import AmountsLeft
from solver.model.cluster import NodeName
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, TaskPlacement

Host = Counter[str]
"""What is beside GPUs, by name."""


@dataclass(slots=True)
class NominatedHosts:
    """Those that take new work.

    `left`: beside the jobs that stay, and what was promised so far. `leaving`: what jobs that were asked to stop still have.
    """

    left: dict[NodeName, AmountsLeft]
    leaving: dict[NodeName, dict[JobName, Host]]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """Those of the nodes on which a snapshot promises something, as far as they take new work."""
        promised = {task.node for intent in snapshot.in_flight.nominations for task in intent.tasks}
        stopping = {intent.job for intent in snapshot.in_flight.intents if intent.kind == "stop"}
        taking = [node for node in snapshot.nodes if node.schedulable and node.name in promised]
        left = {node.name: AmountsLeft(node.beside) for node in taking}
        leaving = {name: dict[JobName, Host]() for name in left}
        for job in snapshot.jobs:
            for name, has in taken(job, (task for task in job.placement if task.node in left)).items():
                if job.name in stopping:
                    leaving[name][job.name] = has
                else:
                    left[name].take(has)
        return cls(left, leaving)

    def take(self, job: Job, tasks: Iterable[TaskPlacement]) -> bool:
        """Whether what is promised fits beside the jobs that stay and what was taken before; it takes it then."""
        needs = taken(job, tasks)
        if not all(node in self.left and self.left[node].covers(need) for node, need in needs.items()):
            return False
        for node, need in needs.items():
            self.left[node].take(need)
        return True

    def in_the_way(self, job: Job, tasks: Iterable[TaskPlacement]) -> set[JobName]:
        """The jobs that must be gone before it can begin, of those that have what it needs beside GPUs."""
        return {
            name
            for node, need in taken(job, tasks).items()
            for which in need
            if need[which] and self.left[node][which] < sum(has[which] for has in self.leaving[node].values())
            for name, has in self.leaving[node].items()
            if has[which]
        }


def taken(job: Job, tasks: Iterable[TaskPlacement]) -> dict[NodeName, Host]:
    """What these tasks of a job take of each node."""
    shapes = {group.name: group.shape for group in job.spec.task_groups}
    total = defaultdict[NodeName, Host](Host)
    for task in tasks:
        total[task.node].update(shapes.get(task.group, Shape()).beside)
    return dict(total)
