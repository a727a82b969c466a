"""Whether what tasks are to run on is there: an instance may have to be made first, and a GPU to become whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from solver.model.cluster import DeviceId, Gpu, Node, NodeName
from solver.model.workload import TaskPlacement

State = Literal["there", "coming", "missing"]


@dataclass(frozen=True, slots=True)
class DeviceReadiness:
    """The nodes as the backend reports them, and the GPUs that are being partitioned. Of what is not reported nothing is said."""

    nodes: Mapping[NodeName, Node] = field(default_factory=dict)
    changing: Collection[DeviceId] = ()
    drained: Mapping[str, str] = field(default_factory=dict)
    """The nodes and GPUs that what runs there is to leave, and why."""

    def under(self, tasks: Iterable[TaskPlacement]) -> State:
        """`coming`: one of their GPUs is being partitioned; `missing`: none is, and yet a task finds something else."""
        tasks = tuple(tasks)
        if gpus_of(tasks) & set(self.changing):
            return "coming"
        return "there" if all(map(self._has, tasks)) else "missing"

    def _has(self, task: TaskPlacement) -> bool:
        node = self.nodes.get(task.node)
        return node is None or all(_fits(task, gpu) for gpu in node.gpus if gpu.id in gpus_of((task,)))


UNKNOWN = DeviceReadiness()
"""Nothing is reported: what tasks need counts as there."""


def _fits(task: TaskPlacement, gpu: Gpu) -> bool:
    if task.mig is None:
        return gpu.instances is None
    return all(slot.instance in (gpu.instances or ()) for slot in task.slots if slot.gpu == gpu.id)


def gpus_of(tasks: Iterable[TaskPlacement]) -> set[DeviceId]:
    """The GPUs that tasks hold, or have an instance of."""
    return {device for task in tasks for device in task.on_gpus}
