"""Puts the gangs of a seeded cluster where they run: each in as few domains as may be, first fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from solver.model.cluster import GpuType, Node
from solver.model.workload import Job, TaskPlacement


class Floor:
    """What is free on the nodes of each type while jobs are put there."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._free = {node.name: len(node.gpus) for node in nodes}
        self._cores = {node.name: int(node.cpu) for node in nodes}
        self._of_type: dict[GpuType, list[Node]] = {}
        for node in nodes:
            self._of_type.setdefault(node.gpu_type, []).append(node)

    def free_gpus(self, gpu_type: GpuType) -> int:
        """GPUs of a type that nobody has."""
        return sum(self._free[node.name] for node in self._of_type.get(gpu_type, ()))

    def placed(self, job: Job, gpu_type: GpuType) -> Job | None:
        """The job on the first nodes that have room, all of it in one domain where it requires one; None: there are not as many."""
        (group,) = job.spec.task_groups
        for nodes in self._choices(job, gpu_type):
            found = list[TaskPlacement]()
            for node in nodes:
                found += self._tasks(node, group.replicas - len(found), len(found), job)
                if len(found) == group.replicas:
                    self._take(found, int(group.shape.cpu))
                    return msgspec.structs.replace(job, placement=tuple(found))
        return None

    def _choices(self, job: Job, gpu_type: GpuType) -> Iterator[list[Node]]:
        nodes = [node for node in self._of_type.get(gpu_type, ()) if self._free[node.name]]
        level = job.spec.effective_topology.required
        if level is None:
            yield nodes
            return
        domains: dict[str, list[Node]] = {}
        for node in nodes:
            domains.setdefault(node.domain(level), []).append(node)
        yield from domains.values()

    def _tasks(self, node: Node, most: int, first: int, job: Job) -> Iterator[TaskPlacement]:
        (group,) = job.spec.task_groups
        free = self._free[node.name]
        fit = min(most, free // group.shape.gpus, self._cores[node.name] // max(1, int(group.shape.cpu)))
        taken = len(node.gpus) - free
        for number in range(fit):
            at = taken + number * group.shape.gpus
            devices = tuple(gpu.id for gpu in node.gpus[at : at + group.shape.gpus])
            yield TaskPlacement(group.name, first + number, node.name, devices)

    def _take(self, tasks: Sequence[TaskPlacement], cpu: int) -> None:
        for task in tasks:
            self._free[task.node] -= len(task.devices)
            self._cores[task.node] -= cpu
