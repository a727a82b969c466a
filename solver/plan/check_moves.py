"""Judges jobs that move so that others fit where they were: S4 who may, S8 for whose sake and where to, S9 not too many.

Part of the checker, and as slow and obvious. It needs every job and node that the plan names to be in the snapshot. That a moved
gang is whole, and as near together as it has to be, is judged as of any gang that is promised something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from solver.plan.check_fit import strain
from solver.plan.plan import Evict, Moves, Nominate, Plan, Withdraw
from solver.plan.violation import Violation
from solver.rules.policy import Policy, PriorityClass
from solver.world.cluster import GpuType, Node
from solver.world.quantities import MilliGpu
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, JobName, TaskPlacement

_DAY_MS = 86_400_000


def moving(plan: Plan) -> frozenset[JobName]:
    """Who moves by a plan."""
    return frozenset(step.job for step in plan.steps if isinstance(step, Evict) and step.means == "move")


def move_violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> Iterable[Violation]:
    """Every job that moves and may not, or moves for nothing, to where it may not be, or loses something by it but time."""
    yield from _Moves(snapshot, policy, plan).findings()


@dataclass(slots=True)
class _Moves:
    snapshot: Snapshot
    policy: Policy
    plan: Plan
    jobs: dict[JobName, Job] = field(init=False)
    nodes: dict[str, Node] = field(init=False)
    steps: dict[JobName, Evict] = field(init=False)
    promises: dict[JobName, Nominate] = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = {job.name: job for job in self.snapshot.jobs}
        self.nodes = {node.name: node for node in self.snapshot.nodes}
        self.steps = {s.job: s for s in self.plan.steps if isinstance(s, Evict) and s.means == "move"}
        self.promises = {step.job: step for step in self.plan.steps if isinstance(step, Nominate)}

    def findings(self) -> Iterator[Violation]:
        """Every rule for every job that moves."""
        for step in self.steps.values():
            job, taker = self.jobs[step.job], self.jobs.get(step.beneficiary or JobName(""))
            if job.phase != "running" or job.attempt != step.attempt or job.name in self._busy():
                yield Violation("S11", job.name, f"moves in attempt {step.attempt} while {job.phase} or changing")
            elif taker is None or taker.name not in self.promises or taker.phase != "pending":
                yield Violation("S8", job.name, f"moves for {step.beneficiary}, which waits for no promise")
            elif job.name not in self.promises:
                yield Violation("S8", job.name, "moves, and is promised nothing to go on with")
            else:
                yield from self._one(job, self.promises[taker.name], self.promises[job.name])
        yield from self._limits()
        yield from self._verdicts()

    def _busy(self) -> set[JobName]:
        """Of whom something is in flight that the plan does not take back."""
        withdrawn = {step.job for step in self.plan.steps if isinstance(step, Withdraw)}
        intents = self.snapshot.in_flight.intents
        return {intent.job for intent in intents if intent.kind != "nominate" or intent.job not in withdrawn}

    def _one(self, job: Job, taker: Nominate, target: Nominate) -> Iterator[Violation]:
        known = self._class(job)
        if not known.preemptible or job.spec.type != "gang":
            yield Violation("S4", job.name, f"may not be moved: a {job.spec.type}, preemptible: {known.preemptible}")
        if not {task.node for task in taker.tasks} & {task.node for task in job.placement}:
            yield Violation("S8", job.name, f"moves for {taker.job} and frees nothing that it uses")
        if self._gpus(job.placement) != self._gpus(target.tasks):
            yield Violation("S4", job.name, "moves to other GPUs than it has: as many, of the same types")
        if {d for task in taker.tasks for d in task.devices} & {d for task in target.tasks for d in task.devices}:
            yield Violation("S1", job.name, f"moves to where {taker.job} is to be")
        now, then = (strain(job, [self.nodes[t.node] for t in tasks]) for tasks in (job.placement, target.tasks))
        if then > now + 1e-6:
            yield Violation("S4", job.name, f"pays {then} instead of {now} per GPU for where it is once it has moved")
        problem = self._waits_for(job, target) or self._too_soon(job)
        if problem:
            yield Violation("S9", job.name, problem)

    def _waits_for(self, job: Job, target: Nominate) -> str:
        """Nobody is interrupted before there is a place for it: nobody else holds what it goes on with."""
        wanted = {device for task in target.tasks for device in task.devices}
        for other in self.snapshot.jobs:
            if other.name != job.name and wanted & {device for task in other.placement for device in task.devices}:
                return f"moves to where {other.name} still is"
        return ""

    def _too_soon(self, job: Job) -> str:
        """Whatever protects from eviction protects from being moved, however long the taker has waited."""
        protection, now = self._class(job).protection, self.snapshot.time
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
        limits = self.policy.scheduling.evictions
        if len(self.steps) > limits.moves_per_round:
            yield Violation("S9", "round", f"{len(self.steps)} jobs move; at most {limits.moves_per_round} in a round")
        for taker in sorted({step.beneficiary or JobName("") for step in self.steps.values()} & self.promises.keys()):
            moved = [self.jobs[name].placement for name, step in self.steps.items() if step.beneficiary == taker]
            gained = sum(self._gpus(self.promises[taker].tasks).values())
            interrupted = sum(sum(self._gpus(tasks).values()) for tasks in moved)
            if gained < limits.min_gain * interrupted:
                told = f"gains {MilliGpu(gained)} GPUs while jobs with {MilliGpu(interrupted)} move for it"
                yield Violation("S9", taker, f"{told}; minGain is {limits.min_gain}")

    def _verdicts(self) -> Iterator[Violation]:
        said = {verdict.job for verdict in self.plan.verdicts if isinstance(verdict, Moves)}
        for name in sorted(said ^ self.steps.keys()):
            yield Violation("verdicts", name, "moves without the verdict `moves`, or the other way round")

    def _class(self, job: Job) -> PriorityClass:
        return self.policy.priority_class(job) or PriorityClass("", preemptible=False)

    def _gpus(self, tasks: Iterable[TaskPlacement]) -> Counter[GpuType]:
        gpus: Counter[GpuType] = Counter()
        for task in tasks:
            node = self.nodes.get(task.node)
            gpus[node.gpu_type if node else GpuType("")] += task.gpus
        return +gpus
