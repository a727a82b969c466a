"""What follows for a gang that people want to stop, or that was asked to: save its work, end, and be reminded of it."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.lifecycle.checkpoints.save_status import request_number
from reconciler.lifecycle.jobs.claim_context import ClaimContext
from reconciler.lifecycle.jobs.orders import order_of, request_to_save
from reconciler.lifecycle.jobs.settlements import AskToStop, BeginEnding, BeginSaving, CallOff, Send, Settlement
from reconciler.model.job_record import JobRecord
from reconciler.protocols.backend import TaskStatus, TellGang
from reconciler.protocols.ledger import Claim
from solver.model.inflight import Intent
from solver.model.quantities import Duration, Instant

STOP_GRACE = Duration(30_000)
"""Between asking a task to end and making it: what Kubernetes gives a pod (terminationGracePeriodSeconds)."""

RESEND_AFTER = Duration(2_000)
"""An order without an effect for this long may have been lost. Orders are facts: one too many does no harm."""


def asked_by_people(record: JobRecord, claim: Claim) -> AskToStop | None:
    """What the job's owner or an operator wants of a gang that nothing has asked to stop yet."""
    if record.cancel_requested_by:
        return AskToStop(claim.job, claim.attempt, f"cancelled by {record.cancel_requested_by}")
    if record.suspended_by:
        return AskToStop(claim.job, claim.attempt, f"suspended by {record.suspended_by}", "suspend")
    if record.requeue_attempt == claim.attempt:
        return AskToStop(claim.job, claim.attempt, f"to begin anew, asked for by {record.requeued_by}", "requeue")
    return None


def settle_stop(holding: ClaimContext, stop: Intent) -> tuple[Settlement, ...]:
    """What follows for a gang that runs and has been asked to stop: it saves its work first, where it can."""
    claim, cancelled_by = holding.claim, holding.record.cancel_requested_by
    if stop.stage == "ends":
        return tuple(resent(holding, "stop"))
    if cancelled_by:
        cause = f"cancelled by {cancelled_by}: what it would save is not needed"
        return (BeginEnding(claim.job, claim.attempt, STOP_GRACE, cause),)
    needless = _why_needless(holding, stop)
    if needless:
        return (CallOff(claim.job, claim.attempt, needless),)
    if stop.stage == "saves":
        return _settle_saving(holding, stop)
    if claim.job in holding.evidence.saving.turns:
        grace = Duration(stop.deadline - stop.asked_at)
        return (BeginSaving(claim.job, claim.attempt, grace, f"it has {grace} to save its work"),)
    return ()


def _why_needless(holding: ClaimContext, stop: Intent) -> str:
    """Why the gang need not leave any more; "": it must."""
    if stop.purpose == "evict" and stop.job in holding.evidence.saving.needless:
        return f"{stop.beneficiary} does not wait for what it holds any more"
    if stop.purpose == "suspend" and not holding.record.suspended_by:
        return "it was resumed before it had left"
    return ""


def _settle_saving(holding: ClaimContext, stop: Intent) -> tuple[Settlement, ...]:
    job, attempt = holding.claim.job, holding.claim.attempt
    saved = holding.evidence.saving.answered(stop)
    if saved is not None:
        return (BeginEnding(job, attempt, STOP_GRACE, f"it has saved step {saved.step}"),)
    if stop.deadline <= holding.now:
        return (BeginEnding(job, attempt, STOP_GRACE, f"it has not saved its work by {stop.deadline}"),)
    number = request_number(stop)
    untold = any(task.state == "running" and task.told < number for task in holding.attempt.tasks)
    if untold and is_due(holding, number):
        return (Send(request_to_save(stop, holding.record)),)
    return ()


def retold(holding: ClaimContext, order: TellGang) -> tuple[Send, ...]:
    """The order again, as long as a task has not been told that ran when it was decided: its number says when that was."""
    return (Send(order),) if is_due(holding, order.number) and is_untold(holding, order.number) else ()


def is_due(holding: ClaimContext, sent_at: int) -> bool:
    """Whether it is time to send an order again. One that was sent later than now was sent by a clock that was ahead: it is."""
    return not 0 <= holding.now - sent_at < RESEND_AFTER


def is_untold(holding: ClaimContext, number: int) -> bool:
    """Some task of the gang that ran when this was decided has not been told it."""
    tasks = holding.stays.tasks
    return any(task.state == "running" and task.told < number and _began(holding, task) <= number for task in tasks)


def _began(holding: ClaimContext, task: TaskStatus) -> Instant:
    """Whatever the clock of its node says, a task of the start began by the time since when the gang runs."""
    since = holding.claim.running_since
    return task.at if since is None or task.growth else min(task.at, since)


def resent(holding: ClaimContext, kind: str) -> Iterable[Settlement]:
    """What begins does so only where all it needs is there: the GPU may still have to be partitioned."""
    for intent in holding.intents:
        begins = kind in ("start", "grow")
        due = intent.kind == kind and is_due(holding, intent.asked_at)
        if due and not (begins and holding.ground.under(intent.tasks) != "there"):
            yield Send(order_of(intent, holding.claim, holding.record))
