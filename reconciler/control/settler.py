"""Makes settlements true, each idempotent: what is decided again after a crash does no harm a second time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from reconciler.control.batches import Alone, SettlementBatch, in_turn
from reconciler.control.leader_actions import LeaderActions
from reconciler.lifecycle.jobs.gang_stop import STOP_GRACE
from reconciler.lifecycle.jobs.orders import order_of, request_to_save
from reconciler.lifecycle.jobs.replicas import RESTART_DEADLINE
from reconciler.lifecycle.jobs.settlements import (
    AskToLeave,
    AskToStop,
    BeginEnding,
    BeginSaving,
    CallOff,
    ConfirmGrown,
    ConfirmShrunk,
    RecordMarks,
    Restart,
    Settlement,
    SuspendIdle,
)
from reconciler.lifecycle.jobs.states import stopping_state
from reconciler.model.causes import names_of, nodes_of
from reconciler.protocols.backend import StopGang
from solver.model.inflight import Intent, StopPurpose, StopStage
from solver.model.workload import Job, JobName


@dataclass(frozen=True, slots=True)
class Settler(LeaderActions):
    """What a leader does about settlements."""

    def apply_all(self, decided: Iterable[Settlement]) -> None:
        """Make all of them true, in their order, and of some kinds many at once."""
        together = SettlementBatch(self.plane, self.epoch)
        for each in in_turn(decided):
            if isinstance(each, tuple):
                together.apply(each)
            else:
                self._apply(each)

    def _apply(self, settlement: Alone) -> None:
        match settlement:
            case ConfirmGrown() | ConfirmShrunk():
                self._confirm(settlement)
            case AskToStop() | AskToLeave() | Restart():
                self._ask(settlement)
            case BeginSaving() | BeginEnding() | CallOff():
                self._lead_on(settlement)
            case RecordMarks():
                self._remember(settlement)
            case SuspendIdle(job, attempt, by, cause):
                # The next pass asks it to stop, as for any job that is suspended.
                with self.plane.together():
                    self.plane.jobs.request_suspend(job, by)
                    self.note("suspend-asked", job, cause, attempt=attempt)

    def _confirm(self, seen: ConfirmGrown | ConfirmShrunk) -> None:
        with self.plane.together():
            match seen:
                case ConfirmGrown(job, attempt):
                    self.plane.ledger.confirm_grown(self.epoch, job, attempt)
                    self.note("grown", job, f"all tasks that joined attempt {attempt} run")
                case ConfirmShrunk(job, attempt):
                    self.plane.ledger.confirm_shrunk(self.epoch, job, attempt, self.plane.clock.now())
                    self.note("shrunk", job, f"nothing runs of the tasks that were to leave attempt {attempt}")

    def _ask(self, wanted: AskToStop | AskToLeave | Restart) -> None:
        match wanted:
            case AskToStop(job, attempt, cause, purpose):
                self._ask_to_stop(job, attempt, cause, purpose)
            case AskToLeave(job, attempt, tasks, cause):
                now = self.plane.clock.now()
                self.ask_to_leave(Intent("shrink", job, attempt, now, now.after(STOP_GRACE), tasks), cause)
            case Restart():
                self._restart(wanted)

    def _ask_to_stop(self, job: JobName, attempt: int, cause: str, purpose: StopPurpose) -> None:
        now, grace = self.plane.clock.now(), STOP_GRACE
        intent = Intent("stop", job, attempt, now, now.after(grace), purpose=purpose)
        if intent.sends_back:
            record, policy = self.plane.jobs.job(job), self.plane.policies.current().policy
            grace = policy.grace(Job(job, record.submitted_at, record.spec))
        self.stop(msgspec.structs.replace(intent, deadline=now.after(grace)), cause)

    def _remember(self, seen: RecordMarks) -> None:
        """What was decided is on record before any order is sent: the next leader goes on from there."""
        with self.plane.together():
            self.plane.ledger.mark(self.epoch, seen.job, seen.attempt, seen.marks)
            if seen.kind:
                self.note(seen.kind, seen.job, seen.cause, attempt=seen.attempt)
        if seen.order is not None:
            self.send(seen.order)

    def _restart(self, due: Restart) -> None:
        now = self.plane.clock.now()
        intent = Intent("grow", due.job, due.attempt, now, now.after(RESTART_DEADLINE), due.tasks)
        with self.plane.together():
            claim = self.plane.ledger.restart(self.epoch, intent)
            self.note("restarts", due.job, f"{names_of(due.tasks)} begin again on {nodes_of(due.tasks)}")
        self.begin(order_of(intent, claim, self.plane.jobs.job(due.job)), due.tasks)

    def _lead_on(self, stop: BeginSaving | BeginEnding | CallOff) -> None:
        if isinstance(stop, CallOff):
            with self.plane.together():
                self.plane.ledger.call_off(self.epoch, stop.job, stop.attempt)
                self.note("called-off", stop.job, stop.cause, "running", stop.attempt)
        else:
            self._stage(stop)

    def _stage(self, reached: BeginSaving | BeginEnding) -> None:
        """Let a stop go on; one that has been confirmed since is left alone."""
        now = self.plane.clock.now()
        stop = self.plane.ledger.asked(f"stop/{reached.job}/{reached.attempt}")
        if stop is None:
            return
        stage: StopStage = "saves" if isinstance(reached, BeginSaving) else "ends"
        further = msgspec.structs.replace(stop, stage=stage, staged_at=now, deadline=now.after(reached.grace))
        with self.plane.together():
            self.plane.ledger.stage(self.epoch, further)
            self.note(stage, reached.job, reached.cause, stopping_state(further))
        if stage == "ends":
            self.send(StopGang(reached.job, reached.attempt, reached.grace))
        else:
            self.send(request_to_save(further, self.plane.jobs.job(reached.job)))
