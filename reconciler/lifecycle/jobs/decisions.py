"""Decides what follows from what the backend reports: pure, from facts to settlements that are data.

Everything here can be decided again after a crash at any point, from the same facts, with the same result.
So the order of settlements is what makes it safe: a job is finished first, then its devices are released, and only
then does the backend forget the attempt. A crash in between finds a job that ended and never runs it again.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from reconciler.lifecycle.jobs.backend_reports import AttemptReport, BackendReports
from reconciler.lifecycle.jobs.claim_context import ClaimContext
from reconciler.lifecycle.jobs.device_readiness import UNKNOWN, DeviceReadiness, gpus_of
from reconciler.lifecycle.jobs.evidence import NO_EVIDENCE, Evidence
from reconciler.lifecycle.jobs.failures import (
    after_failure,
    after_stuck,
    after_time_limit,
    goes_on_without,
    settle_failure,
)
from reconciler.lifecycle.jobs.gang_stop import STOP_GRACE, asked_by_people, resent, retold, settle_stop
from reconciler.lifecycle.jobs.idle_rules import by_policy, culled_words, settle_idle
from reconciler.lifecycle.jobs.orders import warning_of
from reconciler.lifecycle.jobs.replicas import settle_replicas
from reconciler.lifecycle.jobs.settlements import (
    AskToLeave,
    AskToStop,
    Cancel,
    ConfirmGrown,
    ConfirmRunning,
    ConfirmShrunk,
    Cull,
    ForgetAttempt,
    GiveBack,
    RecordMarks,
    Retry,
    Send,
    Settlement,
    Succeed,
    SuspendIdle,
    TimeOut,
    leads_to,
)
from reconciler.lifecycle.jobs.standstill import settle_stuck
from reconciler.lifecycle.jobs.states import by_job, require_transition, state_after, state_of
from reconciler.model.job_record import TERMINAL, JobRecord, JobState
from reconciler.protocols.backend import StopGang
from reconciler.protocols.ledger import Claim
from solver.model.inflight import Intent
from solver.model.quantities import Instant
from solver.model.workload import JobName, TaskPlacement


def settlements(
    records: Iterable[JobRecord],
    claims: Iterable[Claim],
    intents: Iterable[Intent],
    sighted: BackendReports,
    now: Instant,
    ground: DeviceReadiness = UNKNOWN,
    evidence: Evidence = NO_EVIDENCE,
) -> Iterable[Settlement]:
    """Everything that follows from one look, job by job. `records` has every live job and every job with a claim."""
    by_name = {record.name: record for record in records}
    asked = by_job(intents)
    claimed = {(claim.job, claim.attempt): claim for claim in claims}
    for key, claim in claimed.items():
        own = tuple(intent for intent in asked[claim.job] if intent.attempt == claim.attempt)
        holding = ClaimContext(by_name[claim.job], claim, own, sighted.attempt(*key), now, ground, evidence)
        yield from _lawful(holding.record, state_of(holding.record, claim, own), settle(holding))
    holders = {claim.job for claim in claimed.values()}
    for record in by_name.values():
        if record.cancel_requested_by and record.name not in holders and record.outcome is None:
            yield from _lawful(record, "queued", (Cancel(record.name, record.cancel_requested_by),))
    for key in sorted(sighted.attempts.keys() - claimed.keys()):
        yield from _settle_unclaimed(*key, sighted.attempt(*key))


def settle(holding: ClaimContext) -> tuple[Settlement, ...]:
    """What follows for one claim."""
    job, attempt = holding.claim.job, holding.claim.attempt
    if holding.goes_on:
        return _settle_live(holding)
    done = (GiveBack(job, attempt), ForgetAttempt(job, attempt))
    if holding.record.outcome is not None or holding.record.failed_in(attempt):
        return done
    ended = None if holding.record.cancel_requested_by else _ended_by_limit(holding)
    if ended is not None:
        return (ended, *done)
    if holding.sent_back and not holding.record.cancel_requested_by:
        return (*_kept_from_claiming_back(holding), *done)
    if not holding.is_service and holding.ended_well:
        return (Succeed(job, holding.stays.launched_by(holding.record.spec)), *done)
    # Peers of a gang that is being stopped often die of each other's end: that is not a failure of the job.
    if holding.record.cancel_requested_by and holding.stopping:
        return (Cancel(job, holding.record.cancel_requested_by), *done)
    failed = None if holding.is_service else after_failure(holding)
    if failed is not None:
        return (failed, *done)
    if holding.stopping:
        return done
    return (AskToStop(job, attempt, "its tasks were stopped from outside"),)


def _kept_from_claiming_back(holding: ClaimContext) -> tuple[Settlement, ...]:
    """A job from which others took what it had lent waits until it is resumed: else it would claim its guarantee at once."""
    claim, mark = holding.claim, holding.claim.marks.idle
    if mark is None or mark.lent_at is None or holding.stop is None or not holding.stop.evicts:
        return ()
    cause = "others took what it had lent, since it did nothing"
    return (SuspendIdle(claim.job, claim.attempt, by_policy(mark.policy), cause),)


def _ended_by_limit(holding: ClaimContext) -> Settlement | None:
    """How it ended, if that is because a wait was over. What ends well when told to stop has not done its work."""
    job, limit = holding.claim.job, holding.claim.time_limit
    if limit is not None and holding.timed_out:
        return after_time_limit(holding, TimeOut(job, limit))
    if holding.culled:
        return Cull(job, culled_words(holding.claim))
    return after_stuck(holding) if holding.ended_stuck else None


def _settle_live(holding: ClaimContext) -> tuple[Settlement, ...]:
    job, attempt, stays = holding.claim.job, holding.claim.attempt, holding.stays
    if holding.stop is not None:
        return settle_stop(holding, holding.stop)
    if holding.record.outcome is not None:
        return (Send(StopGang(job, attempt, STOP_GRACE)),)
    asked = asked_by_people(holding.record, holding.claim)
    if asked is not None:
        return (asked,)
    if stays.launched_by(holding.record.spec) and holding.ended_well:
        return (AskToStop(job, attempt, "its launcher has ended with exit code 0"),)
    failed = () if holding.is_service else settle_failure(holding)
    if failed:
        return failed
    over = _ask_by_limit(holding) or _settle_drained(holding)
    if over is not None:
        return (over,)
    replicas = settle_replicas(holding) if holding.is_service else ()
    if replicas:
        return replicas
    if not holding.is_service and holding.leaving and holding.ended_well:
        return (AskToStop(job, attempt, "every task that was to stay has ended with exit code 0"),)
    if holding.claim.running_since is None and stays.all_run(holding.staying):
        since = max((holding.when(task.at) for task in stays.tasks), default=holding.now)
        return (ConfirmRunning(job, attempt, since, holding.unwatched),)
    return (
        *(() if stays.knows_all(holding.staying) else resent(holding, "start")),
        *_settle_growth(holding),
        *_settle_shrink(holding),
        # One after the other: each takes the place of what was remembered before.
        *(_settle_warning(holding) or settle_stuck(holding) or _settle_idle(holding)),
    )


def _settle_idle(holding: ClaimContext) -> tuple[Settlement, ...]:
    """What an IdlePolicy says of a gang that does nothing; () where that is not judged now."""
    facts, running = holding.evidence.idle, holding.running
    return settle_idle(running, facts) if facts is not None and running is not None else ()


def _ask_by_limit(holding: ClaimContext) -> AskToStop | None:
    """What ends it though it was not asked for and nothing has failed."""
    claim = holding.claim
    if holding.limit_reached:
        return AskToStop(claim.job, claim.attempt, f"its time limit of {claim.time_limit} is over")
    if holding.idle_limit_reached:
        return AskToStop(claim.job, claim.attempt, f"it was idle for its idle limit of {claim.idle_limit}", "cull")
    if holding.groundless:
        return AskToStop(claim.job, claim.attempt, "a GPU was not partitioned as it needs it")
    return None


def _settle_growth(holding: ClaimContext) -> tuple[Settlement, ...]:
    """Tasks that are to leave again before they have joined are the shrink's to settle."""
    joining = holding.joining
    if not joining:
        return ()
    if holding.stays.all_run(joining):
        return (ConfirmGrown(holding.claim.job, holding.claim.attempt),)
    return () if holding.stays.knows_all(joining) else tuple(resent(holding, "grow"))


