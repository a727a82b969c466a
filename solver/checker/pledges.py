"""Judges promises of what is not there yet: instances that are made, or GPUs that become whole, once others have left.

Part of the checker.

A GPU that is pledged is for nobody else until it has been partitioned; its changes of the hour are taken, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from solver.checker.case import JudgedPlan
from solver.model.cluster import DeviceId, MigInstance
from solver.model.mig_table import MODELS, MigProfile
from solver.model.workload import JobName, TaskPlacement
from solver.plan.plan import Nominate, Repartition
from solver.plan.violation import Violation
from solver.policy.division import MigGeometry

HOUR_MS = 3_600_000
PROFILES: dict[str, dict[str, MigProfile]] = {
    model.name: {profile.name: profile for profile in model.profiles} for model in MODELS
}

Wanted = dict[DeviceId, list[MigInstance] | None]
"""By GPU the instances that are promised on it; None: it is promised as a whole."""


def unmade(case: JudgedPlan, tasks: Sequence[TaskPlacement]) -> Wanted:
    """What of these tasks is on GPUs that have to be partitioned anew for them."""
    wanted: Wanted = {}
    partitioned = case.partitioned
    for task in tasks:
        if task.mig is None and not partitioned.keys().isdisjoint(task.devices):
            wanted.update({device: None for device in task.devices if device in partitioned})
        for slot in task.slots:
            if slot.gpu in case.ground.gpus and slot.instance not in partitioned.get(slot.gpu, ()):
                wanted.setdefault(slot.gpu, [])
    for slot in (slot for task in tasks for slot in task.slots) if wanted else ():
        found = wanted.get(slot.gpu)
        if found is not None:
            found.append(slot.instance)
    return wanted


def may_be_made(case: JudgedPlan, known: MigGeometry, device: DeviceId, instances: list[MigInstance] | None) -> bool:
    """Whether a GPU may be promised as what it is not: others may have to leave it, or it is to be whole and nobody uses it."""
    if known.drains or known.mode == "fixed" or instances is not None:
        return known.drains
    return not any(device in task.on_gpus for job in case.snapshot.jobs for task in job.placement)


def pledge_violations(case: JudgedPlan) -> Iterator[Violation]:
    """S1 and S6 for GPUs that are promised to somebody for whom they have to be partitioned anew."""
    court = _Court(case)
    yield from court.old()
    yield from court.new()
    yield from court.changes()


@dataclass(frozen=True)
class _Court:
    case: JudgedPlan
    promised: dict[DeviceId, JobName] = field(default_factory=dict)

    @cached_property
    def pools(self) -> dict[str, MigGeometry]:
        """What policy says of the GPUs of each pool."""
        return {known.pool: known for known in self.case.policy.mig}

    @cached_property
    def before(self) -> dict[DeviceId, JobName]:
        """GPUs that were pledged before this round, and are not had by now, each with to whom."""
        done = self.case.bound | self.case.withdrawn
        promises = ((i.job, i.tasks) for i in self.case.intents if i.kind == "nominate")
        pledges = {device: job for job, tasks in promises for device in unmade(self.case, tasks)}
        return {device: job for device, job in pledges.items() if job not in done}

    def _pool_of(self, device: DeviceId) -> str:
        return self.case.ground.gpus[device][0].pool

    def old(self) -> Iterator[Violation]:
        """What is pledged already stays so."""
        for step in self.case.steps(Repartition):
            if step.device in self.before:
                yield Violation("S6", step.device, f"is partitioned while {self.before[step.device]} waits for it")
        yield from self._shared()

    def new(self) -> Iterator[Violation]:
        """What is promised now can be made once those have left who were asked to."""
        changed = {step.device for step in self.case.steps(Repartition)}
        for step in self.case.steps(Nominate):
            for device, instances in unmade(self.case, step.tasks).items():
                known = self.pools.get(self._pool_of(device))
                if known is None or not may_be_made(self.case, known, device, instances):
                    yield Violation("S6", device, "is promised as what it is not, where no job has to leave for that")
                elif device in changed or device in self.promised:
                    yield Violation("S6", device, "is partitioned for another job, and promised as something new")
                elif not self._can_be(known, device, instances, step.job):
                    yield Violation("S6", device, "can't become what it is promised as beside the jobs that stay")
                self.promised[device] = step.job

    def changes(self) -> Iterator[Violation]:
        """What is pledged is counted as changed."""
        now = self.case.snapshot.time
        made = [step.device for step in self.case.steps(Repartition) if step.device in self.case.ground.gpus]
        count = Counter(self._pool_of(device) for device in (*made, *self.promised))
        waiting = Counter(self._pool_of(device) for device in self.before)
        for pool, more in count.items():
            counters = [
                counter.count
                for counter in self.case.snapshot.in_flight.counters
                if (counter.name, counter.subject) == ("mig-changes", pool) and now - counter.window_start < HOUR_MS
            ]
            most = self.pools[pool].changes_max if pool in self.pools else 0
            if sum(counters) + waiting[pool] + more > most:
                yield Violation("S6", pool, f"more GPUs are partitioned or pledged than {most} within an hour")

    def _shared(self) -> Iterator[Violation]:
        """Nobody else is given anything of such a GPU, but what was promised before."""
        if not self.before:
            return
        earlier = {name: frozenset(tasks) for name, tasks in self.case.promised.items()}
        for step in self.case.placing:
            for task in step.tasks:
                for device in task.on_gpus:
                    owner = self.before.get(device, step.job)
                    if owner != step.job and task not in earlier.get(step.job, ()):
                        yield Violation("S1", step.job, f"GPU {device} is promised to {owner}, and partitioned for it")

    def _can_be(
        self, known: MigGeometry, device: DeviceId, wanted: list[MigInstance] | None, preemptor: JobName
    ) -> bool:
        staying = self._staying(device, preemptor)
        if staying is None or wanted is None:
            return wanted is None and staying == set()
        beside = [*staying, *wanted]
        profiles = PROFILES[known.model]
        if len(set(beside)) < len(beside) or not _fits(profiles, beside):
            return False
        layouts = [_names(layout) for layout in known.layouts]
        return known.mode == "free" or any(_completes(profiles, beside, layout) for layout in layouts)

    def _staying(self, device: DeviceId, preemptor: JobName) -> set[MigInstance] | None:
        """The instances on a GPU of those who stay, or were promised or given them; None: somebody stays on it as a whole."""
        found: set[MigInstance] = set()
        for job, task, may_be_its_own in self._on[device]:
            if may_be_its_own and job == preemptor:
                continue
            if task.mig is None:
                return None
            found.update(slot.instance for slot in task.slots if slot.gpu == device)
        return found

    @cached_property
    def _on(self) -> Mapping[DeviceId, Sequence[_Held]]:
        """Who stays, or was promised or given something, on each GPU that is promised as what it is not."""
        new = (step for step in self.case.steps(Nominate))
        on: dict[DeviceId, list[_Held]] = {device: [] for step in new for device in unmade(self.case, step.tasks)}
        for held in self._all_held():
            for device in held.task.on_gpus:
                if device in on:
                    on[device].append(held)
        return on

    def _all_held(self) -> Iterator[_Held]:
        leaving = self.case.stopping | self.case.evicted
        for job in self.case.snapshot.jobs:
            if job.name not in leaving:
                yield from (_Held(job.name, task, promised=False) for task in job.placement)
        for intent in self.case.intents:
            promised = intent.kind == "nominate"
            if intent.job not in (self.case.withdrawn if promised else leaving):
                yield from (_Held(intent.job, task, promised) for task in intent.tasks)
        for step in self.case.placing:
            yield from (_Held(step.job, task, promised=True) for task in step.tasks)


class _Held(NamedTuple):
    """Somebody's task. What is `promised`, or given by the plan, does not stand in the way of the same job."""

    job: JobName
    task: TaskPlacement
    promised: bool


def _fits(profiles: Mapping[str, MigProfile], instances: Iterable[MigInstance]) -> bool:
    """Whether one GPU can have all of these at a time."""
    end, media = 0, 0
    for instance in sorted(instances, key=lambda instance: instance.start):
        profile = profiles.get(instance.profile)
        if profile is None or instance.start not in profile.starts or instance.start < end:
            return False
        end, media = instance.start + profile.memory_slices, media + ("me" in profile.attributes)
    return media <= 1


def _completes(profiles: Mapping[str, MigProfile], has: Sequence[MigInstance], layout: Counter[str]) -> bool:
    """Whether the other instances of a layout find places beside those that are there."""
    missing = layout.copy()
    missing.subtract(instance.profile for instance in has)
    if any(count < 0 for count in missing.values()):
        return False
    name = next((name for name, count in missing.items() if count), None)
    if name is None:
        return True
    tried = ([*has, MigInstance(name, start)] for start in profiles[name].starts)
    return any(_fits(profiles, more) and _completes(profiles, more, layout) for more in tried)


def _names(layout: str) -> Counter[str]:
    names: Counter[str] = Counter()
    for part in layout.split("+ "):
        count, _, name = part.strip().rpartition("x ")
        names[name.strip()] += int(count or 1)
    return names
