"""Serves jobs that come, each for itself, on what the last complete round left: beside the round that is under way.

A round of a large cluster takes seconds, and most jobs that come need nothing of it: they fit where nothing is held, kept or
promised, or are urgent, and others leave for them inside their guarantees. That is decided and checked within milliseconds, put on
record, and done like any other. All other jobs wait for the round, which is told of it, and does not do what has been overtaken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import RLock
from typing import Final

import msgspec

from reconciler.control.control import ControlPlane, NoPolicyError
from reconciler.control.narrow_ground import UNPROVEN, NarrowGround, ServedAlone, Unwell
from reconciler.control.observation import new_jobs
from reconciler.control.plan_executor import PlanExecutor
from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.rounds import NarrowRecord, RoundRecord
from reconciler.protocols.store_errors import StoreFullError, StoreUnreachableError
from solver.checker.ledger_check import LedgerCheck
from solver.model.inflight import Intent
from solver.model.quantities import Instant
from solver.model.round_cache import RoundCache
from solver.model.snapshot import Snapshot
from solver.model.snapshot_patch import SnapshotPatch, patch_between
from solver.model.workload import Job, JobName
from solver.narrow.narrow_preemption import is_urgent
from solver.narrow.narrow_world import NarrowStep, NarrowWorld, without_steps_of
from solver.plan.plan import Bind, Evict, Grow, Nominate, Plan, Repartition, Shrink, Step
from solver.plan.violation import Violation
from solver.policy.policy import Policy

FROM_S: Final = 0.3
"""Complete rounds that take less are as soon done: jobs wait for them, and get the best that there is."""


@dataclass(slots=True)
class NarrowCounts:
    """Of jobs that came: how many were started alone, promised what others leave, and left to complete rounds."""

    started: int = 0
    promised: int = 0
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
        self._since: dict[JobName, ServedAlone] = {}
        self._waiting: list[Job] = []
        self._waiting_seen = 0
        self._blocking: set[JobName] = set()
        self._undone: tuple[JobName, ...] = ()
        self._keeps = False
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
        """Serve those of the jobs that find what they need in what is left. Raises what the store does, StaleEpochError,
        NoPolicyError.
        """
        if not names:
            self._get_ready()
            return
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
            PlanExecutor(plane, epoch).act(Plan("", "", steps, (), UNPROVEN))
        started = sum(isinstance(step, Bind) for step in steps)
        promised = sum(isinstance(step, Nominate) for step in steps)
        self.counts.started += started
        self.counts.promised += promised
        self.counts.left += len(names) - started - promised

    def _get_ready(self) -> None:
        """Work out what the next job that comes would wait for."""
        with self._lock:
            if self._check is not None and self._ground is not None and self._ground.world.evicts:
                self._check.know_running()

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
            keeps, owed = not ground.world.evicts, ground.world.owed
            steps = tuple(ground.world.decide(came, now).steps(ground.record.policy))
            if not self._are_right(steps, {job.name: job for job in came}, now, ground, check):
                return None
            served = {step.job for step in steps}
            waiting = [job for job in came if job.name not in served]
            self._waiting += waiting
            if not ground.world.evicts:
                self._blocking |= {job.name for job in waiting if is_urgent(job, ground.record.policy)}
            if not steps:
                ground.waited += came
                return None
            self._number_ground(ground)
            return ground.on_record(now, came, steps, keeps=keeps, owed=owed)

    def _are_right(
        self,
        steps: Iterable[NarrowStep],
        jobs: Mapping[JobName, Job],
        now: Instant,
        ground: NarrowGround,
        check: LedgerCheck,
    ) -> bool:
        """Whether what was decided keeps every rule: then it counts from now on. If not, nothing is decided alone any more."""
        evictions = list[Evict]()
        for step in steps:
            if isinstance(step, Evict):
                evictions.append(step)
                continue
            job = jobs[step.job]
            broken = _refused(check, step, evictions, job, now)
            if broken:
                self._give_up(f"what was decided alone breaks rules: {'; '.join(map(str, broken))}")
                return False
            self._number += 1
            served = ServedAlone(self._number, job, step, tuple(evictions))
            self._since[step.job] = served
            ground.since.append(served)
            self._hold(served, check, now)
            evictions = []
        return True

    @staticmethod
    def _hold(served: ServedAlone, check: LedgerCheck, now: Instant) -> None:
        for step in served.evictions:
            check.ask(_intent_of(step, now))
        check.hold(served.job, served.step.attempt, served.step.tasks)

    def _number_ground(self, ground: NarrowGround) -> None:
        """The round that left what is decided on is on record before that is."""
        epoch = self._epoch()
        if ground.number is None and epoch is not None:
            ground.number = self._plane.history.record_round(epoch, ground.record)

    def _give_up(self, why: str) -> None:
        self.fault, self._ground = why, None
        self._report(f"{why}; jobs wait for complete rounds from now on")

    # What the loop calls.

    def look(self) -> None:
        """A complete round begins to look: what it sees shows all starts so far."""
        with self._lock:
            self._looked, self._unwell = self._number, Unwell.of(self._plane)
            self._waiting_seen = len(self._waiting)

    def see(self, snapshot: Snapshot, policy: Policy) -> None:
        """What it has seen."""
        with self._lock:
            self._since = {name: one for name, one in self._since.items() if one.number > self._looked}
            self._blocking -= {job.name for job in self._waiting[: self._waiting_seen]}
            del self._waiting[: self._waiting_seen]
            self._waiting_seen = 0
            unseen = {name for one in self._since.values() for name in one.names}
            before, self._seen = self._seen, (snapshot, policy)
            if self._check is not None and before is not None and before[1] == policy:
                patch = patch_between(before[0], snapshot)
                self._check.change(patch, unseen)
                self._notice(before[0], patch, unseen)
                self.tell(())
                return
            self._check = LedgerCheck(snapshot, policy)
            for served in self._since.values():
                self._hold(served, self._check, snapshot.time)

    def _notice(self, before: Snapshot, patch: SnapshotPatch, unseen: Collection[JobName]) -> None:
        """What those hold less that are not known to have left for jobs that came."""
        if self._ground is None or not self._ground.world.evicts:
            return
        if patch.nodes or patch.gone_nodes:
            self._ground.world.end_evictions()
            return
        held = {job.name: job for job in before.jobs if job.placement}
        after = {job.name: job for job in patch.jobs}
        less = {name for name in patch.gone_jobs if name in held}
        less |= {name for name, job in after.items() if name in held and not _holds_as_before(held[name], job)}
        less |= {intent.job for intent in patch.intents if intent.kind in ("stop", "shrink", "grow")}
        self._ground.change(less - set(unseen))

    def commit(self, plan: Plan) -> tuple[Plan, Mapping[JobName, Sequence[Violation]]]:
        """The plan of the round without what others have overtaken, and what that would break: nothing where a job has been
        served alone itself. The rest is taken.
        """
        with self._lock:
            self._undone, self._keeps = (), False
            if self._check is None or self._seen is None:
                return plan, {}
            overtaken = self._overtaken(plan, self._check) if self._since else {}
            if overtaken:
                plan = msgspec.structs.replace(plan, steps=tuple(step for step in plan.steps if step not in overtaken))
            later = {step: found for step, found in overtaken.items() if not isinstance(step, Bind)}
            self._undone = tuple(step.job for step in later)
            self._keeps = any(later.values())
            self._take(plan.steps, self._check)
            broken = {step.job: found for step, found in overtaken.items() if not isinstance(step, Evict | Shrink)}
            return plan, broken

    def _overtaken(self, plan: Plan, check: LedgerCheck) -> Overtaken:
        """The steps that can't be any more, each with why; () for what is done, and what was to be done for such a job."""
        jobs, now = self._jobs_seen(), self._plane.clock.now()
        made = [step for step in plan.steps if isinstance(step, Repartition)]
        asked = {step.job for one in self._since.values() for step in one.evictions}
        taken = {device for one in self._since.values() for task in one.step.tasks for device in task.devices}
        given = [step for step in plan.steps if isinstance(step, Bind | Nominate | Grow)]
        left: Overtaken = {}
        with check.leaving(step.job for step in plan.steps if isinstance(step, Evict) and step.job not in asked):
            for step in given:
                found: tuple[Violation, ...] = ()
                if step.job in self._since:
                    left[step] = ()
                elif isinstance(step, Bind):
                    found = check.refused(step, jobs[step.job], now, made)
                elif not taken.isdisjoint(device for task in step.tasks for device in task.devices):
                    found = (Violation("S1", step.job, "others have some of its devices since"),)
                elif isinstance(step, Nominate):
                    found = check.beyond_limits(jobs[step.job], step.tasks)
                if found:
                    left[step] = found
        return left | self._in_vain(plan, left, asked)

    def _in_vain(self, plan: Plan, left: Overtaken, asked: Collection[JobName]) -> Overtaken:
        """Who would leave for a job that is promised nothing any more, or has been asked already; and what then is not free."""
        lost = {step.job for step in left if isinstance(step, Nominate)}
        leaving = [step for step in plan.steps if isinstance(step, Evict | Shrink)]
        promised = {step.job: step for step in plan.steps if isinstance(step, Nominate)}
        held = {job.name: job.placement for job in self._jobs_seen().values()} if leaving else {}
        found: Overtaken = {}
        while more := [
            step
            for step in leaving
            if step not in found and (step.job in asked or step.job in lost or step.beneficiary in lost)
        ]:
            found |= dict.fromkeys(more, ())
            stays = {
                *(
                    device
                    for step in more
                    if step.job not in asked
                    for task in held[step.job]
                    for device in task.devices
                )
            }
            for step in promised.values():
                is_mover = any(step.job == one.job for one in more)
                uses = not stays.isdisjoint(device for task in step.tasks for device in task.devices)
                if step not in left and step not in found and (is_mover or uses):
                    why = Violation("S1", step.job, "those do not leave that were to")
                    found[step] = (why,)
                    lost.add(step.job)
        return found

    def _take(self, steps: Iterable[Step], check: LedgerCheck) -> None:
        """What a round gives to jobs is left to no other, and who leaves by it is not asked again."""
        jobs, now, ground = self._jobs_seen(), self._plane.clock.now(), self._ground
        for step in steps:
            if isinstance(step, Evict | Shrink):
                check.ask(_intent_of(step, now))
                if ground is not None:
                    ground.change((step.job,))
            if not isinstance(step, Bind | Nominate | Grow):
                continue
            job = jobs[step.job]
            if isinstance(step, Nominate) and job.placement:
                check.ask(Intent("nominate", step.job, step.attempt, now, now.after(step.deadline), step.tasks))
            else:
                check.hold(job, step.attempt, (*job.placement, *step.tasks) if isinstance(step, Grow) else step.tasks)
            if ground is not None:
                if isinstance(step, Grow):
                    ground.change((step.job,))
                ground.take(msgspec.structs.replace(job, placement=step.tasks))

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
        undone = self._undone
        plan = without_steps_of(record.plan, undone)
        world = NarrowWorld.after(record.snapshot, record.policy, plan, self._kept)
        if self._keeps:
            world.end_evictions()
        with self._lock:
            if self._unwell is not None and not self.fault:
                ground = NarrowGround(record, number, world, self._unwell, undone)
                promised = {intent.job for intent in record.snapshot.in_flight.nominations}
                for served in self._since.values():
                    if served.job.name not in promised:
                        ground.evict([step.job for step in served.evictions])
                        ground.take(msgspec.structs.replace(served.job, placement=served.step.tasks))
                ground.wait(self._waiting)
                if self._blocking:
                    world.end_evictions()
                self._ground = ground
        self.tell(())


Overtaken = dict[Bind | Nominate | Grow | Evict | Shrink, tuple[Violation, ...]]
"""Steps that are not done, each with why."""


def _refused(
    check: LedgerCheck, step: Bind | Nominate, evictions: Sequence[Evict], job: Job, now: Instant
) -> tuple[Violation, ...]:
    if isinstance(step, Bind):
        return check.refused(step, job, now)
    return check.refused_promise(step, evictions, job, now)


def _intent_of(step: Evict | Shrink, now: Instant) -> Intent:
    """What is in flight once a job has been asked to leave, or to shrink."""
    until = now.after(step.grace)
    if isinstance(step, Shrink):
        return Intent("shrink", step.job, step.attempt, now, until, step.tasks, step.beneficiary)
    return Intent("stop", step.job, step.attempt, now, until, beneficiary=step.beneficiary, purpose="evict")


def _holds_as_before(before: Job, after: Job) -> bool:
    """Whether a job runs on as it did."""
    known = [(job.phase, job.attempt, job.placement, job.started_at) for job in (before, after)]
    return known[0] == known[1] or before.phase == "starting"
