"""What jobs that come are served on alone: what a complete round has left, and what has come about since."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from reconciler.control.control import ControlPlane
from reconciler.model.health_record import NodeHealth
from reconciler.model.intervention_record import Intervention
from reconciler.protocols.rounds import NarrowEnds, NarrowRecord, RoundRecord
from solver.checker.check import narrow_violations
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot, with_jobs
from solver.model.workload import Job, JobName
from solver.narrow.acted_on import acted_on
from solver.narrow.narrow_world import NarrowStep, NarrowWorld, without_steps_of
from solver.plan.plan import Bind, Certificate, Evict, Grow, Nominate, Plan, Yields
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


class EndedGang(NamedTuple):
    """A gang that holds nothing any more of what it had in an attempt, the how manieth of what was noted beside rounds.

    `waits_again`: it may begin anew.
    """

    number: int
    name: JobName
    attempt: int
    waits_again: bool


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


@dataclass
class NarrowGround:
    """What is decided on: `record`, that of the complete round which left it, kept under `number` (None: not yet).

    `undone`: as in `NarrowRecord`. `since`: in their order, the jobs that were served alone on it, others with what a later
    round gave them, and those that ended. Since the last decision that was put on record: `taken`: such others; `waited`: jobs that
    found no place; `evicted`, `changed`, `ended`, `unsure`, `withdrawn`: as there.
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
    ended: list[NarrowEnds] = field(default_factory=list)
    unsure: list[Job] = field(default_factory=list)
    withdrawn: list[JobName] = field(default_factory=list)
    since: list[ServedAlone | Job | JobName] = field(default_factory=list)
    _came: dict[JobName, Job] = field(default_factory=dict)

    @cached_property
    def _seen(self) -> Mapping[JobName, Job]:
        return {job.name: job for job in self.record.snapshot.jobs if job.phase == "pending"}

    def waiting(self, name: JobName) -> Job:
        """A job that waits, as the round saw it, or as it came."""
        return self._came.get(name) or self._seen[name]

    @property
    def plan(self) -> Plan:
        """What the round did."""
        return without_steps_of(self.record.plan, self.undone)

    def take(self, job: Job) -> None:
        """A job holds its placement from now on."""
        self.world.take(job, job.placement)
        self.taken.append(job)
        self.since.append(job)
        if job.phase == "pending":
            self._came[job.name] = msgspec.structs.replace(job, placement=())

    def wait(self, jobs: Sequence[Job]) -> None:
        """These found no place."""
        self.world.wait(jobs)
        self.note_waiting(jobs)

    def note_waiting(self, jobs: Sequence[Job]) -> None:
        """The world knows that these wait."""
        self.waited += jobs
        self._came |= {job.name: job for job in jobs}

    def wait_for_round(self, jobs: Sequence[Job]) -> None:
        """These have come, and only a complete round can judge whether they may start."""
        self.world.wait(jobs, is_sure=False)
        self.unsure += jobs

    def withdraw(self, names: Sequence[JobName]) -> None:
        """These wait no more."""
        self.world.withdraw(names)
        self.withdrawn += names

    def end(self, gangs: Sequence[EndedGang]) -> None:
        """These hold nothing any more, as far as they did."""
        held = self.world.held.jobs
        found = [gang for gang in gangs if gang.name in held and held[gang.name].attempt <= gang.attempt]
        if found:
            names = tuple(gang.name for gang in found)
            again = tuple(gang.name for gang in found if gang.waits_again)
            self.world.end(names, again)
            self.ended.append(NarrowEnds(names, len(self.taken), again))
            self.since += names

    def leave_freed(self) -> None:
        """What has become free was of no use to any job that waits: that is put on record with what is decided next."""
        self.ended.append(NarrowEnds((), len(self.taken), is_over=True))

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
            ended=tuple(self.ended),
            unsure=tuple(self.unsure),
            withdrawn=tuple(self.withdrawn),
        )
        self.taken, self.evicted, self.changed, self.ended, self.unsure, self.withdrawn = [], [], [], [], [], []
        self.waited = []
        self.note_waiting([job for job in came if job.name not in served])
        self._came |= {job.name: job for job in came}
        return found

    def violations(self) -> Iterator[Violation]:
        """What is wrong with all that was served alone on it, by the checker of whole plans.

        What was decided while nobody else was given anything is judged as one plan.
        """
        if not any(isinstance(one, ServedAlone) for one in self.since):
            return
        policy, world = self.record.policy, acted_on(self.record.snapshot, self.plan)
        for kind, together in groupby(self.since, key=type):
            if kind is str:
                world = _without(world, {one for one in together if isinstance(one, str)})
                continue
            jobs = {job.name: job for job in world.jobs}
            starts, others = list[ServedAlone](), list[Job]()
            for one in together:
                if isinstance(one, ServedAlone):
                    starts.append(one)
                elif isinstance(one, Job):
                    others.append(one)
            jobs |= {start.job.name: start.job for start in starts}
            before = with_jobs(world, jobs.values(), world.in_flight)
            plan = plan_of([step for start in starts for step in (*start.evictions, start.step)], before, policy)
            yield from narrow_violations(before, policy, plan) if starts else ()
            jobs |= {job.name: msgspec.structs.replace(job, phase="running") for job in others}
            world = acted_on(with_jobs(world, jobs.values(), world.in_flight), plan)


def given(job: Job, step: Bind | Nominate | Grow) -> Job:
    """A job with what a step gives it, in its attempt; pending, where that is a promise."""
    phase = "pending" if isinstance(step, Nominate) else "starting"
    attempt = job.attempt if isinstance(step, Nominate) else step.attempt
    return msgspec.structs.replace(job, phase=phase, attempt=attempt, placement=step.tasks)


def _without(world: Snapshot, gone: Collection[JobName]) -> Snapshot:
    """The world once these hold nothing any more."""
    intents = tuple(intent for intent in world.in_flight.intents if intent.job not in gone)
    in_flight = msgspec.structs.replace(world.in_flight, intents=intents)
    return with_jobs(world, (job for job in world.jobs if job.name not in gone), in_flight)


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
