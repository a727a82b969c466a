"""Running gangs in parts, for the checker: what an elastic gang holds beyond its minima stands and leaves task by task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from solver.checker.policy_index import PolicyIndex
from solver.model.parts import in_parts, without
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName
from solver.plan.plan import Evict, Plan, Shrink


@dataclass(frozen=True)
class Parted:
    """Live jobs, running elastic ones in parts; what was asked to leave a gang before is not part of it any more.

    `steps`: by which step of the plan each part leaves. A gang that leaves whole is named once; its surplus is `along`.
    """

    jobs: Mapping[JobName, Job]
    steps: Mapping[JobName, Evict | Shrink]
    along: frozenset[JobName]

    @cached_property
    def leaving(self) -> frozenset[JobName]:
        """Every part that leaves by the plan."""
        return self.along | self.steps.keys()


def parted(snapshot: Snapshot, lookup: PolicyIndex, plan: Plan) -> Parted:
    """The world and the plan, in parts."""
    shrinking = {i.job: i for i in snapshot.in_flight.intents if i.kind == "shrink"}
    busy = {i.job for i in snapshot.in_flight.intents if i.kind in ("stop", "shrink", "grow")}
    jobs: dict[JobName, Job] = {}
    parts_of: dict[JobName, Sequence[JobName]] = {}
    for job in snapshot.jobs:
        parts: tuple[Job, ...] = (job,)
        if job.name in shrinking:
            parts = (msgspec.structs.replace(job, placement=without(job.placement, shrinking[job.name].tasks)),)
        elif job.phase == "running" and job.name not in busy:
            known = lookup.class_of(job)
            parts = in_parts(job) if known is not None and known.preemptible else parts
        for part in parts:
            jobs[part.name] = part
        if len(parts) > 1:
            parts_of[job.name] = [part.name for part in parts]
    return Parted(jobs, *_leaving(plan, jobs, parts_of))


def _leaving(
    plan: Plan, jobs: Mapping[JobName, Job], parts_of: Mapping[JobName, Sequence[JobName]]
) -> tuple[dict[JobName, Evict | Shrink], frozenset[JobName]]:
    steps: dict[JobName, Evict | Shrink] = {}
    along: set[JobName] = set()
    for step in plan.steps:
        if isinstance(step, Evict):
            steps[step.job] = step
            along.update(name for name in parts_of.get(step.job, ()) if name != step.job)
        elif isinstance(step, Shrink) and step.means != "overdue":
            named = {(task.group, task.index) for task in step.tasks}
            for name in parts_of.get(step.job, (step.job,) if step.job in jobs else ()):
                if {(task.group, task.index) for task in jobs[name].placement} <= named:
                    steps[name] = step
    return steps, frozenset(along)
