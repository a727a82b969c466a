"""What jobs hold: the protocol of whoever reads it; a part of the ledger's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from reconciler.protocols.marks import Marks
from solver.model.document import Document
from solver.model.inflight import Intent, Reservation
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, TaskPlacement


class Claim(Document, frozen=True):
    """One gang's hold on its devices, from the moment it is decided until its tasks are known to have ended.

    `time_limit` counts from `running_since`. Both limits are fixed with the claim: a later policy does not shorten what runs.
    An elastic gang has other `tasks` when its size changes; `growth` counts how often it grew.
    `marks`: what is remembered of it while it runs.
    """

    job: JobName
    attempt: int
    tasks: tuple[TaskPlacement, ...]
    since: Instant
    running_since: Instant | None = None
    time_limit: Duration | None = None
    growth: int = 0
    idle_limit: Duration | None = None
    marks: Marks = Marks()

    @property
    def limit_reached_at(self) -> Instant | None:
        """When it will have run for as long as it may; None: never, or it does not run yet."""
        if self.running_since is None or self.time_limit is None:
            return None
        return self.running_since.after(self.time_limit)


class JobHoldings(NamedTuple):
    """What some jobs hold and are promised: as Holdings says it, of these jobs alone."""

    claims: Mapping[JobName, Claim]
    intents: tuple[Intent, ...]
    reservations: tuple[Reservation, ...]
    attempts: Mapping[JobName, int]


class LedgerView(Protocol):
    """Who holds which device, to be read."""

    def claims(self) -> tuple[Claim, ...]:
        """Every hold, sorted by job."""

    def intents(self) -> tuple[Intent, ...]:
        """Every intent not yet confirmed and every promise not yet kept, sorted by id."""

    def reservations(self) -> tuple[Reservation, ...]:
        """What is kept for gangs that wait and by documents, sorted by holder."""

    def attempts(self) -> dict[JobName, int]:
        """The last attempt number of every job that was ever bound and has no outcome yet (others may be left out)."""

    def of(self, names: Collection[JobName]) -> JobHoldings:
        """All of that, of some jobs: nothing of others is read for it."""
