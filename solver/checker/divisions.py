"""GPUs that are divided for parts which divided ones beside them would take. Part of the checker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from solver.checker.case import JudgedPlan
from solver.checker.end_state import EndState
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import MILLI_PER_GPU
from solver.model.workload import JobName, QueueName, TaskPlacement
from solver.plan.plan import Bind, Nominate
from solver.plan.violation import Violation


@dataclass
class _Divided:
    """A GPU of which parts are held, or are to be: by tasks of which queues, how many of them, and how much in all."""

    queues: set[QueueName] = field(default_factory=set)
    tasks: int = 0
    milli: int = 0


def needless_divisions(case: JudgedPlan, state: EndState) -> Iterator[Violation]:
    """Every job that is given a part of a GPU that nobody else has, though a divided one of its node and queue has room."""
    if case.policy.sharing:
        yield from _Divisions(case, state).findings()


@dataclass(frozen=True)
class _Divisions:
    case: JudgedPlan
    state: EndState

    def findings(self) -> Iterator[Violation]:
        """Each job by itself, beside all others as the plan has them."""
        for step in self.case.placing:
            if step.job in self.case.promised or step.job in self.case.moving or not self._goes_anywhere(step.job):
                continue
            for task in step.tasks:
                if task.share is not None and self._could_join(step, task):
                    alone = next(device for device in task.devices if self._divided[device].tasks == 1)
                    told = f"is given a part of {alone} alone, though another GPU of {task.node} has room for it"
                    yield Violation("spread", step.job, told)
                    break

    def _goes_anywhere(self, name: JobName) -> bool:
        """Whether nothing asks for its tasks to be apart, or on some GPUs rather than others."""
        spec = self.case.jobs[name].spec
        groups = spec.task_groups
        return not spec.topology.spread and not any(group.topology.spread or group.nodes for group in groups)

    def _could_join(self, step: Bind | Nominate, task: TaskPlacement) -> bool:
        queue, share = self.case.jobs[step.job].spec.queue, task.share
        if all(self._divided[device].tasks > 1 for device in task.devices):
            return False
        if task.node not in self.state.hosts or share is None:
            return False
        others = (known for other, known in self._on_node[task.node].items() if other not in task.devices)
        return any(known.queues == {queue} and known.milli + share <= MILLI_PER_GPU for known in others)

    @cached_property
    def _divided(self) -> Mapping[DeviceId, _Divided]:
        return {device: known for devices in self._on_node.values() for device, known in devices.items()}

    @cached_property
    def _on_node(self) -> Mapping[NodeName, Mapping[DeviceId, _Divided]]:
        """By node, what holds parts of its GPUs: what is there now, whether it leaves or not, and what is to be there."""
        found = defaultdict[NodeName, dict[DeviceId, _Divided]](dict)
        unhealthy = {gpu.id for node in self.case.ground.nodes for gpu in node.gpus if not gpu.healthy}
        held = [(job, task) for job in self.case.snapshot.jobs for task in job.placement]
        there = {(job.name, task.group, task.index) for job, task in held if job.phase != "pending"}
        held += [
            (job, task)
            for job, tasks in self.state.held
            for task in tasks
            if (job.name, task.group, task.index) not in there
        ]
        for job, task in held:
            if task.share is not None and unhealthy.isdisjoint(task.devices):
                for device in task.devices:
                    known = found[task.node].setdefault(device, _Divided())
                    known.queues.add(job.spec.queue)
                    known.tasks += 1
                    known.milli += int(task.share)
        return found
