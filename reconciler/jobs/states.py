"""The state of a job, derived from what the stores hold, and which state may follow which.

No state is stored: a claim makes a job `starting`, its confirmation `running`, a stop intent `stopping`, and the
release of a claim without an outcome `queued` again. The table below is checked where settlements are
decided (jobs/settle.py); the ledger itself guards the way from `queued` to `starting`.
"""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.jobs.record import JobRecord, JobState
from reconciler.store.protocols import Claim
from solver.world.inflight import Intent
from solver.world.workload import Phase

FOLLOWERS: dict[JobState, frozenset[JobState]] = {
    "queued": frozenset({"starting", "cancelled"}),
    # A gang may have ended before anybody saw it run.
    "starting": frozenset({"running", "stopping", "succeeded", "failed"}),
    "running": frozenset({"stopping", "succeeded", "failed"}),
    "stopping": frozenset({"queued", "succeeded", "failed", "cancelled"}),
    "succeeded": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}


class IllegalTransitionError(Exception):
    """The control plane was about to do something that no job may live through: a bug, and nothing was written."""


def state_of(record: JobRecord, claim: Claim | None, intents: Iterable[Intent]) -> JobState:
    """Where a job stands. An ended job may still hold devices for a moment; it is ended all the same."""
    if record.outcome is not None:
        return record.outcome.state
    if claim is None:
        return "queued"
    if any((intent.kind, intent.job, intent.attempt) == ("stop", claim.job, claim.attempt) for intent in intents):
        return "stopping"
    return "starting" if claim.running_since is None else "running"


def phase_of(state: JobState) -> Phase:
    """The same in the words of a snapshot, for a job that holds devices: one that has ended is giving them back."""
    match state:
        case "queued":
            return "pending"
        case "starting" | "running" | "stopping":
            return state
        case "succeeded" | "failed" | "cancelled":
            return "stopping"


def require_transition(job: str, before: JobState, after: JobState) -> JobState:
    """`after`, if it may follow `before`; raises IllegalTransitionError otherwise."""
    if after not in FOLLOWERS[before]:
        raise IllegalTransitionError(f"job {job} is {before} and can't become {after}")
    return after
