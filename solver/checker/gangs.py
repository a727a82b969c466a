"""Judges gangs: S2, a gang is decided with all of each role's minimum or not at all, and released only when it is overdue; S5.

Part of the checker. It needs every job and node that the plan names to be in the snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from solver.checker.case import JudgedPlan
from solver.checker.closeness import topology_violations
from solver.checker.mig import has_its_instance
from solver.checker.sharing import has_its_gpus
from solver.model.quantities import Duration
from solver.model.workload import Job
from solver.plan.plan import Bind, Nominate, Release
from solver.plan.violation import Violation


def gang_violations(case: JudgedPlan) -> Iterable[Violation]:
    """Every gang that is bound in part, or otherwise than it asked, or released too early."""
    court = _Gangs(case)
    yield from court.gangs()
    yield from court.releases()


@dataclass(frozen=True, slots=True)
class _Gangs:
    """The gangs of one plan before the rules."""

    case: JudgedPlan

    def gangs(self) -> Iterable[Violation]:
        """S2: each bound job was pending or moves, is bound once, whole, in its next attempt, each group on one accepted type."""
        for name, count in Counter(bind.job for bind in self.case.placing).items():
            if count > 1:
                yield Violation("S2", name, f"is bound {count} times")
        for bind in self.case.placing:
            job = self.case.jobs[bind.job]
            if job.phase != "pending" and not (isinstance(bind, Nominate) and job.name in self.case.moving):
                yield Violation("S2", job.name, f"is bound while {job.phase}")
            if isinstance(bind, Bind) and bind.time_limit != self._limit(job):
                yield Violation("S2", job.name, f"is bound for {bind.time_limit}, its limit is {self._limit(job)}")
            if isinstance(bind, Bind) and bind.idle_limit != self._idle_limit(job):
                told = f"may be idle for {bind.idle_limit}, its limit is {self._idle_limit(job)}"
                yield Violation("S2", job.name, told)
            if bind.attempt != job.attempt + 1:
                yield Violation("S2", job.name, f"attempt {bind.attempt} does not follow {job.attempt}")
            yield from self._whole(job, bind)
            yield from topology_violations(job, bind.tasks, self.case.ground.by_name)

    def _limit(self, job: Job) -> Duration | None:
        if job.spec.time_limit is not None or job.spec.type == "service":
            return job.spec.time_limit
        known = self.case.lookup.class_of(job)
        eight_hours = Duration(28_800_000) if job.spec.type == "interactive" else None
        return (known.default_time_limit if known else None) or eight_hours

    def _idle_limit(self, job: Job) -> Duration | None:
        if job.spec.type == "interactive":
            known = self.case.lookup.class_of(job)
            return job.spec.idle_limit or (known.idle_limit if known else None)
        return None

    def _whole(self, job: Job, bind: Bind | Nominate) -> Iterable[Violation]:
        known = {group.name for group in job.spec.task_groups}
        strange = sorted({task.group for task in bind.tasks} - known)
        if strange:
            yield Violation("S2", job.name, f"binds tasks of {', '.join(strange)}; it has no such groups")
        for group in job.spec.task_groups:
            bound = sorted(task.index for task in bind.tasks if task.group == group.name)
            least = group.replicas if group.min_replicas is None else group.min_replicas
            in_steps = (len(bound) - least) % group.replica_step == 0
            if bound != list(range(len(bound))) or not least <= len(bound) <= group.replicas or not in_steps:
                span = f"{least} to {group.replicas}" if least < group.replicas else f"{least}"
                span += f" in steps of {group.replica_step}" if group.replica_step > 1 else ""
                told = f"binds the tasks {bound} of group {group.name}, which starts with {span}, numbered from 0"
                yield Violation("S2", job.name, told)
                return
        yield from self._in_units(job, bind)
        for group in job.spec.task_groups:
            tasks = [task for task in bind.tasks if task.group == group.name]
            if not all(
                has_its_instance(group.shape, task)
                and (task.mig is not None or has_its_gpus(job, group.shape, task, self.case))
                for task in tasks
            ):
                yield Violation(
                    "S2", job.name, f"a task of group {group.name} has not exactly the GPUs that it asked for"
                )
            types = {self.case.ground.gpu_types[task.node] for task in tasks}
            accepted = set(group.shape.gpu_types)
            if group.shape.uses_gpus and (len(types) > 1 or (accepted and not types <= accepted)):
                yield Violation("S2", job.name, f"group {group.name} is on {', '.join(sorted(types))}")

    @staticmethod
    def _in_units(job: Job, bind: Bind | Nominate) -> Iterable[Violation]:
        """Groups that are in units together have tasks of as many units, of which there are no fewer than it starts with."""
        groups, tasks = (
            {group.name: group for group in job.spec.task_groups},
            Counter(task.group for task in bind.tasks),
        )
        for known in job.spec.topology.together:
            if known.units > 1:
                whole = {name: tasks[name] * known.units / groups[name].replicas for name in known.groups}
                least = known.units if known.min_units is None else known.min_units
                if len(set(whole.values())) > 1 or min(whole.values()) < least or min(whole.values()) % 1:
                    told = ", ".join(f"{units:g} of group {name}" for name, units in whole.items())
                    yield Violation("S2", job.name, f"binds units of {told}; of at least {least} it has each whole")

    def releases(self) -> Iterable[Violation]:
        """S2: only a gang whose start is overdue is released."""
        overdue = {
            (intent.job, intent.attempt)
            for intent in self.case.intents
            if intent.kind == "start" and intent.deadline <= self.case.snapshot.time
        }
        for step in self.case.steps(Release):
            if (step.job, step.attempt) not in overdue:
                yield Violation("S2", step.job, f"attempt {step.attempt} is released before its start is overdue")
