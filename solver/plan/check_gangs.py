"""Judges gangs: S2, a gang is decided with all of each role's minimum or not at all, and released only when it is overdue; S5.

Part of the checker, and as slow and obvious. It needs every job and node that the plan names to be in the snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from solver.plan.check_closeness import topology_violations
from solver.plan.check_mig import has_its_instance
from solver.plan.check_moves import moving
from solver.plan.check_sharing import has_its_gpus
from solver.plan.plan import Bind, Nominate, Plan, Release
from solver.plan.violation import Violation
from solver.rules.policy import Policy
from solver.world.cluster import Node, NodeName
from solver.world.quantities import Duration
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, JobName


def gang_violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> Iterable[Violation]:
    """Every gang that is bound in part, or otherwise than it asked, or released too early."""
    court = _Gangs(snapshot, policy, plan)
    yield from court.gangs()
    yield from court.releases()


@dataclass(slots=True)
class _Gangs:
    """The gangs of one plan before the rules."""

    snapshot: Snapshot
    policy: Policy
    plan: Plan
    jobs: dict[JobName, Job] = field(init=False)
    nodes: dict[NodeName, Node] = field(init=False)
    placed: tuple[Bind | Nominate, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = {job.name: job for job in self.snapshot.jobs}
        self.nodes = {node.name: node for node in self.snapshot.nodes}
        self.placed = tuple(step for step in self.plan.steps if isinstance(step, Bind | Nominate))

    def gangs(self) -> Iterable[Violation]:
        """S2: each bound job was pending or moves, is bound once, whole, in its next attempt, each group on one accepted type."""
        for name, count in Counter(bind.job for bind in self.placed).items():
            if count > 1:
                yield Violation("S2", name, f"is bound {count} times")
        for bind in self.placed:
            job = self.jobs[bind.job]
            if job.phase != "pending" and not (isinstance(bind, Nominate) and job.name in moving(self.plan)):
                yield Violation("S2", job.name, f"is bound while {job.phase}")
            if isinstance(bind, Bind) and bind.time_limit != self._limit(job):
                yield Violation("S2", job.name, f"is bound for {bind.time_limit}, its limit is {self._limit(job)}")
            if isinstance(bind, Bind) and bind.idle_limit != self._idle_limit(job):
                told = f"may be idle for {bind.idle_limit}, its limit is {self._idle_limit(job)}"
                yield Violation("S2", job.name, told)
            if bind.attempt != job.attempt + 1:
                yield Violation("S2", job.name, f"attempt {bind.attempt} does not follow {job.attempt}")
            yield from self._whole(job, bind)
            yield from topology_violations(job, bind.tasks, self.nodes)

    def _limit(self, job: Job) -> Duration | None:
        if job.spec.time_limit is not None or job.spec.type == "service":
            return job.spec.time_limit
        name = job.spec.priority_class or self.policy.scheduling.default_priority_class
        defaults = {known.name: known.default_time_limit for known in self.policy.priority_classes}
        eight_hours = Duration(28_800_000) if job.spec.type == "interactive" else None
        return defaults.get(name) or eight_hours

    def _idle_limit(self, job: Job) -> Duration | None:
        name = job.spec.priority_class or self.policy.scheduling.default_priority_class
        defaults = {known.name: known.idle_limit for known in self.policy.priority_classes}
        if job.spec.type == "interactive":
            return job.spec.idle_limit or defaults.get(name)
        return None

    def _whole(self, job: Job, bind: Bind | Nominate) -> Iterable[Violation]:
        known = {group.name for group in job.spec.task_groups}
        strange = sorted({task.group for task in bind.tasks} - known)
        if strange:
            yield Violation("S2", job.name, f"binds tasks of {', '.join(strange)}; it has no such groups")
        for group in job.spec.task_groups:
            bound = sorted(task.index for task in bind.tasks if task.group == group.name)
            least = group.replicas if group.min_replicas is None else group.min_replicas
            if bound != list(range(len(bound))) or not least <= len(bound) <= group.replicas:
                span = f"{least} to {group.replicas}" if least < group.replicas else f"{least}"
                told = f"binds the tasks {bound} of group {group.name}, which starts with {span}, numbered from 0"
                yield Violation("S2", job.name, told)
                return
        for group in job.spec.task_groups:
            tasks = [task for task in bind.tasks if task.group == group.name]
            if not all(
                has_its_instance(group.shape, task)
                and (task.mig is not None or has_its_gpus(job, group.shape, task, self.snapshot, self.policy))
                for task in tasks
            ):
                yield Violation(
                    "S2", job.name, f"a task of group {group.name} has not exactly the GPUs that it asked for"
                )
            types = {self.nodes[task.node].gpu_type for task in tasks}
            accepted = set(group.shape.gpu_types)
            if group.shape.uses_gpus and (len(types) > 1 or (accepted and not types <= accepted)):
                yield Violation("S2", job.name, f"group {group.name} is on {', '.join(sorted(types))}")

    def releases(self) -> Iterable[Violation]:
        """S2: only a gang whose start is overdue is released."""
        overdue = {
            (intent.job, intent.attempt)
            for intent in self.snapshot.in_flight.intents
            if intent.kind == "start" and intent.deadline <= self.snapshot.time
        }
        for step in self.plan.steps:
            if isinstance(step, Release) and (step.job, step.attempt) not in overdue:
                yield Violation("S2", step.job, f"attempt {step.attempt} is released before its start is overdue")
