"""Pods as jobs on record, for callers of the API: what the last pass saw, read only, since the API server is where they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from reconciler.kubernetes.control.sight import Sight
from reconciler.lifecycle.jobs.states import by_job, standing_of
from reconciler.model.budget import BudgetStanding
from reconciler.model.clock import Clock
from reconciler.model.failure import Failure
from reconciler.model.job_groups import Batch, GroupRecord, Submission, Tally
from reconciler.model.job_record import JobOutcome, JobRecord
from reconciler.protocols.backend import Epoch
from reconciler.protocols.checkpoints import CheckpointRegistry
from reconciler.protocols.health import NodeHealths
from reconciler.protocols.history import History
from reconciler.protocols.interventions import Interventions
from reconciler.protocols.job_source import (
    ALL_JOBS,
    AcceptedJob,
    DuplicateJobError,
    JobOrder,
    JobQuery,
    JobsAreElsewhereError,
    NoJobYetError,
    UnknownJobError,
)
from reconciler.protocols.ledger import Claim, JobHoldings, JobStanding
from reconciler.protocols.terminals import NO_TERMINALS, Terminals
from solver.model.inflight import Intent, Reservation
from solver.model.quantities import Instant
from solver.model.workload import JobName, JobSpec

_KEYS: Final[Mapping[JobOrder, Callable[[JobRecord], tuple[int | str, ...]]]] = {
    "newest": lambda record: (-record.submitted_at, record.name),
    "waiting": lambda record: (record.submitted_at, record.name),
    "biggest": lambda record: (-record.spec.gpus, -record.submitted_at, record.name),
}

_CREATE: Final = "Create pods with schedulerName: quorate."


class PodJobs:
    """Implements JobSource on what the last pass saw; what would change a job raises JobsAreElsewhereError."""

    def __init__(self, sight: Callable[[], Sight]) -> None:
        self._sight = sight

    def job(self, name: JobName) -> JobRecord:
        """A gang whose pods are there. Raises UnknownJobError, of a gang that is refused or not whole NoJobYetError."""
        found = next((record for record in self.live_jobs() if record.name == name), None)
        if found is not None:
            return found
        gang = self._sight().gangs.get(name)
        if gang is None or not gang.members:
            raise UnknownJobError(name)
        message = f"The pods of {name} are no job yet: they are refused, or some are not there."
        pod = gang.members[0]
        raise NoJobYetError(message, f"Ask with `kubectl quorate why {pod.name} -n {pod.namespace}`.")

    def named(self, names: Collection[JobName]) -> dict[JobName, JobRecord]:
        """Those whose pods are there."""
        wanted = frozenset(names)
        return {record.name: record for record in self.live_jobs() if record.name in wanted}

    def live_jobs(self) -> tuple[JobRecord, ...]:
        """All gangs that a round can be asked about."""
        return self._sight().records

    def jobs(
        self,
        limit: int = 1000,
        after: JobName | None = None,
        query: JobQuery = ALL_JOBS,
    ) -> tuple[JobRecord, ...]:
        """All are at hand: they are sorted here, and none is left out."""
        newest = sorted(self.live_jobs(), key=_KEYS[query.order])
        if after is None:
            return tuple(newest[:limit])
        place = next((at for at, record in enumerate(newest) if record.name == after), None)
        if place is None:
            raise UnknownJobError(after)
        return tuple(newest[place + 1 : place + 1 + limit])

    def count(self, query: JobQuery, most: int) -> int | None:
        """Of all of them alone."""
        return (
            min(most, len(self.live_jobs()))
            if query._replace(order="newest", ended=None, seen_by="") == ALL_JOBS
            else None
        )

    def tallies(self, names: Collection[JobName]) -> dict[JobName, Tally]:
        """None: pods are not submitted in groups of Quorate's."""
        del names
        return {}

    def group(self, name: JobName) -> GroupRecord:
        """There is none."""
        raise UnknownJobError(name)

    def members(self, name: JobName) -> tuple[JobRecord, ...]:
        """There is none."""
        raise UnknownJobError(name)

    def accepts(self) -> None:
        """Not here."""
        _elsewhere("submit", _CREATE)

    def submit(self, name: JobName, spec: JobSpec, user: str, at: Instant, idempotency_key: str) -> JobRecord:
        """Not here."""
        del name, spec, user, at, idempotency_key
        _elsewhere("submit", _CREATE)

    def submit_each(self, asked: Sequence[Submission]) -> list[AcceptedJob | DuplicateJobError]:
        """Not here."""
        del asked
        _elsewhere("submit", _CREATE)

    def submit_all(self, batch: Batch, user: str, at: Instant, idempotency_key: str) -> GroupRecord:
        """Not here."""
        del batch, user, at, idempotency_key
        _elsewhere("submit", _CREATE)

    def request_cancel_all(self, name: JobName, actor: str) -> None:
        """Not here."""
        del name, actor
        _elsewhere("cancel", "Delete what made the pods, such as their Job.")

    def request_cancel(self, name: JobName, actor: str) -> JobRecord:
        """Not here."""
        del name, actor
        _elsewhere("cancel", "Delete what made the pods, such as their Job.")

    def request_suspend(self, name: JobName, actor: str) -> JobRecord:
        """Not here."""
        del name, actor
        _elsewhere("suspend", "Set `suspend: true` on what made the pods, such as their Job.")

    def resume(self, name: JobName) -> JobRecord:
        """Not here."""
        del name
        _elsewhere("resume", "Set `suspend: false` on what made the pods, such as their Job.")

    def request_requeue(self, name: JobName, attempt: int, actor: str) -> JobRecord:
        """Not here."""
        del name, attempt, actor
        _elsewhere("requeue", "Delete the pods; what made them makes them anew.")

    def retry(self, epoch: Epoch, name: JobName, failure: Failure) -> None:
        """Not here: what made the pods makes them anew."""
        del epoch, name, failure
        _elsewhere("retry", "Say it to what made the pods, such as their Job's backoffLimit.")

    def finish(self, epoch: Epoch, name: JobName, outcome: JobOutcome) -> None:
        """Not here: pods say themselves how they ended."""
        del epoch, name, outcome
        _elsewhere("end", "Delete what made the pods, such as their Job.")

    def finish_all(self, epoch: Epoch, ended: Mapping[JobName, JobOutcome]) -> None:
        """Not here: pods say themselves how they ended."""
        del epoch, ended
        _elsewhere("end", "Delete what made the pods, such as their Job.")


