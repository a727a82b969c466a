"""Serves jobs that come on what the last complete round left, and jobs that wait on what ends: beside the round that is under way.

A round of a large cluster takes seconds, and most jobs that come need nothing of it: they fit where nothing is held, kept or
promised, or are urgent, and others leave for them inside their guarantees. What others hold no more goes to jobs that it is
promised to, and to those that wait, as far as their order is known. That is decided and checked within milliseconds, put on record,
and done like any other. All else waits for the round, which is told of it, and does not do what has been overtaken.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import RLock
from typing import Final, NamedTuple

import msgspec

from reconciler.control.control import ControlPlane, NoPolicyError
from reconciler.control.narrow_ground import UNPROVEN, EndedGang, NarrowGround, ServedAlone, Unwell, given
from reconciler.control.observation import new_jobs
from reconciler.control.plan_executor import PlanExecutor
from reconciler.model.job_record import JobRecord
from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.ledger import JobHoldings
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
from solver.narrow.narrow_world import FreedDecision, NarrowStep, NarrowWorld, without_steps_of
from solver.plan.plan import Bind, Evict, Grow, Nominate, Plan, Repartition, Shrink, Step
from solver.plan.violation import Violation
from solver.policy.policy import Policy
from solver.policy.windows import changes_at

NO_MORE: Final = sys.maxsize
"""Of a gang that has ended for good: no attempt will follow."""

FROM_S: Final = 0.3
"""Complete rounds that take less are as soon done: jobs wait for them, and get the best that there is."""


@dataclass(slots=True)
class NarrowCounts:
    """Of jobs that came: how many were started alone, promised what others leave, and left to complete rounds.

    Of gangs that ended: `freed` those of which it was settled alone what becomes of all that they held, and those that were left.
    """

    started: int = 0
    promised: int = 0
    left: int = 0
    freed: int = 0
    ends_left: int = 0


class _News(NamedTuple):
    """Jobs that have come, and gangs that have ended."""

    came: tuple[JobName, ...] = ()
    ended: tuple[JobName, ...] = ()


class NarrowRounds:
    """Call `run` in a thread of its own, `tell`, `ended` and `stop` from any; the loop calls the others. `epoch` as it has it.

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
        self._news: SimpleQueue[_News | None] = SimpleQueue()
        self._lock = RLock()
        self._kept = RoundCache()
        self._ground: NarrowGround | None = None
        self._check: LedgerCheck | None = None
        self._seen: tuple[Snapshot, Policy] | None = None
        self._looked = 0
        self._unwell: Unwell | None = None
        self._since: dict[JobName, ServedAlone] = {}
        self._ended: list[EndedGang] = []
        self._waiting: list[Job] = []
        self._waiting_seen = 0
        self._unsure: list[Job] = []
        self._unsure_seen = 0
        self._blocking: set[JobName] = set()
        self._again: tuple[JobName, ...] = ()
        self._undone: tuple[JobName, ...] = ()
        self._lost: tuple[JobName, ...] = ()
        self._number = 0

    def tell(self, jobs: Collection[JobName]) -> None:
        """It is on record that these have come."""
        self._news.put(_News(came=tuple(jobs)))

    def ended(self, names: Collection[JobName]) -> None:
        """It is on record that these gangs hold nothing any more."""
        self._news.put(_News(ended=tuple(names)))

    def stop(self) -> None:
        """Let `run` return after what is under way."""
        self._news.put(None)

    def run(self) -> None:
        """Start what can be started until stopped. Raises StoreUnusableError.

        Nothing is lost where it can't be done: what has come and ended is on record, and the next complete round finds it there.
        """
        while (news := self._news.get()) is not None:
            together = [news]
            try:
                while (more := self._news.get_nowait()) is not None:
                    together.append(more)
                self._news.put(None)
            except Empty:
                pass
            came = dict.fromkeys(name for each in together for name in each.came)
            ended = dict.fromkeys(name for each in together for name in each.ended)
            try:
                self.free(tuple(ended))
                self.start(tuple(came))
            except (StaleEpochError, NoPolicyError, StoreFullError, StoreUnreachableError):
                continue

    def free(self, names: Collection[JobName]) -> None:
        """Give what these gangs held, and hold no more, to jobs that it is promised to, or that wait. Raises as `start`."""
        if self._again:
            self.start(())
        self._note_ends(names)
        found = self._free() if self._decides() else None
        if found is not None and found.is_all:
            self.counts.freed += len(names)
        else:
            self.counts.ends_left += len(names)

    def _decides(self) -> bool:
        """Whether anything may be decided alone now."""
        ground = self._ground
        return self._epoch() is not None and ground is not None and not self.fault and not self._has_changed(ground)

    def _note_ends(self, names: Collection[JobName]) -> None:
        """What these held is theirs no more, but for those that hold something anew."""
        if not names:
            return
        plane = self._plane
        with self._lock:
            holds, records = plane.ledger.of(names), plane.jobs.named(names)
            gone = list[EndedGang]()
            for name in names:
                record = records.get(name)
                is_over = record is None or record.outcome is not None or bool(record.cancel_requested_by)
                last = holds.attempts.get(name)
                if name not in holds.claims and (is_over or last is not None):
                    self._number += 1
                    gone.append(EndedGang(self._number, name, NO_MORE if last is None else last, not is_over))
            self._ended += gone
            for gang in gone if self._check is not None else ():
                self._end(gang)
            if self._ground is not None:
                self._ground.end(gone)

    def _end(self, gang: EndedGang) -> None:
        if self._check is not None:
            self._check.end(gang.name, gang.attempt)

    def _free(self) -> FreedDecision | None:
        """Decide what becomes of what has become free, and do it; None where nothing can be decided alone."""
        plane, epoch = self._plane, self._epoch()
        began_s, now = plane.clock.monotonic_s(), plane.clock.now()
        with self._lock:
            ground, check = self._ground, self._check
            if ground is None or check is None or epoch is None:
                return None
            found = self._found(ground, now)
            if not any(True for _ in found.jobs):
                if found.is_all and ground.world.freed:
                    ground.world.leave_freed()
                    ground.leave_freed()
                return found
            keeps, owed = not ground.world.evicts, ground.world.owed
            steps = tuple(found.steps(ground.record.policy))
            if not self._are_right(
                steps, {job.name: ground.waiting(job.name) for job in found.jobs}, now, ground, check
            ):
                return None
            ground.world.give(found)
            self._number_ground(ground)
            record = ground.on_record(now, (), steps, keeps=keeps, owed=owed)
        self._do(epoch, record, began_s)
        return found

    def _found(self, ground: NarrowGround, now: Instant) -> FreedDecision:
        """What becomes of it, once jobs are left out that wait no more."""
        while True:
            found = ground.world.found(now)
            names = [job.name for job in found.jobs]
            holds, records = self._plane.ledger.of(names), self._plane.jobs.named(names)
            gone = [job.name for job in found.jobs if not _waits(job, records.get(job.name), holds)]
            if not gone:
                return found
            ground.withdraw(gone)

    def _do(self, epoch: Epoch, record: NarrowRecord, began_s: float) -> None:
        """The record comes before the deed."""
        took_ms = (self._plane.clock.monotonic_s() - began_s) * 1000
        self._plane.history.record_narrow(epoch, msgspec.structs.replace(record, phase_ms={"narrow": took_ms}))
        PlanExecutor(self._plane, epoch).act(Plan("", "", record.steps, (), UNPROVEN))

    def start(self, names: Collection[JobName]) -> None:
        """Serve those of the jobs that find what they need in what is left. Raises what the store does, StaleEpochError,
        NoPolicyError.
        """
        if not names and not self._again:
            self._get_ready()
            return
        epoch, ground, plane = self._epoch(), self._ground, self._plane
        if epoch is None or ground is None or not self._decides():
            self.counts.left += len(names)
            return
        began_s, now = plane.clock.monotonic_s(), plane.clock.now()
        with self._lock:
            again, self._again = self._again, ()
            self._blocking.difference_update(again)
        came, others = new_jobs(plane, {*names, *again}, ground.record.snapshot.node_sets, ground.record.policy, now)
        record = self._decided(came, others, now)
        if record is not None:
            self._do(epoch, record, began_s)
        if ground.world.freed and not all(name in self._since for name in names):
            self._free()
        steps = [self._since[name].step for name in names if name in self._since]
        started, promised = (sum(isinstance(step, kind) for step in steps) for kind in (Bind, Nominate))
        self.counts.started += started
        self.counts.promised += promised
        self.counts.left += len(names) - started - promised

    def _get_ready(self) -> None:
        """Work out what the next job that comes would wait for."""
        with self._lock:
            if self._check is not None and self._ground is not None and self._ground.world.evicts:
                self._check.know_running()

    def _has_changed(self, ground: NarrowGround) -> bool:
        """Whether what holds for new work is another than the round saw: the revision, the hours of quota, what is unwell."""
        plane = self._plane
        changes = changes_at(ground.record.policy, ground.record.snapshot.time)
        if changes is not None and changes <= plane.clock.now():
            return True
        return plane.policies.current().revision != ground.record.revision or Unwell.of(plane) != ground.unwell

    def _decided(self, came: Sequence[Job], others: Sequence[Job], now: Instant) -> NarrowRecord | None:
        """What starts of these, taken from what is left; None where nothing can be decided alone. `others`: jobs that came too, of
        which only a complete round knows whether they may start.
        """
        with self._lock:
            ground, check = self._ground, self._check
            if ground is None or check is None:
                return None
            self._unsure += others
            ground.wait_for_round(others)
            if not came:
                return None
            keeps, owed = not ground.world.evicts, ground.world.owed
            steps = tuple(ground.world.decide(came, now).steps(ground.record.policy))
            if not self._are_right(steps, {job.name: job for job in came}, now, ground, check):
                return None
            served = {step.job for step in steps}
            waiting = [job for job in came if job.name not in served]
            known = {job.name for job in self._waiting}
            self._waiting += [job for job in waiting if job.name not in known]
            if not ground.world.evicts:
                self._blocking |= {job.name for job in waiting if is_urgent(job, ground.record.policy)}
            if not steps:
                ground.note_waiting(came)
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
            self._waiting_seen, self._unsure_seen = len(self._waiting), len(self._unsure)

    def see(self, snapshot: Snapshot, policy: Policy) -> None:
        """What it has seen."""
        with self._lock:
            # What has come about since it began to look, it may have seen or not.
            shown = {job.name: job.attempt for job in snapshot.jobs if job.placement}
            self._since = {
                name: one
                for name, one in self._since.items()
                if one.number > self._looked and shown.get(name) != one.step.attempt
            }
            self._ended = [
                gang
                for gang in self._ended
                if gang.number > self._looked and gang.name in shown and shown[gang.name] <= gang.attempt
            ]
            self._blocking -= {job.name for job in self._waiting[: self._waiting_seen]}
            del self._waiting[: self._waiting_seen]
            del self._unsure[: self._unsure_seen]
            self._waiting_seen = self._unsure_seen = 0
            unseen = {name for one in self._since.values() for name in one.names}
            unseen |= {gang.name for gang in self._ended}
            before, self._seen = self._seen, (snapshot, policy)
            if self._check is not None and before is not None and before[1] == policy:
                patch = patch_between(before[0], snapshot)
                self._check.change(patch, unseen)
                self._notice(before[0], patch, unseen)
                self.tell(())
                return
            self._check = LedgerCheck(snapshot, policy)
            for one in self._in_turn():
                if isinstance(one, ServedAlone):
                    self._hold(one, self._check, snapshot.time)
                else:
                    self._check.end(one.name, one.attempt)

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
            self._undone, self._lost = (), ()
            if self._check is None or self._seen is None:
                return plan, {}
            overtaken = self._overtaken(plan, self._check) if self._since else {}
            if overtaken:
                plan = msgspec.structs.replace(plan, steps=tuple(step for step in plan.steps if step not in overtaken))
            later = {step: found for step, found in overtaken.items() if not isinstance(step, Bind)}
            self._undone = tuple(step.job for step in later)
            self._lost = tuple(step.job for step, found in later.items() if found and isinstance(step, Nominate))
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
                ground.take(given(job, step))

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
        world.know_waiting()  # Now: who ends would wait for it.
        with self._lock:
            if self._unwell is not None and not self.fault:
                ground = NarrowGround(record, number, world, self._unwell, undone)
                promised = {intent.job for intent in record.snapshot.in_flight.nominations}
                for one in self._in_turn():
                    if isinstance(one, EndedGang):
                        ground.end([one])
                    elif one.job.name not in promised or isinstance(one.step, Bind):
                        ground.evict([step.job for step in one.evictions])
                        ground.take(given(one.job, one.step))
                # What the round has seen of those that came shows in what it has left.
                seen = {job.name for job in record.snapshot.jobs}
                # Urgent jobs for which nobody could leave by then stand before all others that wait.
                first = [job for job in record.snapshot.jobs if job.name in self._lost]
                first += [job for job in self._waiting if job.name in self._blocking]
                served = world.held.jobs.keys() | world.held.promises.keys()
                urgent = {job.name for job in first if is_urgent(job, record.policy)}
                self._again = tuple(sorted(urgent - served))
                seen |= urgent
                ground.wait([job for job in self._waiting if job.name not in seen])
                ground.wait_for_round([job for job in self._unsure if job.name not in seen])
                self._ground = ground
        self.ended(())

    def _in_turn(self) -> Sequence[ServedAlone | EndedGang]:
        """What the round under way may not have seen."""
        return sorted((*self._since.values(), *self._ended), key=lambda one: one.number)


Overtaken = dict[Bind | Nominate | Grow | Evict | Shrink, tuple[Violation, ...]]
"""Steps that are not done, each with why."""


def _waits(job: Job, record: JobRecord | None, holds: JobHoldings) -> bool:
    """Whether a job waits as it did: for its next attempt, and nobody wants it to stay away."""
    is_wanted = record is not None and record.outcome is None
    is_free = record is not None and not record.cancel_requested_by and not record.suspended_by
    return is_wanted and is_free and job.name not in holds.claims and holds.attempts.get(job.name, 0) == job.attempt


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
