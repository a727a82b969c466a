"""Judges evictions that a rule asks for: a queue drains, a lowered limit is to be kept, a loan given back. Part of the checker.

S4 and S8 for those: a rule asks for each, none is superfluous, and none that is asked for is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from solver.plan.check_entry import path_of
from solver.plan.check_parts import Parted, parted
from solver.plan.plan import Departs, Evict, Plan, Shrink
from solver.plan.violation import Violation
from solver.rules.entitlement import gpus_by_type, guarantees, use_by_line
from solver.rules.policy import Policy, Queue
from solver.rules.tree import Line, QueueTree
from solver.world.cluster import GpuType
from solver.world.inflight import ConvergenceClock
from solver.world.parts import owner_of
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, JobName


def departure_violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> Iterable[Violation]:
    """Every eviction without a beneficiary that no rule asks for, and every one that is asked for and missing."""
    yield from _Departures(snapshot, policy, plan).findings()


@dataclass(slots=True)
class _Departures:
    snapshot: Snapshot
    policy: Policy
    plan: Plan
    parted: Parted = field(init=False)
    steps: dict[JobName, Evict | Shrink] = field(init=False)
    type_of: dict[str, GpuType] = field(init=False)
    asked: set[JobName] = field(init=False)

    def __post_init__(self) -> None:
        self.parted = parted(self.snapshot, self.policy, self.plan)
        self.steps = {name: step for name, step in self.parted.steps.items() if step.beneficiary is None}
        self.type_of = {node.name: node.gpu_type for node in self.snapshot.nodes}
        self.asked = {intent.job for intent in self.snapshot.in_flight.intents if intent.kind == "stop"}

    def findings(self) -> Iterator[Violation]:
        """Every rule in turn."""
        said = {verdict.job for verdict in self.plan.verdicts if isinstance(verdict, Departs)}
        named = {step.job for step in self.steps.values()}
        for name in sorted(said ^ named):
            yield Violation("verdicts", name, "departs without being evicted, or the other way round")
        for job in self._live():
            step = self.steps.get(job.name)
            if step is not None:
                yield from self._asked_for(step, job)
        most = self.policy.scheduling.evictions.per_round
        if most is None or len(named) < most:
            yield from self._left_out()
        elif len(named) > most:
            yield Violation("S9", "round", f"{len(named)} evictions without a beneficiary; at most {most} in a round")

    def _live(self) -> list[Job]:
        running = ("running", "starting")
        return [
            job
            for job in self.parted.jobs.values()
            if job.phase in running and owner_of(job.name) not in self.asked and job.leaves != "not"
        ]

    def _asked_for(self, step: Evict | Shrink, job: Job) -> Iterator[Violation]:
        if step.means == "drain":
            if not self._drains(job):
                yield Violation("S8", job.name, "is drained, and no queue on its path drains")
            elif isinstance(step, Shrink):
                yield Violation("S8", job.name, "shrinks in a queue that drains, where all of it has to leave")
        elif step.means == "converge":
            clocks = [clock for clock in self._overdue() if self._counts(job, clock)]
            if not any(self._may_leave(job, clock) for clock in clocks):
                yield Violation("S4", job.name, "leaves for a limit that may not make it leave")
            # It is one too many where without it every limit that it counts for would be kept as well.
            elif all(self._held(clock) + self._of_type(job, clock) <= clock.limit for clock in clocks):
                yield Violation("S8", job.name, "leaves for limits that are kept without it")
        elif step.means == "return":
            yield from self._given_back(job)
        else:
            yield Violation("S8", job.name, f"is evicted by {step.means} for nobody")

    def _given_back(self, job: Job) -> Iterator[Violation]:
        """A gang that waits is to start on some of its devices before it could be asked any later; and it only borrows them."""
        now, known = self.snapshot.time, self.policy.priority_class(job)
        waiting = {other.name for other in self.snapshot.jobs if other.phase == "pending"}
        whole = next(other for other in self.snapshot.jobs if other.name == owner_of(job.name))
        devices = {device for task in whole.placement for device in task.devices}
        due = [
            held
            for held in self.snapshot.in_flight.reservations
            if held.holder in waiting
            and held.start - self.policy.grace(job) <= now
            and not devices.isdisjoint(device for task in held.tasks for device in task.devices)
        ]
        if not due:
            yield Violation("S8", job.name, "gives back what is not reserved, or not yet needed")
        if known is None or not known.preemptible or not self._borrows(job):
            yield Violation(
                "S4", job.name, "gives back what it need not: it is not preemptible, or inside its guarantee"
            )
        if (
            known is not None
            and now < (now if job.started_at is None else job.started_at) + known.protection.min_runtime
        ):
            yield Violation("S9", job.name, "gives back before its minimum runtime is over")

    def _borrows(self, job: Job) -> bool:
        """Whether some queue on its path holds more than its guarantee of a type that it uses."""
        tree = QueueTree.of(self.policy)
        guaranteed, used = guarantees(tree, gpus_by_type(self.snapshot)), use_by_line(self.snapshot, tree)
        lines = [
            Line(queue.name, gpu_type)
            for queue in self._path(job)
            for gpu_type in {self.type_of[task.node] for task in job.placement if task.node in self.type_of}
        ]
        return any(used.get(line, 0) > guaranteed.get(line, 0) for line in lines)

    def _left_out(self) -> Iterator[Violation]:
        for job in self._live():
            if job.name not in self.parted.leaving and self._drains(job):
                yield Violation("S8", job.name, "runs on in a queue that drains")
        for clock in self._overdue():
            could = [job for job in self._live() if job.name not in self.parted.leaving and self._may_leave(job, clock)]
            if could and self._held(clock) > clock.limit:
                problem = f"holds more than {clock.limit} {clock.gpu_type}, and {could[0].name} could leave"
                yield Violation("S3", clock.queue, problem)

    def _drains(self, job: Job) -> bool:
        return any(queue.stop_policy == "HoldAndDrain" for queue in self._path(job))

    def _overdue(self) -> list[ConvergenceClock]:
        return [clock for clock in self.snapshot.in_flight.convergence if clock.deadline <= self.snapshot.time]

    def _counts(self, job: Job, clock: ConvergenceClock) -> bool:
        return clock.queue in {queue.name for queue in self._path(job)} and self._of_type(job, clock) > 0

    def _may_leave(self, job: Job, clock: ConvergenceClock) -> bool:
        """As the nearest queue above the limit says; what is not preemptible may where it borrows, which is not judged here."""
        known = self.policy.priority_class(job)
        if known is None or job.phase != "running" or not self._counts(job, clock):
            return False
        above = {queue.name: queue for queue in self.policy.queues}[clock.queue]
        said = [queue.convergence for queue in path_of(self.policy, above.name) if queue.convergence is not None]
        evict = (said[0] if said else self.policy.scheduling.convergence).evict
        if job.name in self.steps and known.may_borrow:
            return evict != "none"
        return evict == "all" or (evict == "preemptible" and known.preemptible)

    def _held(self, clock: ConvergenceClock) -> int:
        """What stays below the queue, without who leaves by this plan's rules or was asked to before."""
        leaving = {intent.job for intent in self.snapshot.in_flight.intents if intent.kind == "stop" and intent.evicts}
        promised = {intent.job: intent.tasks for intent in self.snapshot.in_flight.intents if intent.kind == "nominate"}
        total = 0
        gone = leaving | self.steps.keys() | {name for name in self.parted.along if owner_of(name) in self.steps}
        for job in self.parted.jobs.values():
            if clock.queue not in {q.name for q in self._path(job)}:
                continue
            goes_on = job.phase != "pending" and job.name not in gone
            tasks = job.placement if goes_on else promised.get(job.name, ())
            total += sum(task.gpus for task in tasks if self.type_of.get(task.node) == clock.gpu_type)
        return total

    def _of_type(self, job: Job, clock: ConvergenceClock) -> int:
        gpus: Counter[GpuType | None] = Counter()
        for task in job.placement:
            gpus[self.type_of.get(task.node)] += task.gpus
        return gpus[clock.gpu_type]

    def _path(self, job: Job) -> list[Queue]:
        return path_of(self.policy, job.spec.queue)
