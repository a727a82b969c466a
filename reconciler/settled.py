"""Makes settlements true, each idempotent: what is decided again after a crash does no harm a second time."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from reconciler.backend import StopGang
from reconciler.causes import names_of, nodes_of
from reconciler.checkpoints.lost import lost_words
from reconciler.deeds import Deeds
from reconciler.jobs.orders import order_of, request_to_save
from reconciler.jobs.outcome import outcome_of
from reconciler.jobs.record import JobOutcome
from reconciler.jobs.replicas import RESTART_DEADLINE
from reconciler.jobs.settlements import (
    Abandon,
    AskToLeave,
    AskToStop,
    BeginEnding,
    BeginSaving,
    CallOff,
    Cancel,
    Confirmation,
    ConfirmGrown,
    ConfirmRunning,
    ConfirmShrunk,
    Cull,
    Fail,
    Forget,
    GiveBack,
    GiveUp,
    Note,
    Outlive,
    Restart,
    Retry,
    Send,
    Settlement,
    Succeed,
    TimeOut,
)
from reconciler.jobs.states import state_after, stopping_state
from reconciler.jobs.stopping import STOP_GRACE
from solver.world.inflight import Intent, StopPurpose, StopStage
from solver.world.workload import Job, JobName


@dataclass(frozen=True, slots=True)
class Settler(Deeds):
    """What a leader does about settlements."""

    def apply(self, settlement: Settlement) -> None:
        """Make one true."""
        match settlement:
            case ConfirmRunning() | ConfirmGrown() | ConfirmShrunk():
                self._confirm(settlement)
            case AskToStop() | AskToLeave() | Restart():
                self._ask(settlement)
            case Succeed() | Fail() | TimeOut() | GiveUp() | Cull() | Cancel() | Abandon():
                self._finish(settlement.job, outcome_of(settlement, self.plane.clock.now(), self.plane.logs))
            case GiveBack():
                self._give_back(settlement)
            case BeginSaving() | BeginEnding() | CallOff():
                self._lead_on(settlement)
            case Outlive() | Retry():
                self._keep_failure(settlement)
            case Forget(job, attempt):
                self.forget(job, attempt)
            case Note():
                self._remember(settlement)
            case Send(order):
                self.send(order)

    def _confirm(self, seen: Confirmation) -> None:
        match seen:
            case ConfirmRunning(job, attempt, at, unwatched):
                self.plane.ledger.confirm_running(self.epoch, job, attempt, at)
                self.note("running", job, f"all tasks of attempt {attempt} run", "running", attempt)
                if unwatched:
                    told = "nobody says what its tasks do: as long as that is so, it is not known to be idle or stuck"
                    self.note("unwatched", job, told)
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

    def _remember(self, seen: Note) -> None:
        """What was decided is on record before anybody is told: the next leader goes on from there."""
        self.plane.ledger.mark(self.epoch, seen.job, seen.attempt, seen.marks)
        if seen.kind:
            self.note(seen.kind, seen.job, seen.cause, attempt=seen.attempt)
        if seen.order is not None:
            self.send(seen.order)

    def _restart(self, due: Restart) -> None:
        now = self.plane.clock.now()
        intent = Intent("grow", due.job, due.attempt, now, now.after(RESTART_DEADLINE), due.tasks)
        claim = self.plane.ledger.restart(self.epoch, intent)
        self.note("restarts", due.job, f"{names_of(due.tasks)} begin again on {nodes_of(due.tasks)}")
        self.begin(order_of(intent, claim, self.plane.jobs.job(due.job)), due.tasks)

    def _finish(self, job: JobName, outcome: JobOutcome) -> None:
        attempt = self.plane.ledger.last_attempt(job)
        self.plane.jobs.finish(self.epoch, job, msgspec.structs.replace(outcome, attempt=attempt))
        self.note(outcome.state, job, outcome.message, outcome.state, attempt)

    def _give_back(self, over: GiveBack) -> None:
        record, now = self.plane.jobs.job(over.job), self.plane.clock.now()
        claim = self.plane.ledger.held_by(over.job)
        lost = "" if record.outcome or claim is None else lost_words(claim, self.plane.checkpoints.of(over.job), now)
        if record.outcome is None and record.spec.checkpoint is not None:
            self.plane.checkpoints.doubt(self.epoch, over.job)
        self.plane.ledger.release(self.epoch, over.job, over.attempt, now)
        state = None if record.outcome else state_after(record, over.attempt)
        self.note("released", over.job, f"nothing of attempt {over.attempt} runs{lost}", state, over.attempt)

    def _keep_failure(self, after: Outlive | Retry) -> None:
        self.plane.jobs.retry(self.epoch, after.job, after.failure)
        if isinstance(after, Outlive):
            kind, cause = "outlived", f"{after.failure.message}; the others go on"
        else:
            kind, cause = "retried", f"{after.failure.message}; it begins again at {after.failure.not_before}"
        self.note(kind, after.job, cause, attempt=after.failure.attempt)

    def _lead_on(self, stop: BeginSaving | BeginEnding | CallOff) -> None:
        if isinstance(stop, CallOff):
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
        self.plane.ledger.stage(self.epoch, further)
        self.note(stage, reached.job, reached.cause, stopping_state(further))
        if stage == "ends":
            self.send(StopGang(reached.job, reached.attempt, reached.grace))
        else:
            self.send(request_to_save(further, self.plane.jobs.job(reached.job)))
