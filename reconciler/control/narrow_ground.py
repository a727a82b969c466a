"""What jobs that come are served on alone: what a complete round has left, and what has come about since."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from reconciler.control.control import ControlPlane
from reconciler.model.health_record import NodeHealth
from reconciler.model.intervention_record import Intervention
from reconciler.protocols.rounds import NarrowRecord, RoundRecord
from solver.checker.check import narrow_violations
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, with_jobs
from solver.model.workload import Job, JobName
from solver.narrow.acted_on import acted_on
from solver.narrow.narrow_world import NarrowStep, NarrowWorld, without_steps_of
from solver.plan.plan import Bind, Certificate, Evict, Nominate, Plan, Yields
from solver.plan.violation import Violation
from solver.policy.policy import Policy

UNPROVEN: Final = Certificate("none", (), 0.0, "", 0)


class Unwell(NamedTuple):
    """What people and the watch over nodes keep from new work. A job is started alone only where it is as the round saw it."""

    by_hand: tuple[Intervention, ...]
    health: tuple[NodeHealth, ...]

    @classmethod
    def of(cls, plane: ControlPlane) -> Unwell:
        """As it is on record."""
        return cls(plane.interventions.in_force(), plane.health.all())


class ServedAlone(NamedTuple):
    """A job that was served alone, the how manieth: it starts, or is promised what others leave, by these steps."""

    number: int
    job: Job
    step: Bind | Nominate
    evictions: tuple[Evict, ...] = ()

    @property
    def names(self) -> tuple[JobName, ...]:
        """Its own, and of those that leave."""
        return (self.job.name, *(step.job for step in self.evictions))


@dataclass(slots=True)
class NarrowGround:
    """What is decided on: `record`, that of the complete round which left it, kept under `number` (None: not yet).

    `undone`: as in `NarrowRecord`. `since`: in their order, the jobs that were served alone on it, and others with what a later
    round gave them. Since the last decision that was put on record: `taken`: such others; `waited`: jobs that found no place;
    `evicted`, `changed`: as there.
    """

    record: RoundRecord
    number: int | None
    world: NarrowWorld
    unwell: Unwell
    undone: tuple[JobName, ...] = ()
    taken: list[Job] = field(default_factory=list)
    waited: list[Job] = field(default_factory=list)
    evicted: list[JobName] = field(default_factory=list)
    changed: list[JobName] = field(default_factory=list)
    since: list[ServedAlone | Job] = field(default_factory=list)

    @property
    def plan(self) -> Plan:
        """What the round did."""
        return without_steps_of(self.record.plan, self.undone)

    def take(self, job: Job) -> None:
        """A job holds its placement from now on."""
        self.world.take(job, job.placement)
        self.taken.append(job)
        self.since.append(job)

    def wait(self, jobs: Sequence[Job]) -> None:
        """These found no place."""
        self.world.wait(jobs)
        self.waited += jobs

    def evict(self, names: Sequence[JobName]) -> None:
        """These were asked to leave for a job that came, before this round was over."""
        self.world.evict(names)
        self.evicted += names

    def change(self, names: Collection[JobName]) -> None:
        """These hold less than before, or are to."""
        if self.world.evicts:
            self.world.change(names)
            self.changed += sorted(names)

    def on_record(
        self, now: Instant, came: Sequence[Job], steps: Sequence[NarrowStep], *, keeps: bool, owed: bool
    ) -> NarrowRecord:
        """What is decided now, with what has come about since the record before. `keeps`, `owed`: as they were before it."""
        record, served = self.record, {step.job for step in steps}
        found = NarrowRecord(
            *(0, now, record.revision, self.number or 0, tuple(self.taken), tuple(self.waited), tuple(came)),
            *(tuple(steps), {}, owed, record.summary.verdicts),
            evicted=tuple(self.evicted),
            changed=tuple(self.changed),
            undone=self.undone,
            keeps=keeps,
        )
        self.taken, self.evicted, self.changed = [], [], []
        self.waited = [job for job in came if job.name not in served]
        return found

    def violations(self) -> Iterator[Violation]:
        """What is wrong with all that was served alone on it, by the checker of whole plans.

        What was decided while nobody else was given anything is judged as one plan.
        """
        if not any(isinstance(one, ServedAlone) for one in self.since):
            return
        policy, world = self.record.policy, acted_on(self.record.snapshot, self.plan)
        for _, together in groupby(self.since, key=type):
            jobs = {job.name: job for job in world.jobs}
            starts, others = list[ServedAlone](), list[Job]()
            for one in together:
                starts.append(one) if isinstance(one, ServedAlone) else others.append(one)
            jobs |= {start.job.name: start.job for start in starts}
            before = with_jobs(world, jobs.values(), world.in_flight)
            plan = plan_of([step for start in starts for step in (*start.evictions, start.step)], before, policy)
            yield from narrow_violations(before, policy, plan) if starts else ()
            jobs |= {job.name: msgspec.structs.replace(job, phase="running") for job in others}
            world = acted_on(with_jobs(world, jobs.values(), world.in_flight), plan)


def plan_of(steps: Sequence[NarrowStep], snapshot: Snapshot, policy: Policy) -> Plan:
    """Steps as a plan, with what it has to say of those that leave."""
    queues = {job.name: job.spec.queue for job in snapshot.jobs}
    said = tuple(
        Yields(
            *(step.job, queues[step.job], step.beneficiary, queues[step.beneficiary]),
            *("preempt" if step.means == "preempt" else "reclaim", step.gpus, step.lost_gpu_s),
        )
        for step in steps
        if isinstance(step, Evict) and step.beneficiary in queues
    )
    return Plan(snapshot.digest, policy.digest, tuple(steps), said, UNPROVEN)
