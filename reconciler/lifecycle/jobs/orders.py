"""The order that makes an intent true, derived from what the ledger holds: the same every time."""

from __future__ import annotations

from reconciler.lifecycle.checkpoints.save_status import request_number
from reconciler.model.job_record import JobRecord
from reconciler.protocols.backend import GrowGang, Order, StartGang, StopGang, StopTasks, TellGang
from reconciler.protocols.ledger import Claim
from solver.model.inflight import Intent
from solver.model.quantities import Duration, Instant


def request_to_save(stop: Intent, record: JobRecord) -> TellGang:
    """What a gang that is to leave is told first: to save its work."""
    signal = record.spec.checkpoint.signal if record.spec.checkpoint else ""
    return TellGang(stop.job, stop.attempt, request_number(stop), "checkpoint", stop.deadline, signal)


def warning_of(claim: Claim, record: JobRecord, warned_at: Instant) -> TellGang:
    """What a gang is told near its time limit."""
    warning = record.spec.time_limit_warning
    until, signal = claim.limit_reached_at or warned_at, warning.signal if warning else ""
    return TellGang(claim.job, claim.attempt, int(warned_at), "time-limit", until, signal)


def dump_of(claim: Claim, record: JobRecord, stuck_at: Instant, until: Instant) -> TellGang:
    """What the supervisors of a gang are told that seems to be stuck."""
    signal = record.spec.stuck.signal if record.spec.stuck else ""
    return TellGang(claim.job, claim.attempt, int(stuck_at), "dump", until, signal)


def watch_of(claim: Claim, record: JobRecord) -> Duration | None:
    """For how long its tasks may do nothing before it matters; None: for ever, so that it need not be watched."""
    spans = (claim.idle_limit, record.spec.stuck.after if record.spec.stuck else None)
    return min((span for span in spans if span is not None), default=None)


def order_of(intent: Intent, claim: Claim, record: JobRecord) -> Order:
    """What the backend is told for an intent of this claim."""
    grace = Duration(intent.deadline - (intent.staged_at or intent.asked_at))
    watch = watch_of(claim, record)
    match intent.kind:
        case "start":
            return StartGang(intent.job, intent.attempt, intent.tasks, record.spec, watch, user=record.user)
        case "stop":
            return StopGang(intent.job, intent.attempt, grace)
        case "grow":
            beside = tuple(task for task in claim.tasks if task not in intent.tasks)
            spec, growth = record.spec, claim.growth
            return GrowGang(intent.job, intent.attempt, growth, intent.tasks, beside, spec, watch, user=record.user)
        case "shrink":
            return StopTasks(intent.job, intent.attempt, claim.growth, intent.tasks, grace)
        case "nominate":
            raise ValueError(f"{intent.id} is a promise: there is nothing to order")
