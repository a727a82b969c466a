"""Running gangs in parts, for the checker: what an elastic gang holds beyond its minima stands and leaves task by task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from solver.checker.policy_index import PolicyIndex
from solver.model.parts import in_parts, owner_of, without
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName
from solver.plan.plan import Evict, Plan, Shrink


class PartsByName(Mapping[JobName, Job]):
    """Live jobs, running elastic ones in parts, in the order of their names. A gang is taken apart when it is first asked for.

    What was asked to leave a gang before is not part of it any more.
    """

    def __init__(self, snapshot: Snapshot, lookup: PolicyIndex) -> None:
        self._jobs = {job.name: job for job in snapshot.jobs}
        self._lookup, intents = lookup, snapshot.in_flight.intents
        self._shrinking = {intent.job: intent for intent in intents if intent.kind == "shrink"}
        self._busy = {intent.job for intent in intents if intent.kind in ("stop", "shrink", "grow")}
        self._parts: dict[JobName, tuple[Job, ...]] = {}
        self._known: dict[JobName, Job] = {}

    def of(self, gang: JobName) -> tuple[Job, ...]:
        """The parts of a job, itself where it is not in parts; none where there is no such job."""
        found = self._parts.get(gang)
        if found is None:
            job = self._jobs.get(gang)
            found = self._parts[gang] = self._apart(job) if job is not None else ()
            self._known.update((part.name, part) for part in found)
        return found

    def _apart(self, job: Job) -> tuple[Job, ...]:
        if job.name in self._shrinking:
            return (msgspec.structs.replace(job, placement=without(job.placement, self._shrinking[job.name].tasks)),)
        if job.phase != "running" or job.name in self._busy:
            return (job,)
        known = self._lookup.class_of(job)
        return in_parts(job) if known is not None and known.preemptible else (job,)

    def __getitem__(self, name: JobName) -> Job:
        """The part of this name; raises KeyError where there is none."""
        self.of(owner_of(name))
        return self._known[name]

    def __iter__(self) -> Iterator[JobName]:
        """The names of all parts."""
        return (part.name for name in self._jobs for part in self.of(name))

    def __len__(self) -> int:
        """How many parts there are."""
        return sum(len(self.of(name)) for name in self._jobs)


@dataclass(frozen=True)
class Parted:
    """The world and the plan in parts.

    `steps`: by which step of the plan each part leaves. A gang that leaves whole is named once; its surplus is `along`.
    """

    jobs: PartsByName
    steps: Mapping[JobName, Evict | Shrink]
    along: frozenset[JobName]

    @cached_property
    def leaving(self) -> frozenset[JobName]:
        """Every part that leaves by the plan."""
        return self.along | self.steps.keys()


def parted(snapshot: Snapshot, lookup: PolicyIndex, plan: Plan) -> Parted:
    """The world and the plan, in parts."""
    jobs = PartsByName(snapshot, lookup)
    return Parted(jobs, *_leaving(plan, jobs))


def _leaving(plan: Plan, jobs: PartsByName) -> tuple[dict[JobName, Evict | Shrink], frozenset[JobName]]:
    steps: dict[JobName, Evict | Shrink] = {}
    along: set[JobName] = set()
    for step in plan.steps:
        if isinstance(step, Evict):
            steps[step.job] = step
            along.update(part.name for part in jobs.of(step.job) if part.name != step.job)
        elif isinstance(step, Shrink):
            named = {(task.group, task.index) for task in step.tasks}
            for part in jobs.of(step.job):
                if {(task.group, task.index) for task in part.placement} <= named:
                    steps[part.name] = step
    return steps, frozenset(along)
