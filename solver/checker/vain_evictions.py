"""Work that leaves for another though it could stay, with everything served that the plan serves. Part of the checker."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from solver.checker.case import JudgedPlan, Leaving
from solver.checker.closeness import units
from solver.checker.end_state import EndState
from solver.checker.protection import too_early
from solver.checker.shortfalls import is_plain
from solver.model.amounts import CPU, MEMORY
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.parts import surplus_of, without
from solver.model.shape import Shape
from solver.model.workload import Job, JobName, TaskPlacement
from solver.plan.plan import Evict, Grow, Shrink
from solver.plan.violation import Violation
from solver.policy.policy import PriorityClass
from solver.policy.tree import QuotaLine


def vain_evictions(case: JudgedPlan, state: EndState) -> Iterator[Violation]:
    """Every job that leaves, or shrinks, and could stay where it is; and every gang that leaves and could shrink."""
    yield from _Evictions(case, state).findings()


def vain_shrinks(case: JudgedPlan, state: EndState) -> frozenset[JobName]:
    """Gangs that shrink for a job, of which a task, or a unit of tasks, could stay, even beside what leaves for others."""
    return frozenset(step.job for step in case.steps(Shrink) if _Evictions(case, state).is_vain_alone(step))


_Tasks = tuple[Job, Sequence[TaskPlacement]]
"""A job, and some of its tasks."""

_GPUS = "gpus/"
"""Whole GPUs, beside the names of what is beside them."""


@dataclass(frozen=True)
class _Evictions:
    case: JudgedPlan
    state: EndState

    def findings(self) -> Iterator[Violation]:
        """Each by itself: beside all that the plan gives, and without the others that leave."""
        for step in self.case.leaving:
            if step.means == "move" or not self._is_told_by_room(step):
                continue
            job = self.case.jobs[step.job]
            if isinstance(step, Shrink):
                if self.is_vain(step):
                    yield Violation("needless", job.name, f"shrinks for {step.beneficiary}, and could stay as it is")
            elif self._could_stay(job, job.placement):
                yield Violation("needless", job.name, f"leaves for {step.beneficiary}, and could stay")
            elif self._is_elastic(job) and self._could_stay(job, without(job.placement, surplus_of(job))):
                yield Violation("needless", job.name, f"leaves for {step.beneficiary}, and could shrink")
            elif step.beneficiary in self._with_room_elsewhere:
                yield Violation("needless", job.name, f"leaves for {step.beneficiary}, which has room elsewhere")

    def is_vain(self, step: Shrink) -> bool:
        """Whether some of what leaves a gang could stay."""
        job = self.case.jobs[step.job]
        return self._is_told_by_room(step) and any(self._could_stay(job, unit) for unit in _units(job, step))

    def is_vain_alone(self, step: Shrink) -> bool:
        """The same, also if all stayed that leaves for others: it was not needed when it was chosen, whatever came after that."""
        job, others = self.case.jobs[step.job], list(self._leaving_for_others(step))
        return self._is_told_by_room(step) and any(
            self._is_below_limits(job, unit) and self._has_room(((job, unit), *_on_nodes(unit, others)))
            for unit in _units(job, step)
        )

    def _leaving_for_others(self, step: Shrink) -> Iterator[_Tasks]:
        for other in self.case.leaving:
            if other.beneficiary != step.beneficiary:
                job = self.case.jobs[other.job]
                yield job, job.placement if isinstance(other, Evict) else other.tasks

    # For whom.

    @cached_property
    def _with_room_elsewhere(self) -> frozenset[JobName]:
        """Jobs that are promised what others leave, and could start on what is free if all of these stayed."""
        leaving, needed = defaultdict[JobName, list[TaskPlacement]](list), set[JobName]()
        for step in self.case.leaving:
            if step.beneficiary in self.case.promises and step.beneficiary is not None:
                tasks = self.case.jobs[step.job].placement if isinstance(step, Evict) else step.tasks
                leaving[step.beneficiary] += tasks
                if self._gives_right(step.job, tasks, step.beneficiary):
                    needed.add(step.beneficiary)
        return frozenset(
            name for name, tasks in leaving.items() if name not in needed and self._has_room_elsewhere(name, tasks)
        )

    def _gives_right(self, name: JobName, tasks: Sequence[TaskPlacement], beneficiary: JobName) -> bool:
        """Whether another job below a queue of its path may have what the plan gives it only since this one leaves."""
        job = self.case.jobs[name]
        return any(
            self._served[line] - {beneficiary}
            and (line.queue == job.spec.queue or self.state.inside.left(line) < milli)
            for kind, milli in self.case.ground.charge(tasks).items()
            for line in self._lines(job, kind)
        )

    @cached_property
    def _served(self) -> Mapping[QuotaLine, set[JobName]]:
        """By line the jobs below it that the plan gives something."""
        served = defaultdict[QuotaLine, set[JobName]](set)
        for step in self.case.placing:
            job = self.case.jobs[step.job]
            for kind in self.case.given(step):
                for line in self._lines(job, kind):
                    served[line].add(step.job)
        return served

    def _has_room_elsewhere(self, name: JobName, leaving: Sequence[TaskPlacement]) -> bool:
        job, promise = self.case.jobs[name], self.case.promises[name]
        known = self.case.lookup.class_of(job)
        types = {self.case.ground.gpu_types[task.node] for task in (*promise.tasks, *leaving)}
        # What rests after an eviction may have a right to the place of others alone; others may use what leaves for this one.
        if not is_plain(job) or len(types) != 1 or known is None or job.evicted_at:
            return False
        if any(self._placed[task.node] - {name} for task in leaving) or not self._may_start(job, known):
            return False
        if any(task.share is not None or task.mig is not None for task in leaving) or not self._is_below_limits(
            job, leaving
        ):
            return False
        (gpu_type,), (group,) = types, job.spec.task_groups
        level = job.spec.effective_topology.required
        shape, gpus = group.shape, Counter[NodeName]()
        for sign, tasks in ((1, promise.tasks), (-1, leaving)):
            for task in tasks:
                gpus[task.node] += sign * len(task.devices)
        room = Counter(self.state.slots(shape, gpu_type, level))
        for name_of_node, more in gpus.items():
            host = self.state.hosts.get(name_of_node)
            if host is not None:
                domain = host.node.domain(level) if level else ""
                room[domain] += max(0, host.slots(shape, min(0, more))) - max(0, host.slots(shape))
        return max(room.values(), default=0) >= len(promise.tasks)

    def _may_start(self, job: Job, known: PriorityClass) -> bool:
        """Whether it may start on what is free: what may not be lent inside guarantees alone."""
        if known.preemptible or known.may_borrow:
            return True
        lines = (line for kind in self.case.given(self.case.promises[job.name]) for line in self._lines(job, kind))
        return all(self.state.firm.held[line] <= self.case.guaranteed.get(line, 0) for line in lines)

    def _lines(self, job: Job, kind: GpuType) -> tuple[QuotaLine, ...]:
        return self.case.lookup.lines(job.spec.queue, kind)

    @cached_property
    def _placed(self) -> Mapping[NodeName, set[JobName]]:
        """By node who gets something there."""
        placed = defaultdict[NodeName, set[JobName]](set)
        for step in (*self.case.placing, *self.case.steps(Grow)):
            for task in step.tasks:
                placed[task.node].add(step.job)
        return placed

    # Each of them.

    def _is_told_by_room(self, step: Leaving) -> bool:
        """Whether it leaves for room alone: not so that its own queue has a right to what others give up for the same job."""
        queue = self.case.jobs[step.job].spec.queue
        if step.beneficiary not in self.case.promises or step.beneficiary is None:
            return False
        beneficiary = self.case.jobs[step.beneficiary]
        known, path = self.case.lookup.class_of(beneficiary), self.case.lookup.path(beneficiary.spec.queue)
        if known is None or too_early(beneficiary, known, path, self.case.snapshot.time):
            return False  # It has others leave only since it lies inside its guarantee once they have.
        if beneficiary.spec.queue != queue:
            return True
        # What was evicted may rest, and borrows nothing then: work of its own queue leaves until it lies inside the guarantee.
        return not beneficiary.evicted_at and not self._takes_from_others[step.beneficiary]

    @cached_property
    def _takes_from_others(self) -> Mapping[JobName, bool]:
        found = defaultdict[JobName, bool](bool)
        for step in self.case.leaving:
            if step.beneficiary in self.case.jobs and step.beneficiary is not None:
                theirs = self.case.jobs[step.beneficiary].spec.queue
                found[step.beneficiary] |= self.case.jobs[step.job].spec.queue != theirs
        return found

    def _is_elastic(self, job: Job) -> bool:
        known = self.case.lookup.class_of(job)
        return known is not None and known.preemptible

    def _could_stay(self, job: Job, tasks: Sequence[TaskPlacement]) -> bool:
        return self._is_below_limits(job, tasks) and self._has_room(((job, tasks),))

    def _is_below_limits(self, job: Job, tasks: Sequence[TaskPlacement]) -> bool:
        """Whether no limit on its path, nor what others do not lend, might make it leave."""
        if self.case.lookup.limits_host(job.spec.queue):
            return False
        for gpu_type, milli in self.case.ground.charge(tasks).items():
            if gpu_type in self.case.lookup.lent_in_part:
                return False
            for queue in self.case.lookup.path(job.spec.queue):
                entry, held = queue.quota_for(gpu_type), self.state.used[QuotaLine(queue.name, gpu_type)]
                if entry and (entry.per_user is not None or (entry.max is not None and held + milli > entry.max)):
                    return False
        return True

    def _has_room(self, held: Sequence[_Tasks]) -> bool:
        """Whether each of their nodes has as many whole GPUs left, or nobody is given a part of the GPU of which one has one."""
        needs = defaultdict[NodeName, Counter[str]](Counter)
        for job, task in ((job, task) for job, tasks in held for task in tasks):
            shapes = {group.name: group.shape for group in job.spec.task_groups}
            if task.mig is not None or (task.share is not None and not self._given.isdisjoint(task.devices)):
                return False
            shape = shapes.get(task.group, Shape())
            needs[task.node][_GPUS] += len(task.devices) if task.share is None else 0
            needs[task.node].update(shape.beside)
        for name, need in needs.items():
            host = self.state.hosts.get(name)
            if host is None or host.gpus < need.pop(_GPUS):
                return False
            if host.cpu < need.pop(CPU) or host.memory < need.pop(MEMORY) or not host.others.covers(need):
                return False
        return bool(needs)

    @cached_property
    def _given(self) -> Set[DeviceId]:
        """GPUs of which the plan gives or promises anything."""
        return {device for step in self.case.placing for task in step.tasks for device in task.devices}


def _on_nodes(tasks: Sequence[TaskPlacement], of_jobs: Iterable[_Tasks]) -> Iterator[_Tasks]:
    """Of the tasks of some jobs those that are on the nodes of these."""
    nodes = {task.node for task in tasks}
    for job, others in of_jobs:
        yield job, [task for task in others if task.node in nodes]


def _units(job: Job, step: Shrink) -> Iterator[list[TaskPlacement]]:
    """What of a gang leaves together: task by task, or so many at once as each of its groups says, or units of several groups."""
    leaving = sorted(step.tasks, key=lambda task: task.index)
    shared = [known for known in job.spec.topology.together if known.units > 1]
    for known in shared:
        yield from units(job, known, leaving)
    for group in job.spec.task_groups:
        mine = [task for task in leaving if task.group == group.name]
        if not any(group.name in known.groups for known in shared):
            for first in range(0, len(mine), group.replica_step):
                yield mine[first : first + group.replica_step]
