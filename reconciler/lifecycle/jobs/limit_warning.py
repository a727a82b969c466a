"""Tells a gang once in each attempt that its time limit is near, if it wants to know."""

from __future__ import annotations

import msgspec

from reconciler.lifecycle.jobs.claim_context import ClaimContext
from reconciler.lifecycle.jobs.gang_stop import retold
from reconciler.lifecycle.jobs.orders import warning_of
from reconciler.lifecycle.jobs.settlements import RecordMarks, Settlement
from solver.model.quantities import Instant


def settle_warning(holding: ClaimContext) -> tuple[Settlement, ...]:
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
