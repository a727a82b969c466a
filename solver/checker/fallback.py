"""Judges whether GPU types further down a wish list are used only in time, or inside a guarantee.

Part of the checker. It needs every bound job and node to be in the snapshot. Whether a preferred type
could ever serve a job it knows only of plain ones (`_sure_to_serve`), and of others it says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from solver.checker.case import Charge, JudgedPlan
from solver.checker.dues import inside_limits
from solver.model.amounts import Amounts, AmountsLeft
from solver.model.cluster import GpuType
from solver.model.parts import without
from solver.model.quantities import MilliGpu
from solver.model.shape import Shape
from solver.model.workload import GroupTopology, Job, QueueName, TaskPlacement
from solver.plan.plan import Shrink
from solver.plan.violation import Violation


def fallback_violations(case: JudgedPlan) -> Iterable[Violation]:
    """Every early use of a fallback type, outside what its queue is guaranteed of it."""
    wishes = _Wishes(case)
    # Who was promised its devices before was early, or not, when that was decided.
    # Who moves stays on its type.
    decided = (case.promised.keys() - case.withdrawn) | case.moving
    steps = [step for step in case.placing if step.job not in decided]
    early = [
        (case.jobs[step.job], case.given(step)) for step in steps if wishes.is_early(case.jobs[step.job], step.tasks)
    ]
    if not early:
        return
    use = case.lookup.added_up((job.spec.queue, *one) for job, charge in early for one in charge.items())
    held = ((queue, *one) for queue, charge in _stays(case) for one in charge.items())
    # What a sibling borrows does not use up the guarantee above both.
    use.update(inside_limits(case.lookup, case.guaranteed, held))
    for job, charge in early:
        for line in case.lookup.added_up((job.spec.queue, *one) for one in charge.items()):
            if use[line] > case.guaranteed.get(line, 0):
                holds, most = MilliGpu(use[line]), MilliGpu(case.guaranteed.get(line, 0))
                said = f"is early on {line.gpu_type}: queue {line.queue} would hold {holds} of {most} guaranteed"
                yield Violation("fallback", job.name, said)


@dataclass(frozen=True, slots=True)
class _Wishes:
    """Who may not use a type yet, since it would sooner have another that could serve it."""

    case: JudgedPlan
    _rooms: dict[tuple[GpuType, int, int, int, Amounts], int] = field(default_factory=dict)

    def is_early(self, job: Job, tasks: Iterable[TaskPlacement]) -> bool:
        """Whether a job would use a type before it has waited long enough for a better one."""
        known, policy = self.case.lookup.class_of(job), self.case.policy
        after = job.spec.fallback_after
        if after is None and known is not None:
            after = known.fallback_after
        if after is None:
            after = policy.scheduling.fallback_after
        if self.case.snapshot.time >= job.submitted_at + after or len(job.spec.task_groups) > 1:
            return False
        wishes, types = job.spec.task_groups[0].shape.gpu_types, self.case.ground.gpu_types
        used = {types[task.node] for task in tasks if task.devices}
        return any(
            wishes.index(gpu_type) > 0
            and any(self._sure_to_serve(job, better) for better in wishes[: wishes.index(gpu_type)])
            for gpu_type in used & set(wishes)
        )

    def _sure_to_serve(self, job: Job, gpu_type: GpuType) -> bool:
        """Whole GPUs on any node, nothing asked of topology, no max in the way, all lent, and enough nodes, were they empty."""
        (group,) = job.spec.task_groups
        shape, least = group.shape, group.replicas if group.min_replicas is None else group.min_replicas
        topology, known = job.spec.topology, self.case.lookup.class_of(job)
        asks = topology.required or topology.group or topology.spread
        if (
            asks
            or group.topology != GroupTopology()
            or group.nodes
            or not shape.gpus
            or (known and not known.preemptible)
        ):
            return False
        if self.case.lookup.lent_in_part:
            return False
        for queue in self.case.lookup.path(job.spec.queue):
            entry = queue.quota_for(gpu_type)
            limits = (entry.max, entry.per_user) if entry else ()
            if any(limit is not None and limit < least * MilliGpu.gpus(shape.gpus) for limit in limits):
                return False
        return self._room(shape, gpu_type) >= least

    def _room(self, shape: Shape, gpu_type: GpuType) -> int:
        """How many such tasks all open nodes of a type could have, were they empty."""
        key = gpu_type, shape.gpus, int(shape.cpu), int(shape.memory), shape.resources
        if key not in self._rooms:
            room = 0
            for node in self.case.ground.nodes:
                if node.gpu_type == gpu_type and node.ready and not node.cordoned:
                    # A GPU that is partitioned may never be whole again.
                    whole = [gpu for gpu in node.gpus if gpu.healthy and gpu.instances is None]
                    has = AmountsLeft(node.beside)
                    beside = (has[name] // need for name, need in shape.beside.items() if need)
                    room += min((len(whole) // shape.gpus, *beside))
            self._rooms[key] = room
        return self._rooms[key]


def _stays(case: JudgedPlan) -> Iterator[tuple[QueueName, Charge]]:
    """Who holds GPUs and keeps them, or was promised some."""
    leaving = case.sent_back | (case.evicted - case.moving)
    shrinking = {step.job: step.tasks for step in case.leaving if isinstance(step, Shrink)}
    for job in case.snapshot.jobs:
        if job.name in shrinking:
            yield job.spec.queue, case.ground.charge(without(job.placement, shrinking[job.name]))
        elif job.placement and job.name not in leaving:
            yield job.spec.queue, case.held[job.name]
        elif job.name in case.promised and job.name not in case.withdrawn:
            yield job.spec.queue, case.ground.charge(case.promised[job.name])
