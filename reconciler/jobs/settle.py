"""Decides what follows from what the backend reports: pure, from facts to settlements that are data.

Everything here can be decided again after a crash at any point, from the same facts, with the same result.
So the order of settlements is what makes it safe: a job is finished first, then its devices are released, and only
then does the backend forget the attempt. A crash in between finds a job that ended and never runs it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.backend import Order, StartGang, StopGang, TaskStatus
from reconciler.jobs.record import TERMINAL, JobRecord, JobState
from reconciler.jobs.sighted import Attempt, Sighted
from reconciler.jobs.states import require_transition, state_of
from reconciler.store.protocols import Claim
from solver.world.inflight import Intent
from solver.world.quantities import Duration, Instant
from solver.world.workload import JobName

RESEND_AFTER = Duration(2_000)
"""An order without an effect for this long may have been lost. Orders are facts: one too many does no harm."""

STOP_GRACE = Duration(30_000)
"""Between asking a task to end and making it: what Kubernetes gives a pod (terminationGracePeriodSeconds)."""


@dataclass(frozen=True, slots=True)
class ConfirmRunning:
    """Every task of the gang runs, since `at`."""

    job: JobName
    attempt: int
    at: Instant


@dataclass(frozen=True, slots=True)
class AskToStop:
    """The gang shall end, because of `cause`."""

    job: JobName
    attempt: int
    cause: str


@dataclass(frozen=True, slots=True)
class Succeed:
    """Every task ended well."""

    job: JobName


@dataclass(frozen=True, slots=True)
class Fail:
    """The gang has ended because of one task."""

    job: JobName
    culprit: TaskStatus


@dataclass(frozen=True, slots=True)
class TimeOut:
    """The gang was stopped because it had run for as long as it may."""

    job: JobName
    limit: Duration


@dataclass(frozen=True, slots=True)
class Cancel:
    """The job has ended, or never began, because somebody asked for that."""

    job: JobName
    actor: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Nothing of the attempt runs: its devices are free."""

    job: JobName
    attempt: int


@dataclass(frozen=True, slots=True)
class Forget:
    """The backend need not report this attempt any more."""

    job: JobName
    attempt: int


@dataclass(frozen=True, slots=True)
class Send:
    """An order whose effect is not to be seen yet."""

    order: Order


Settlement = ConfirmRunning | AskToStop | Succeed | Fail | TimeOut | Cancel | GiveBack | Forget | Send


@dataclass(frozen=True, slots=True)
class Holding:
    """One claim with everything that is known of it."""

    record: JobRecord
    claim: Claim
    intents: tuple[Intent, ...]
    attempt: Attempt
    now: Instant

    @property
    def stopping(self) -> bool:
        """It has been asked to stop."""
        return self.stop is not None

    @property
    def stop(self) -> Intent | None:
        """What was asked for when it was asked to stop."""
        return next((intent for intent in self.intents if intent.kind == "stop"), None)

    @property
    def limit_reached(self) -> bool:
        """It has run for as long as it may."""
        reached_at = self.claim.limit_reached_at
        return reached_at is not None and reached_at <= self.now

    @property
    def timed_out(self) -> bool:
        """It was asked to stop because of its limit: then, and before any task had failed or all had ended by themselves."""
        reached_at = self.claim.limit_reached_at
        if self.stop is None or reached_at is None or self.stop.asked_at < reached_at:
            return False
        culprit = self.attempt.culprit
        ended_before = all(task.at < self.stop.asked_at for task in self.attempt.tasks)
        if self.attempt.all_succeeded(self.claim.tasks) and ended_before:
            return False
        return culprit is None or culprit.at >= self.stop.asked_at

    @property
    def evicted(self) -> bool:
        """It was asked to leave and wait again, and that ended it: no task had failed before, and some task did not end well.

        A backend reports a task that ends after its stop arrived as stopped. One that succeeded was faster than that.
        """
        if self.stop is None or not self.stop.evicts or self.attempt.all_succeeded(self.claim.tasks):
            return False
        culprit = self.attempt.culprit
        return culprit is None or culprit.at >= self.stop.asked_at


def settlements(
    records: Iterable[JobRecord], claims: Iterable[Claim], intents: Iterable[Intent], sighted: Sighted, now: Instant
) -> Iterable[Settlement]:
    """Everything that follows from one look, job by job. `records` has every live job and every job with a claim."""
    by_name = {record.name: record for record in records}
    intents = tuple(intents)
    claimed = {(claim.job, claim.attempt): claim for claim in claims}
    for key, claim in claimed.items():
        own = tuple(intent for intent in intents if (intent.job, intent.attempt) == key)
        holding = Holding(by_name[claim.job], claim, own, sighted.attempt(*key), now)
        yield from _lawful(state_of(holding.record, claim, own), settle(holding))
    holders = {claim.job for claim in claimed.values()}
    for record in by_name.values():
        if record.cancel_requested_by and record.name not in holders and record.outcome is None:
            yield from _lawful("queued", (Cancel(record.name, record.cancel_requested_by),))
    for key in sorted(sighted.attempts.keys() - claimed.keys()):
        yield from _settle_unclaimed(*key, sighted.attempt(*key))


