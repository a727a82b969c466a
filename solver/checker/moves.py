"""Judges jobs that move so that others fit where they were: S4 who may, S8 for whose sake and where to, S9 not too many.

Part of the checker. It needs every job and node that the plan names to be in the snapshot. That a moved
gang is whole, and as near together as it has to be, is judged as of any gang that is promised something.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from solver.checker.case import JudgedPlan
from solver.checker.fit import strain
from solver.model.cluster import DeviceId, GpuType, NodeName
from solver.model.quantities import MILLI_PER_GPU, MilliGpu
from solver.model.workload import Job, JobName, TaskPlacement
from solver.plan.plan import Evict, Moves, Nominate
from solver.plan.violation import Violation
from solver.policy.policy import PriorityClass

_DAY_MS = 86_400_000


def move_violations(case: JudgedPlan) -> Iterable[Violation]:
    """Every job that moves and may not, or moves for nothing, to where it may not be, or loses something by it but time."""
    yield from _Moves(case).findings()


@dataclass(frozen=True)
class _Moves:
    case: JudgedPlan

    @cached_property
    def steps(self) -> dict[JobName, Evict]:
        """By what step each moves."""
        return {step.job: step for step in self.case.steps(Evict) if step.means == "move"}

    def findings(self) -> Iterator[Violation]:
        """Every rule for every job that moves."""
        if self.steps:
            yield from self._each()
        yield from self._limits()
        yield from self._verdicts()

    def _each(self) -> Iterator[Violation]:
        jobs, promises, busy = self.case.jobs, self.case.promises, self._busy()
        for step in self.steps.values():
            job, preemptor = jobs[step.job], jobs.get(step.beneficiary or JobName(""))
            if job.phase != "running" or job.attempt != step.attempt or job.name in busy:
                yield Violation("S11", job.name, f"moves in attempt {step.attempt} while {job.phase} or changing")
            elif preemptor is None or preemptor.name not in promises or preemptor.phase != "pending":
                yield Violation("S8", job.name, f"moves for {step.beneficiary}, which waits for no promise")
            elif job.name not in promises:
                yield Violation("S8", job.name, "moves, and is promised nothing to go on with")
            else:
                yield from self._one(job, promises[preemptor.name], promises[job.name])

    def _busy(self) -> set[JobName]:
        """Of whom something is in flight that the plan does not take back."""
        withdrawn = self.case.withdrawn
        return {intent.job for intent in self.case.intents if intent.kind != "nominate" or intent.job not in withdrawn}

    def _one(self, job: Job, preemptor: Nominate, target: Nominate) -> Iterator[Violation]:
        known, nodes = self._class(job), self.case.ground.by_name
        if not known.preemptible or job.spec.type != "gang":
            yield Violation("S4", job.name, f"may not be moved: a {job.spec.type}, preemptible: {known.preemptible}")
        taken = self._taken[preemptor.job]
        if taken.nodes.isdisjoint(task.node for task in job.placement):
            yield Violation("S8", job.name, f"moves for {preemptor.job} and frees nothing that it uses")
        if self._gpus(job.placement) != self._gpus(target.tasks):
            yield Violation("S4", job.name, "moves to other GPUs than it has: as many, of the same types")
        there = _milli_by_device(target.tasks)
        if any(milli + taken.devices[device] > MILLI_PER_GPU for device, milli in there.items()):
            yield Violation("S1", job.name, f"moves to where {preemptor.job} is to be")
        if there == _milli_by_device(job.placement):
            yield Violation("S8", job.name, f"moves for {preemptor.job} to the very GPUs that it has")
        now, then = (strain(job, [nodes[t.node] for t in tasks]) for tasks in (job.placement, target.tasks))
        if then > now + 1e-6:
            yield Violation("S4", job.name, f"pays {then} instead of {now} per GPU for where it is once it has moved")
        problem = self._waits_for(job, target) or self._too_soon(job)
        if problem:
            yield Violation("S9", job.name, problem)

    @cached_property
    def _taken(self) -> dict[JobName, _Taken]:
        """What the plan promises to those for whom others move."""
        preemptors = {step.beneficiary for step in self.steps.values()}
        return {name: _Taken.by(step) for name, step in self.case.promises.items() if name in preemptors}

    def _waits_for(self, job: Job, target: Nominate) -> str:
        """Nobody is interrupted before there is a place for it: nobody else holds what it and others that move go on with."""
        for device, milli in _milli_by_device(target.tasks).items():
            others = [place for place in self._holders[device] if self.case.snapshot.jobs[place].name != job.name]
            held = sum(_milli_by_device(self.case.snapshot.jobs[place].placement)[device] for place in set(others))
            if others and held + max(milli, self._arriving[device]) > MILLI_PER_GPU:
                return f"moves to where {self.case.snapshot.jobs[min(others)].name} still is"
        return ""

    @cached_property
    def _arriving(self) -> Counter[DeviceId]:
        """What of each GPU all that move go on with."""
        targets = (self.case.promises[name].tasks for name in self.steps if name in self.case.promises)
        return _milli_by_device(task for tasks in targets for task in tasks)

    @cached_property
    def _holders(self) -> dict[DeviceId, list[int]]:
        """By device to which one moves, the places among all jobs of those who hold it."""
        targets = (self.case.promises[name] for name in self.steps if name in self.case.promises)
        holders: dict[DeviceId, list[int]] = {d: [] for step in targets for task in step.tasks for d in task.devices}
        for place, job in enumerate(self.case.snapshot.jobs):
            for task in job.placement:
                for device in task.devices:
                    if device in holders:
                        holders[device].append(place)
        return holders

    def _too_soon(self, job: Job) -> str:
        """Whatever protects from eviction protects from being moved, however long the preemptor has waited."""
        protection, now = self._class(job).protection, self.case.snapshot.time
        if job.started_at is None or now - job.started_at < protection.min_runtime:
            return f"moves before it has run for {protection.min_runtime}"
        if protection.evictions_per_day is not None:
            lately = [at for at in job.evicted_at if now - at < _DAY_MS]
            if len(lately) >= protection.evictions_per_day:
                return f"moves after {len(lately)} evictions within a day"
        if job.evicted_at and now - job.evicted_at[-1] < protection.cool_down:
            return f"moves less than {protection.cool_down} after its last eviction"
        return ""

    def _limits(self) -> Iterator[Violation]:
        limits = self.case.policy.scheduling.evictions
        if len(self.steps) > limits.moves_per_round:
            yield Violation("S9", "round", f"{len(self.steps)} jobs move; at most {limits.moves_per_round} in a round")
        interrupts: defaultdict[JobName, int] = defaultdict(int)
        for name, step in self.steps.items():
            interrupts[step.beneficiary or JobName("")] += sum(self._gpus(self.case.jobs[name].placement).values())
        for preemptor in sorted(interrupts.keys() & self.case.promises.keys()):
            gained, interrupted = sum(self._gpus(self.case.promises[preemptor].tasks).values()), interrupts[preemptor]
            if gained < limits.min_gain * interrupted:
                told = f"gains {MilliGpu(gained)} GPUs while jobs with {MilliGpu(interrupted)} move for it"
                yield Violation("S9", preemptor, f"{told}; minGain is {limits.min_gain}")

    def _verdicts(self) -> Iterator[Violation]:
        said = {verdict.job for verdict in self.case.verdicts(Moves)}
        for name in sorted(said ^ self.steps.keys()):
            yield Violation("verdicts", name, "moves without the verdict `moves`, or the other way round")

    def _class(self, job: Job) -> PriorityClass:
        return self.case.lookup.class_of(job) or PriorityClass("", preemptible=False)

    def _gpus(self, tasks: Iterable[TaskPlacement]) -> Counter[GpuType]:
        return +Counter(self.case.ground.charge(tasks))


@dataclass(frozen=True, slots=True)
class _Taken:
    """Where one is to be for whom others move."""

    nodes: frozenset[NodeName]
    devices: Counter[DeviceId]
    """How much of each, in milli-GPU."""

    @classmethod
    def by(cls, step: Nominate) -> Self:
        """What a promise takes."""
        return cls(frozenset(task.node for task in step.tasks), _milli_by_device(step.tasks))


def _milli_by_device(tasks: Iterable[TaskPlacement]) -> Counter[DeviceId]:
    """What tasks have of each GPU; of one in instances as if they had all of it."""
    found = Counter[DeviceId]()
    for task in tasks:
        found.update(dict.fromkeys(task.devices, MILLI_PER_GPU if task.share is None else int(task.share)))
    return found
