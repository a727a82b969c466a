"""Jobs that others keep, for callers of the API: what the last pass saw, read only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn, Protocol

from reconciler.lifecycle.jobs.states import by_job, standing_of
from reconciler.model.budget import BudgetStanding
from reconciler.model.clock import Clock
from reconciler.model.failure import Failure
from reconciler.model.job_groups import Batch, GroupRecord, Submission, Tally
from reconciler.model.job_record import JobOutcome, JobRecord
from reconciler.model.task_log import Logs
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
    UnknownJobError,
)
from reconciler.protocols.ledger import Claim, JobHoldings, JobStanding
from reconciler.protocols.terminals import NO_TERMINALS, Terminals
from solver.model.inflight import Intent, Reservation
from solver.model.quantities import Instant
from solver.model.workload import JobName, JobSpec, QueueName

_KEYS: Final[Mapping[JobOrder, Callable[[JobRecord], tuple[int | str, ...]]]] = {
    "newest": lambda record: (-record.submitted_at, record.name),
    "waiting": lambda record: (record.submitted_at, record.name),
    "biggest": lambda record: (-record.spec.gpus, -record.submitted_at, record.name),
}


class SeenCluster(Protocol):
    """One look at a cluster, as far as callers of the API ask for it."""

    @property
    def records(self) -> tuple[JobRecord, ...]:
        """Every job that a round can be asked about, sorted by name."""

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What every job holds, sorted by name."""

    @property
    def intents(self) -> tuple[Intent, ...]:
        """What is in flight."""

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """What is kept for jobs that wait."""


class ElsewhereWords(NamedTuple):
    """What is said of what the other scheduler does. `where`: a sentence's beginning; `fixes`: by what is asked for."""

    where: str
    fixes: Mapping[str, str]


