"""Makes true, many at once, what most often follows for many in one pass: that gangs run, ended, gave back, and are forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from reconciler.control.attempt_counts import LOSSES
from reconciler.control.leader_actions import LeaderActions
from reconciler.lifecycle.checkpoints.lost_work import lost_gpu_s, lost_words, whole_of
from reconciler.lifecycle.jobs.outcome import failure_of, outcome_of
from reconciler.lifecycle.jobs.settlements import (
    AskToLeave,
    AskToStop,
    ConfirmGrown,
    ConfirmRunning,
    ConfirmShrunk,
    End,
    ForgetAttempt,
    GiveBack,
    Outlive,
    RecordMarks,
    Restart,
    Retry,
    Send,
    Settlement,
    Stage,
    SuspendIdle,
)
from reconciler.lifecycle.jobs.states import state_after
from reconciler.model.job_record import JobRecord
from reconciler.protocols.history import Event
from reconciler.protocols.ledger import Claim
from solver.model.inflight import StopPurpose
from solver.model.quantities import Instant
from solver.model.workload import JobName

AtOnce = ConfirmRunning | End | Outlive | Retry | Send | GiveBack | ForgetAttempt
Alone = ConfirmGrown | ConfirmShrunk | AskToStop | AskToLeave | Restart | Stage | RecordMarks | SuspendIdle

AT_ONCE_MAX: Final = 256
"""Settlements in one write of each kind: others write meanwhile, and wait no longer than some tenths of a second."""


def in_turn(decided: Iterable[Settlement]) -> Iterator[Alone | tuple[AtOnce, ...]]:
    """Settlements in their order; those together that follow each other and can be made true at once.

    Of one job they stay in the order in which they were decided: by kind they are made true in that of `_turn`, so what would be
    made true too early for its job goes with the next.
    """
    together: list[AtOnce] = []
    reached: dict[str, int] = {}
    for settlement in decided:
        waits = isinstance(settlement, Alone) or _turn(settlement) < reached.get(_job(settlement), 0)
        if together and (waits or len(together) == AT_ONCE_MAX):
            yield tuple(together)
            together, reached = [], {}
        if isinstance(settlement, Alone):
            yield settlement
        else:
            together.append(settlement)
            reached[_job(settlement)] = _turn(settlement)
    if together:
        yield tuple(together)


def _job(settlement: AtOnce) -> JobName:
    return settlement.order.job if isinstance(settlement, Send) else settlement.job


def _turn(settlement: AtOnce) -> int:
    """How a job comes to an end: first that is on record, then its devices are free, and then it need not be reported."""
    match settlement:
        case GiveBack():
            return 2
        case ForgetAttempt():
            return 3
        case _:
            return 1


@dataclass(frozen=True, slots=True)
class SettlementBatch(LeaderActions):
    """What a leader does about such settlements: one write for all of a kind, with its lines on record."""

    def apply(self, decided: Sequence[AtOnce]) -> None:
        """Make them true, kind by kind."""
        self._confirm([one for one in decided if isinstance(one, ConfirmRunning)])
        self._keep_failures([one for one in decided if isinstance(one, Outlive | Retry)])
        self._finish([one for one in decided if isinstance(one, End)])
        for one in decided:
            if isinstance(one, Send):
                self.send(one.order)
        self._give_back([one for one in decided if isinstance(one, GiveBack)])
        self.forget_all([(one.job, one.attempt) for one in decided if isinstance(one, ForgetAttempt)])

    def _confirm(self, seen: Sequence[ConfirmRunning]) -> None:
        if seen:
            with self.plane.together():
                self.plane.ledger.confirm_running_all(self.epoch, [(one.job, one.attempt, one.at) for one in seen])
                self.plane.history.record_events(event for one in seen for event in self._runs(one))

    def _runs(self, seen: ConfirmRunning) -> Iterator[Event]:
        yield self.event("running", seen.job, f"all tasks of attempt {seen.attempt} run", "running", seen.attempt)
        if seen.unwatched:
            told = "it is not known what its tasks do: as long as that is so, it is not known to be idle or stuck"
            yield self.event("unwatched", seen.job, told)

    def _keep_failures(self, failed: Sequence[Outlive | Retry]) -> None:
        if not failed:
            return
        with self.plane.together():
            for one in failed:
                self.plane.jobs.retry(self.epoch, one.job, one.failure)
            self.plane.history.record_events(map(self._goes_on, failed))
        for one in failed:
            self.plane.tally.failed(one.failure.kind, "outlived" if isinstance(one, Outlive) else "retried")

    def _goes_on(self, after: Outlive | Retry) -> Event:
        if isinstance(after, Outlive):
            kind, cause = "outlived", f"{after.failure.message}; the others go on"
        else:
            kind, cause = "retried", f"{after.failure.message}; it begins again at {after.failure.not_before}"
        return self.event(kind, after.job, cause, attempt=after.failure.attempt)

    def _finish(self, ended: Sequence[End]) -> None:
        if not ended:
            return
        now, last = self.plane.clock.now(), self.plane.ledger.last_attempts([one.job for one in ended])
        outcomes = {
            one.job: msgspec.structs.replace(outcome_of(one, now, self.plane.logs), attempt=last.get(one.job, 0))
            for one in ended
        }
        with self.plane.together():
            self.plane.jobs.finish_all(self.epoch, outcomes)
            self.plane.history.record_events(
                self.event(outcome.state, job, outcome.message, outcome.state, outcome.attempt)
                for job, outcome in outcomes.items()
            )
        for one in ended:
            kind = failure_of(one)
            if kind is not None:
                self.plane.tally.failed(kind, "failed")

    def _give_back(self, over: Sequence[GiveBack]) -> None:
        if not over:
            return
        now, records = self.plane.clock.now(), self.plane.jobs.named([one.job for one in over])
        losing = [record for record in records.values() if record.outcome is None or record.outcome.state == "failed"]
        holds = self.plane.ledger.of([record.name for record in losing])
        stops = {(asked.job, asked.attempt): asked.purpose for asked in holds.intents if asked.kind == "stop"}
        lost = {record.name: self._lost(record, holds.claims.get(record.name), stops, now) for record in losing}
        told = [self._gave_back(one, records[one.job], lost.get(one.job, "")) for one in over]
        with self.plane.together():
            self.plane.ledger.release_all(self.epoch, [(one.job, one.attempt) for one in over], now)
            self.plane.history.record_events(told)

    def _lost(
        self, record: JobRecord, claim: Claim | None, stops: Mapping[tuple[JobName, int], StopPurpose], now: Instant
    ) -> str:
        """What a job that goes on later loses, said before its claim is gone; what it saved is to be read again by then."""
        saves = record.spec.checkpoint is not None and claim is not None
        saved = self.plane.checkpoints.of(record.name) if saves else ()
        if claim is not None and claim.running_since is not None and record.spec.type != "service":
            is_failure = record.outcome is not None or record.failed_in(claim.attempt)
            cause = "failure" if is_failure else LOSSES.get(stops.get((claim.job, claim.attempt), "end"))
            if cause is not None:
                self.plane.tally.lost(cause, lost_gpu_s(claim, whole_of(claim, saved), now))
        if record.outcome is not None:
            return ""
        if record.spec.checkpoint is not None:
            self.plane.checkpoints.doubt(self.epoch, record.name)
        return lost_words(claim, saved, now) if claim else ""

    def _gave_back(self, over: GiveBack, record: JobRecord, lost: str) -> Event:
        state = None if record.outcome else state_after(record, over.attempt)
        return self.event("released", over.job, f"nothing of attempt {over.attempt} runs{lost}", state, over.attempt)