def settle(holding: Holding) -> tuple[Settlement, ...]:
    """What follows for one claim."""
    job, attempt = holding.claim.job, holding.claim.attempt
    if not holding.attempt.is_over(holding.claim.tasks):
        return _settle_live(holding)
    done = (GiveBack(job, attempt), Forget(job, attempt))
    if holding.record.outcome is not None:
        return done
    limit = holding.claim.time_limit
    # A task that ends well because it was told to stop has not done what it was for.
    if limit is not None and holding.timed_out and not holding.record.cancel_requested_by:
        return (TimeOut(job, limit), *done)
    if holding.evicted and not holding.record.cancel_requested_by:
        return done
    if holding.attempt.all_succeeded(holding.claim.tasks):
        return (Succeed(job), *done)
    # Peers of a gang that is being stopped often die of each other's end: that is not a failure of the job.
    if holding.record.cancel_requested_by and holding.stopping:
        return (Cancel(job, holding.record.cancel_requested_by), *done)
    if holding.attempt.culprit is not None:
        return (Fail(job, holding.attempt.culprit), *done)
    if holding.stopping:
        return done
    return (AskToStop(job, attempt, "its tasks were stopped by somebody else"),)


def _settle_live(holding: Holding) -> tuple[Settlement, ...]:
    job, attempt, known = holding.claim.job, holding.claim.attempt, holding.attempt
    if holding.stopping:
        return tuple(_resent(holding, "stop"))
    if holding.record.outcome is not None:
        return (Send(StopGang(job, attempt, STOP_GRACE)),)
    if holding.record.cancel_requested_by:
        return (AskToStop(job, attempt, f"cancelled by {holding.record.cancel_requested_by}"),)
    if known.culprit is not None:
        return (AskToStop(job, attempt, f"{describe(known.culprit)}; a gang runs whole or not at all"),)
    if holding.limit_reached:
        return (AskToStop(job, attempt, f"its time limit of {holding.claim.time_limit} is over"),)
    if holding.claim.running_since is None and known.all_run(holding.claim.tasks):
        return (ConfirmRunning(job, attempt, max(task.at for task in known.tasks) if known.tasks else holding.now),)
    if not known.knows_all(holding.claim.tasks):
        return tuple(_resent(holding, "start"))
    return ()


def _resent(holding: Holding, kind: str) -> Iterable[Settlement]:
    for intent in holding.intents:
        if intent.kind == kind and holding.now - intent.asked_at >= RESEND_AFTER:
            yield Send(order_of(intent, holding.record))


def _settle_unclaimed(job: JobName, attempt: int, known: Attempt) -> Iterable[Settlement]:
    """The backend reports what the ledger does not hold: released a moment ago, or never claimed. Make sure, then forget."""
    yield Forget(job, attempt) if known.stopped else Send(StopGang(job, attempt, STOP_GRACE))


def _lawful(state: JobState, decided: tuple[Settlement, ...]) -> tuple[Settlement, ...]:
    """The settlements, if they lead a job only through states that may follow each other."""
    for settlement in decided:
        match settlement:
            case ConfirmRunning(job):
                state = require_transition(job, state, "running")
            case AskToStop(job):
                state = require_transition(job, state, "stopping")
            case Succeed(job):
                state = require_transition(job, state, "succeeded")
            case Fail(job) | TimeOut(job):
                state = require_transition(job, state, "failed")
            case Cancel(job):
                state = require_transition(job, state, "cancelled")
            case GiveBack(job) if state not in TERMINAL:
                state = require_transition(job, state, "queued")
            case GiveBack() | Forget() | Send():
                pass
    return decided


def order_of(intent: Intent, record: JobRecord) -> Order:
    """The order that makes an intent true; the same every time."""
    match intent.kind:
        case "start":
            return StartGang(intent.job, intent.attempt, intent.tasks, record.spec)
        case "stop":
            return StopGang(intent.job, intent.attempt, Duration(intent.deadline - intent.asked_at))
        case "shrink" | "grow":
            raise NotImplementedError(intent.id)
        case "nominate":
            raise ValueError(f"{intent.id} is a promise to a job that holds nothing: there is nothing to order")


def describe(task: TaskStatus) -> str:
    """How a task ended, in words."""
    place = f"task {task.group}/{task.index} on {task.node}"
    if task.state == "failed":
        return f"{place} failed with exit code {task.exit_code}"
    return f"{place} was {task.state}" + (f" ({task.detail})" if task.detail else "")
