"""Starts jobs that come, each for itself, on what the last complete round left: beside the round that is under way.

A round of a large cluster takes seconds, and most jobs that come need nothing of it: they fit where nothing is held, kept or
promised. Such a start is decided and checked within milliseconds, put on record, and done like any other. All other jobs wait for
the round, which is told of every start, and does not do what has been overtaken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from queue import Empty, SimpleQueue
from threading import RLock
from typing import Final, NamedTuple

import msgspec

from reconciler.control.control import ControlPlane, NoPolicyError
from reconciler.control.observation import new_jobs
from reconciler.control.starts import StartExecutor
from reconciler.model.health_record import NodeHealth
from reconciler.model.intervention_record import Intervention
from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.rounds import NarrowRecord, RoundRecord
from reconciler.protocols.store_errors import StoreFullError, StoreUnreachableError
from solver.checker.check import start_violations
from solver.checker.ledger_check import LedgerCheck
from solver.model.quantities import Instant
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot, with_jobs
from solver.model.snapshot_patch import patch_between
from solver.model.workload import Job, JobName
from solver.narrow.acted_on import acted_on
from solver.narrow.narrow_world import NarrowWorld
from solver.plan.plan import Bind, Certificate, Evict, Grow, Nominate, Plan, Repartition, Step
from solver.plan.violation import Violation
from solver.policy.policy import Policy
from solver.round.steps import bind_of

FROM_S: Final = 0.3
"""Complete rounds that take less are as soon done: jobs wait for them, and get the best that there is."""


class Unwell(NamedTuple):
    """What people and the watch over nodes keep from new work. A job is started alone only where it is as the round saw it."""

    by_hand: tuple[Intervention, ...]
    health: tuple[NodeHealth, ...]

    @classmethod
    def of(cls, plane: ControlPlane) -> Unwell:
        """As it is on record."""
        return cls(plane.interventions.in_force(), plane.health.all())


class StartedAlone(NamedTuple):
    """A start that was decided alone: the how manieth, of which job, by which step."""

    number: int
    job: Job
    step: Bind


@dataclass(slots=True)
class NarrowGround:
    """What starts are decided on: `record`, that of the complete round which left it, kept under `number` (None: not yet).

    `since`: in their order, the jobs that were started alone on it, and others with what a later round gave them. Since the last
    start that was put on record: `taken`: such others; `waited`: jobs that found no place.
    """

    record: RoundRecord
    number: int | None
    world: NarrowWorld
    unwell: Unwell
    taken: list[Job] = field(default_factory=list)
    waited: list[Job] = field(default_factory=list)
    since: list[StartedAlone | Job] = field(default_factory=list)

    def take(self, job: Job) -> None:
        """A job holds its placement from now on."""
        self.world.take(job, job.placement)
        self.taken.append(job)
        self.since.append(job)

    def violations(self) -> Iterator[Violation]:
        """What is wrong with all that was started alone on it, by the checker of whole plans.

        Starts between which nobody else was given anything are judged as one plan.
        """
        if not any(isinstance(one, StartedAlone) for one in self.since):
            return
        policy, world = self.record.policy, acted_on(self.record.snapshot, self.record.plan)
        for _, together in groupby(self.since, key=type):
            jobs = {job.name: job for job in world.jobs}
            starts, others = list[StartedAlone](), list[Job]()
            for one in together:
                starts.append(one) if isinstance(one, StartedAlone) else others.append(one)
            jobs |= {start.job.name: start.job for start in starts}
            before = with_jobs(world, jobs.values(), world.in_flight)
            plan = _plan_of([start.step for start in starts], before, policy)
            yield from start_violations(before, policy, plan) if starts else ()
            jobs |= {job.name: msgspec.structs.replace(job, phase="running") for job in others}
            world = acted_on(with_jobs(world, jobs.values(), world.in_flight), plan)


def _plan_of(steps: Sequence[Bind], snapshot: Snapshot, policy: Policy) -> Plan:
    return Plan(snapshot.digest, policy.digest, tuple(steps), (), Certificate("none", (), 0.0, "", 0))


@dataclass(slots=True)
class NarrowCounts:
    """Of jobs that came: how many were started alone, and how many were left to complete rounds."""

    started: int = 0
    left: int = 0


class NarrowRounds:
    """Call `run` in a thread of its own, `tell` and `stop` from any; the loop calls the others. `epoch` as the loop has it.

    `report` hears why no more jobs are started alone, where that comes about. `from_s`: how long complete rounds take at least
    where jobs are.
    """

    def __init__(
        self,
        plane: ControlPlane,
        epoch: Callable[[], Epoch | None],
        report: Callable[[str], None] = lambda _: None,
        from_s: float = FROM_S,
    ) -> None:
        self.counts = NarrowCounts()
        self.fault = ""
        self._plane, self._epoch, self._report, self._from_s = plane, epoch, report, from_s
        self._came: SimpleQueue[Collection[JobName] | None] = SimpleQueue()
        self._lock = RLock()
        self._kept = RoundCache()
        self._ground: NarrowGround | None = None
        self._check: LedgerCheck | None = None
        self._seen: tuple[Snapshot, Policy] | None = None
        self._looked = 0
        self._unwell: Unwell | None = None
        self._since: dict[JobName, StartedAlone] = {}
        self._number = 0

    def tell(self, jobs: Collection[JobName]) -> None:
        """It is on record that these have come."""
        self._came.put(tuple(jobs))

    def stop(self) -> None:
        """Let `run` return after what is under way."""
        self._came.put(None)

    def run(self) -> None:
        """Start what can be started until stopped. Raises StoreUnusableError.

        Nothing is lost where it can't be done: jobs that have come are on record, and the next complete round finds them there.
        """
        while (names := self._came.get()) is not None:
            together = dict.fromkeys(names)
            try:
                while (more := self._came.get_nowait()) is not None:
                    together |= dict.fromkeys(more)
                self._came.put(None)
            except Empty:
                pass
            try:
                self.start(tuple(together))
            except (StaleEpochError, NoPolicyError, StoreFullError, StoreUnreachableError):
                continue

    def start(self, names: Collection[JobName]) -> None:
        """Start those of the jobs that fit on what is left. Raises what the store does, StaleEpochError, NoPolicyError."""
        epoch, ground, plane = self._epoch(), self._ground, self._plane
        if epoch is None or ground is None or self.fault or self._has_changed(ground):
            self.counts.left += len(names)
            return
        began_s, now = plane.clock.monotonic_s(), plane.clock.now()
        came = new_jobs(plane, names, ground.record.snapshot.node_sets, ground.record.policy, now)
        record = self._decided(came, now)
        steps = record.steps if record is not None else ()
        if record is not None and steps:
            took_ms = (plane.clock.monotonic_s() - began_s) * 1000
            plane.history.record_narrow(epoch, msgspec.structs.replace(record, phase_ms={"narrow": took_ms}))
            StartExecutor(plane, epoch).bind(steps, ())
        self.counts.started += len(steps)
        self.counts.left += len(names) - len(steps)

    def _has_changed(self, ground: NarrowGround) -> bool:
        """Whether what holds for new work is another than the round saw."""
        plane = self._plane
        return plane.policies.current().revision != ground.record.revision or Unwell.of(plane) != ground.unwell

    def _decided(self, came: Sequence[Job], now: Instant) -> NarrowRecord | None:
        """What starts of these, taken from what is left; None where nothing can be decided alone."""
        with self._lock:
            ground, check = self._ground, self._check
            if ground is None or check is None or not came:
                return None
            jobs, owed = {job.name: job for job in came}, ground.world.owed
            steps = tuple(
                bind_of(start.candidate.job, start.placed.tasks, ground.record.policy)
                for start in ground.world.start(came, now)
            )
            for step in steps:
                broken = check.refused(step, jobs[step.job], now)
                if broken:
                    self._give_up(f"a start decided alone breaks rules: {'; '.join(map(str, broken))}")
                    return None
                self._number += 1
                self._since[step.job] = start = StartedAlone(self._number, jobs[step.job], step)
                ground.since.append(start)
                check.hold(jobs[step.job], step.attempt, step.tasks)
            begun = {step.job for step in steps}
            if not steps:
                ground.waited += came
                return None
            before = tuple(ground.taken), tuple(ground.waited)
            ground.taken, ground.waited = [], [job for job in came if job.name not in begun]
            number = self._numbered(ground)
        return NarrowRecord(
            0,
            now,
            ground.record.revision,
            number,
            *before,
            tuple(came),
            steps,
            {},
            owed,
            ground.record.summary.verdicts,
        )

    def _numbered(self, ground: NarrowGround) -> int:
        """The number of the round that left what starts are decided on: it is on record before they are."""
        epoch = self._epoch()
        if ground.number is None and epoch is not None:
            ground.number = self._plane.history.record_round(epoch, ground.record)
        return ground.number or 0

    def _give_up(self, why: str) -> None:
        self.fault, self._ground = why, None
        self._report(f"{why}; jobs wait for complete rounds from now on")

    # What the loop calls.

    def look(self) -> None:
        """A complete round begins to look: what it sees shows all starts so far."""
        with self._lock:
            self._looked, self._unwell = self._number, Unwell.of(self._plane)

    def see(self, snapshot: Snapshot, policy: Policy) -> None:
        """What it has seen."""
        with self._lock:
            self._since = {name: start for name, start in self._since.items() if start.number > self._looked}
            before, self._seen = self._seen, (snapshot, policy)
            if self._check is not None and before is not None and before[1] == policy:
                self._check.change(patch_between(before[0], snapshot), self._since.keys())
                return
            self._check = LedgerCheck(snapshot, policy)
            for start in self._since.values():
                self._check.hold(start.job, start.step.attempt, start.step.tasks)

    def commit(self, plan: Plan) -> tuple[Plan, Mapping[JobName, Sequence[Violation]]]:
        """The plan of the round without starts that others have overtaken, and what these would break: nothing where a job has been
        started alone itself. The rest is taken.
        """
        with self._lock:
            if self._check is None or self._seen is None:
                return plan, {}
            overtaken = dict(self._overtaken(plan, self._check)) if self._since else {}
            steps = tuple(step for step in plan.steps if not isinstance(step, Bind) or step.job not in overtaken)
            self._take(steps, self._check)
            return msgspec.structs.replace(plan, steps=steps), overtaken

    def _overtaken(self, plan: Plan, check: LedgerCheck) -> Iterator[tuple[JobName, tuple[Violation, ...]]]:
        """The starts that can't be any more, each with why; () for one that is done."""
        jobs, now = self._jobs_seen(), self._plane.clock.now()
        made = [step for step in plan.steps if isinstance(step, Repartition)]
        with check.leaving(step.job for step in plan.steps if isinstance(step, Evict)):
            for step in plan.steps:
                if not isinstance(step, Bind):
                    continue
                if step.job in self._since:
                    yield step.job, ()
                elif found := check.refused(step, jobs[step.job], now, made):
                    yield step.job, found

    def _take(self, steps: Iterable[Step], check: LedgerCheck) -> None:
        """What a round gives to jobs is left to no other."""
        jobs = self._jobs_seen()
        for step in steps:
            if not isinstance(step, Bind | Nominate | Grow):
                continue
            job = jobs[step.job]
            check.hold(job, step.attempt, (*job.placement, *step.tasks) if isinstance(step, Grow) else step.tasks)
            if self._ground is not None:
                self._ground.take(msgspec.structs.replace(job, placement=step.tasks))

    def _jobs_seen(self) -> Mapping[JobName, Job]:
        return {job.name: job for job in self._seen[0].jobs} if self._seen else {}

    def stand_on(self, record: RoundRecord, number: int | None) -> None:
        """The round is over: what it has left is what starts are decided on from now on. `number`: under which it is kept."""
        if self._ground is not None and (broken := tuple(self._ground.violations())):
            self._give_up(f"starts decided alone broke rules: {'; '.join(map(str, broken))}")
        if self.fault or sum(record.phase_ms.values()) < 1000 * self._from_s:
            self._ground = None
            return
        self._kept.begin()
        world = NarrowWorld.after(record.snapshot, record.policy, record.plan, self._kept)
        with self._lock:
            if self._unwell is not None and not self.fault:
                ground = NarrowGround(record, number, world, self._unwell)
                for start in self._since.values():
                    ground.take(msgspec.structs.replace(start.job, placement=start.step.tasks))
                self._ground = ground