def _settle_shrink(holding: ClaimContext) -> tuple[Settlement, ...]:
    if not holding.leaving:
        return ()
    if holding.has_left:
        return (ConfirmShrunk(holding.claim.job, holding.claim.attempt),)
    return tuple(resent(holding, "shrink"))


def _settle_unclaimed(job: JobName, attempt: int, known: AttemptReport) -> Iterable[Settlement]:
    """The backend reports what the ledger does not hold: released a moment ago, or never claimed. Make sure, then forget."""
    yield ForgetAttempt(job, attempt) if known.stopped else Send(StopGang(job, attempt, STOP_GRACE))


def _lawful(record: JobRecord, state: JobState, decided: tuple[Settlement, ...]) -> tuple[Settlement, ...]:
    """The settlements, if they lead a job only through states that may follow each other."""
    waits_as: JobState | None = None
    for settlement in decided:
        after = leads_to(settlement)
        if isinstance(settlement, Retry):
            waits_as = "retrying"
        elif isinstance(settlement, GiveBack) and state not in TERMINAL:
            after = "suspended" if record.suspended_by else waits_as or state_after(record, settlement.attempt)
        if after is not None:
            state = require_transition(record.name, state, after)
    return decided


def _settle_drained(holding: ClaimContext) -> AskToLeave | AskToStop | None:
    """What is asked of a gang that is not asked to stop; None: nothing, or some of it leaves already."""
    if not holding.ground.drained:
        return None
    reasons = {task: why for task in holding.staying for why in _why_drained(holding, task)}
    if not reasons or holding.leaving:
        return None
    job, attempt, tasks = holding.claim.job, holding.claim.attempt, tuple(reasons)
    cause = "; ".join(sorted(set(reasons.values())))
    if holding.claim.running_since is not None and goes_on_without(holding, tasks):
        return AskToLeave(job, attempt, tasks, cause)
    return AskToStop(job, attempt, cause, "requeue")


def _why_drained(holding: ClaimContext, task: TaskPlacement) -> list[str]:
    """Of the node rather than of each of its GPUs."""
    drained = holding.ground.drained
    places = (task.node, *sorted(gpus_of((task,))))
    return [drained[place] for place in places if place in drained][:1]


def _settle_warning(holding: ClaimContext) -> tuple[Settlement, ...]:
    """What follows for a gang that runs and is not asked to stop; () where its limit is far, or all its tasks know."""
    claim, warning = holding.claim, holding.record.spec.time_limit_warning
    limit = claim.limit_reached_at
    if warning is None or limit is None or limit - holding.now > warning.before:
        return ()
    warned_at = claim.marks.warned_at
    if warned_at is not None:
        return retold(holding, warning_of(claim, holding.record, warned_at))
    # What came first has the lower number, by which tasks know what is new.
    warned_at = Instant(max(holding.now, (claim.marks.stuck_at or 0) + 1))
    marks = msgspec.structs.replace(claim.marks, warned_at=warned_at)
    order = warning_of(claim, holding.record, warned_at)
    cause = f"its time limit of {claim.time_limit} is over at {limit}; its tasks are told"
    return (RecordMarks(claim.job, claim.attempt, marks, "time-limit-near", cause, order),)
