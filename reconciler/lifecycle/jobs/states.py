"""The state of a job, derived from what the stores hold, and which state may follow which.

No state is stored: a claim makes a job `starting`, its confirmation `running`, a stop intent `checkpointing`, `evicting` or
`stopping`, and the release of a claim without an outcome makes it wait again. The table below is checked where
settlements are decided (jobs/decisions.py); the ledger itself guards the way from waiting to `starting`. docs/states.md
says it to a job's owner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from reconciler.model.job_record import TERMINAL, WAITING, JobRecord, JobState
from reconciler.protocols.ledger import Claim, JobStanding, StopKind, stop_of
from solver.model.inflight import Intent, Reservation
from solver.model.workload import JobName, Phase

_HOLDING: frozenset[JobState] = frozenset({"running", "evicting", "stopping"})

FOLLOWERS: dict[JobState, frozenset[JobState]] = {
    "queued": frozenset({"reserved", "starting", "suspended", "cancelled"}),
    "reserved": frozenset({"queued", "retrying", "starting", "suspended", "cancelled"}),
    "retrying": frozenset({"reserved", "starting", "suspended", "cancelled"}),
    # It may be resumed before what was kept for it has been taken back.
    "suspended": frozenset({"queued", "reserved", "retrying", "cancelled"}),
    # A gang may have ended before it was seen to run.
    "starting": frozenset(
        {"running", "evicting", "stopping", "retrying", "suspended", "succeeded", "failed", "cancelled"}
    ),
    "running": frozenset(
        {"checkpointing", "evicting", "stopping", "retrying", "suspended", "succeeded", "failed", "cancelled"}
    ),
    # Told to save its work, it may also end by itself; or it need not leave any more.
    "checkpointing": _HOLDING | WAITING | TERMINAL,
    "evicting": WAITING | TERMINAL,
    "stopping": WAITING | TERMINAL,
    "succeeded": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}


_STOPPING: dict[StopKind, JobState] = {"saves": "checkpointing", "leaves": "evicting", "ends": "stopping"}


class IllegalTransitionError(Exception):
    """The control plane was about to do something that no job may live through: a bug, and nothing was written."""


def state_of(
    record: JobRecord,
    claim: Claim | None,
    intents: Iterable[Intent],
    reservations: Iterable[Reservation] = (),
    last_attempt: int = 0,
) -> JobState:
    """Where a job stands. An ended job may still hold devices for a moment; it is ended all the same.

    `intents`, `reservations`: the job's own, or those of all jobs. `last_attempt`: the last in which it held something.
    """
    if record.outcome is not None:
        return record.outcome.state
    if claim is None:
        return _waiting(record, intents, reservations, last_attempt)
    stop = next((intent for intent in intents if _stops(intent, claim)), None)
    if stop is not None:
        return stopping_state(stop)
    return "starting" if claim.running_since is None else "running"


def standing_of(
    record: JobRecord,
    claim: Claim | None,
    intents: Iterable[Intent],
    reservations: Iterable[Reservation],
    last_attempt: int,
) -> JobStanding:
    """What says in which state a live job is. `intents`, `reservations`: the job's own."""
    asked = tuple(intents)
    stop: StopKind = next((stop_of(each) for each in asked if claim and _stops(each, claim)), "")
    return JobStanding(
        suspended=bool(record.suspended_by),
        promised=any(intent.kind == "nominate" for intent in asked) or any(True for _ in reservations),
        failed=record.failed_in(last_attempt),
        holds=claim is not None,
        runs=claim is not None and claim.running_since is not None,
        stop=stop,
    )


def state_in(standing: JobStanding) -> JobState:
    """Where a live job stands, by what says so: as `state_of`, for those that are only counted."""
    if not standing.holds:
        if standing.suspended:
            return "suspended"
        if standing.promised:
            return "reserved"
        return "retrying" if standing.failed else "queued"
    return _STOPPING[standing.stop] if standing.stop else "running" if standing.runs else "starting"


def by_job(intents: Iterable[Intent]) -> Mapping[JobName, tuple[Intent, ...]]:
    """Those of each job, in their order; () of one that has none. For callers that ask of thousands of jobs, one by one."""
    found: defaultdict[JobName, tuple[Intent, ...]] = defaultdict(tuple)
    for intent in intents:
        found[intent.job] += (intent,)
    return found


def stopping_state(stop: Intent) -> JobState:
    """Where a job stands that has been asked to stop."""
    return _STOPPING[stop_of(stop)]


def state_after(record: JobRecord, attempt: int) -> JobState:
    """Where a live job stands once that attempt has given its devices back."""
    if record.suspended_by:
        return "suspended"
    return "retrying" if record.failed_in(attempt) else "queued"


def phase_of(state: JobState) -> Phase:
    """The same in the words of a snapshot, for a job that holds devices: one that has ended is giving them back."""
    match state:
        case "starting" | "running":
            return state
        case "queued" | "reserved" | "suspended" | "retrying":
            return "pending"
        case "checkpointing" | "evicting" | "stopping" | "succeeded" | "failed" | "cancelled":
            return "stopping"


def require_transition(job: JobName, before: JobState, after: JobState) -> JobState:
    """`after`, if it may follow `before`; raises IllegalTransitionError otherwise."""
    if after not in FOLLOWERS[before]:
        raise IllegalTransitionError(f"job {job} is {before} and can't become {after}")
    return after


def _waiting(
    record: JobRecord, intents: Iterable[Intent], reservations: Iterable[Reservation], last_attempt: int
) -> JobState:
    if record.suspended_by:
        return "suspended"
    promised = any(intent.kind == "nominate" and intent.job == record.name for intent in intents)
    if promised or any(reservation.holder == record.name for reservation in reservations):
        return "reserved"
    return state_after(record, last_attempt)


def _stops(intent: Intent, claim: Claim) -> bool:
    return (intent.kind, intent.job, intent.attempt) == ("stop", claim.job, claim.attempt)