class SeenJobs:
    """Implements JobSource on what the last pass saw; what would change a job raises JobsAreElsewhereError."""

    def __init__(self, sight: Callable[[], SeenCluster], words: ElsewhereWords) -> None:
        self.sight = sight
        self._words = words

    def job(self, name: JobName) -> JobRecord:
        """A job that was seen. Raises UnknownJobError."""
        found = next((record for record in self.live_jobs() if record.name == name), None)
        if found is None:
            raise UnknownJobError(name)
        return found

    def named(self, names: Collection[JobName]) -> dict[JobName, JobRecord]:
        """Those that were seen."""
        wanted = frozenset(names)
        return {record.name: record for record in self.live_jobs() if record.name in wanted}

    def live_jobs(self) -> tuple[JobRecord, ...]:
        """All that a round can be asked about."""
        return self.sight().records

    def jobs(
        self,
        limit: int = 1000,
        after: JobName | None = None,
        query: JobQuery = ALL_JOBS,
    ) -> tuple[JobRecord, ...]:
        """All are at hand: they are sorted here, and none is left out."""
        newest = sorted(self._records(query), key=_KEYS[query.order])
        if after is None:
            return tuple(newest[:limit])
        place = next((at for at, record in enumerate(newest) if record.name == after), None)
        if place is None:
            raise UnknownJobError(after)
        return tuple(newest[place + 1 : place + 1 + limit])

    def _records(self, query: JobQuery) -> tuple[JobRecord, ...]:
        """Those that are looked for, and others."""
        del query
        return self.live_jobs()

    def count(self, query: JobQuery, most: int) -> int | None:
        """Of all of them alone."""
        return (
            min(most, len(self.live_jobs()))
            if query._replace(order="newest", ended=None, seen_by="") == ALL_JOBS
            else None
        )

    def tallies(self, names: Collection[JobName]) -> dict[JobName, Tally]:
        """None: they were not submitted in groups of Quorate's."""
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
        self._elsewhere("submit")

    def submit(self, name: JobName, spec: JobSpec, user: str, at: Instant, idempotency_key: str) -> JobRecord:
        """Not here."""
        del name, spec, user, at, idempotency_key
        self._elsewhere("submit")

    def submit_each(self, asked: Sequence[Submission]) -> list[AcceptedJob | DuplicateJobError]:
        """Not here."""
        del asked
        self._elsewhere("submit")

    def was_submitted(self, name: JobName, idempotency_key: str) -> bool:
        """Nothing is."""
        del name, idempotency_key
        return False

    def resolved(self, names: Collection[JobName]) -> dict[JobName, JobName]:
        """They are as the other scheduler has them."""
        return {name: name for name in names}

    def next_number(self, names: Collection[JobName]) -> int:
        """None is given here."""
        del names
        return 1

    def newest_group(self, name: JobName, seen_in: frozenset[QueueName] | None, seen_by: str) -> GroupRecord | None:
        """There is none."""
        del name, seen_in, seen_by
        return None

    def submit_all(self, batch: Batch, user: str, at: Instant, idempotency_key: str) -> GroupRecord:
        """Not here."""
        del batch, user, at, idempotency_key
        self._elsewhere("submit")

    def request_cancel_all(self, name: JobName, actor: str) -> None:
        """Not here."""
        del name, actor
        self._elsewhere("cancel")

    def request_cancel(self, name: JobName, actor: str) -> JobRecord:
        """Not here."""
        del name, actor
        self._elsewhere("cancel")

    def request_suspend(self, name: JobName, actor: str) -> JobRecord:
        """Not here."""
        del name, actor
        self._elsewhere("suspend")

    def resume(self, name: JobName) -> JobRecord:
        """Not here."""
        del name
        self._elsewhere("resume")

    def request_requeue(self, name: JobName, attempt: int, actor: str) -> JobRecord:
        """Not here."""
        del name, attempt, actor
        self._elsewhere("requeue")

    def retry(self, epoch: Epoch, name: JobName, failure: Failure) -> None:
        """Not here: the other scheduler does."""
        del epoch, name, failure
        self._elsewhere("retry")

    def finish(self, epoch: Epoch, name: JobName, outcome: JobOutcome) -> None:
        """Not here: they say themselves how they ended."""
        del epoch, name, outcome
        self._elsewhere("end")

    def finish_all(self, epoch: Epoch, ended: Mapping[JobName, JobOutcome]) -> None:
        """Not here: they say themselves how they ended."""
        del epoch, ended
        self._elsewhere("end")

    def _elsewhere(self, wanted: str) -> NoReturn:
        raise JobsAreElsewhereError(
            f"{self._words.where}, so Quorate does not {wanted} them.", self._words.fixes[wanted]
        )


class SeenHoldings:
    """Implements LedgerView on what the last pass saw."""

    def __init__(self, sight: Callable[[], SeenCluster]) -> None:
        self._sight = sight

    def claims(self) -> tuple[Claim, ...]:
        """Every hold, sorted by job."""
        return self._sight().claims

    def intents(self) -> tuple[Intent, ...]:
        """What is in flight."""
        return self._sight().intents

    def reservations(self) -> tuple[Reservation, ...]:
        """What is kept for jobs that wait."""
        return self._sight().reservations

    def attempts(self) -> dict[JobName, int]:
        """Of what holds something: of none before is anything known."""
        return {claim.job: claim.attempt for claim in self.claims()}

    def of(self, names: Collection[JobName]) -> JobHoldings:
        """Of some jobs."""
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


@dataclass(frozen=True, slots=True)
class SeenPlane:
    """What is read of the control plane of a cluster that others keep, as services need it."""

    holder: str
    jobs: SeenJobs
    ledger: SeenHoldings
    history: History
    logs: Logs
    clock: Clock
    checkpoints: CheckpointRegistry
    interventions: Interventions
    health: NodeHealths
    terminals: Terminals = NO_TERMINALS
    budgets: Callable[[], Sequence[BudgetStanding]] = tuple
