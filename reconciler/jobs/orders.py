"""The order that makes an intent true, derived from what the ledger holds: the same every time."""

from __future__ import annotations

from reconciler.backend import GrowGang, Order, StartGang, StopGang, StopTasks, TellGang
from reconciler.checkpoints.saving import request_number
from reconciler.jobs.record import JobRecord
from reconciler.store.protocols import Claim
from solver.world.inflight import Intent
from solver.world.quantities import Duration


def request_to_save(stop: Intent, record: JobRecord) -> TellGang:
    """What a gang that is to leave is told first: to save its work."""
    signal = record.spec.checkpoint.signal if record.spec.checkpoint else ""
    return TellGang(stop.job, stop.attempt, request_number(stop), "checkpoint", stop.deadline, signal)


def order_of(intent: Intent, claim: Claim, record: JobRecord) -> Order:
    """What the backend is told for an intent of this claim."""
    grace = Duration(intent.deadline - (intent.staged_at or intent.asked_at))
    match intent.kind:
        case "start":
            return StartGang(intent.job, intent.attempt, intent.tasks, record.spec, claim.idle_limit, user=record.user)
        case "stop":
            return StopGang(intent.job, intent.attempt, grace)
        case "grow":
            beside = tuple(task for task in claim.tasks if task not in intent.tasks)
            spec, limit = record.spec, claim.idle_limit
            return GrowGang(
                intent.job, intent.attempt, claim.growth, intent.tasks, beside, spec, limit, user=record.user
            )
        case "shrink":
            return StopTasks(intent.job, intent.attempt, claim.growth, intent.tasks, grace)
        case "nominate":
            raise ValueError(f"{intent.id} is a promise: there is nothing to order")