class PodHoldings:
    """Implements LedgerView on what the last pass saw."""

    def __init__(self, sight: Callable[[], Sight]) -> None:
        self._sight = sight

    def claims(self) -> tuple[Claim, ...]:
        """Every hold, sorted by job."""
        return self._sight().claims

    def intents(self) -> tuple[Intent, ...]:
        """What is in flight."""
        return self._sight().intents

    def reservations(self) -> tuple[Reservation, ...]:
        """What is kept for gangs that wait."""
        return self._sight().reservations

    def attempts(self) -> dict[JobName, int]:
        """Of what holds something; pods that are made anew are told of none before."""
        return {claim.job: claim.attempt for claim in self.claims()}

    def of(self, names: Collection[JobName]) -> JobHoldings:
        """Of some gangs."""
        wanted = frozenset(names)
        claims = {claim.job: claim for claim in self.claims() if claim.job in wanted}
        intents = tuple(intent for intent in self.intents() if intent.job in wanted)
        reservations = tuple(kept for kept in self.reservations() if kept.holder in wanted)
        return JobHoldings(claims, intents, reservations, {job: claim.attempt for job, claim in claims.items()})

    def standings(self) -> dict[JobStanding, int]:
        """By what was seen."""
        records = self._sight().records
        holds = self.of([record.name for record in records])
        asked, kept = by_job(holds.intents), {each.holder: (each,) for each in holds.reservations}
        return Counter(
            standing_of(
                record,
                holds.claims.get(record.name),
                asked[record.name],
                kept.get(record.name, ()),
                holds.attempts.get(record.name, 0),
            )
            for record in records
        )


class Logless:
    """Implements Logs: what pods write is kept by their nodes, and read with `kubectl logs`."""

    def __init__(self, sight: Callable[[], Sight]) -> None:
        self._sight = sight

    def read_log(self, job: JobName, attempt: int, group: str, index: int, offset: int, limit: int) -> bytes:
        """Raises JobsAreElsewhereError with what to ask instead, KeyError for a task that is not known."""
        del attempt, offset, limit
        gang = self._sight().gangs.get(job)
        pods = [one for one in gang.members if (one.group, one.task_index) == (group, index)] if gang else []
        if not pods:
            raise KeyError(f"{job} has no task {group}/{index}")
        _elsewhere("keep what is written by", f"Read it with `kubectl logs {pods[0].name} -n {pods[0].namespace}`.")


@dataclass(frozen=True, slots=True)
class SeenPlane:
    """What is read of the control plane of a cluster of pods, as services need it."""

    holder: str
    jobs: PodJobs
    ledger: PodHoldings
    history: History
    logs: Logless
    clock: Clock
    checkpoints: CheckpointRegistry
    interventions: Interventions
    health: NodeHealths
    terminals: Terminals = NO_TERMINALS
    budgets: Callable[[], Sequence[BudgetStanding]] = tuple


def _elsewhere(wanted: str, fix: str) -> NoReturn:
    raise JobsAreElsewhereError(f"Jobs of this cluster are pods, so Quorate does not {wanted} them.", fix)
