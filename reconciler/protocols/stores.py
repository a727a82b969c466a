"""The three small protocols of storage. No one of them pretends to own everything.

JobSource (store/job_source.py) says what wants to run, Ledger who holds which device, History what happened. On one
machine a single database implements all three (reconciler/store); on Kubernetes the API server is source and ledger.
Each has a conformance suite under tests/contracts that every implementation passes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from reconciler.protocols.backend import Epoch
from reconciler.protocols.holdings import Claim as Claim  # noqa: PLC0414  (it is known by the protocols)
from reconciler.protocols.holdings import LedgerView as LedgerView  # noqa: PLC0414  (as above)
from reconciler.protocols.marks import Marks
from reconciler.protocols.partitionings import Partitionings
from reconciler.protocols.past_use import PastUse
from reconciler.protocols.rounds import RoundRecord, RoundSummary
from solver.model.cluster import DeviceId
from solver.model.document import Document
from solver.model.inflight import ConvergenceClock, Ended, Intent, Reservation
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName


class StoreUnusableError(Exception):
    """The disk is full, the file is corrupt, the database is gone: a person must act; what was committed is kept."""


class StoreUnreachableError(StoreUnusableError):
    """The database does not answer now, as it does not while it restarts or fails over: try again.

    Whether what was being committed is, only reading will tell.
    """


class StoreFullError(StoreUnreachableError):
    """The disk of the database is full: nothing of the transaction is kept, and it can be tried again once there is room."""


class NotLeaderError(Exception):
    """Somebody else leads, until `until`."""

    def __init__(self, holder: str, until: Instant) -> None:
        super().__init__(f"{holder} leads until {until}")
        self.holder = holder
        self.until = until


class ClaimRefusedError(Exception):
    """A device is already held, or too much of it, or the attempt is not the next one. Nothing was changed."""

    def __init__(self, reason: str, devices: tuple[DeviceId, ...] = ()) -> None:
        super().__init__(reason)
        self.devices = devices


class Event(Document, frozen=True):
    """One thing that happened, why, and by whom. `subject` is a job, node or revision; `state` what a job is from then on.

    `attempt`: of the job, where it is of one. `purpose` and `beneficiary`: why a gang was asked to stop, and for which job.
    """

    time: Instant
    kind: str
    subject: str
    cause: str
    actor: str
    state: str = ""
    attempt: int = 0
    purpose: str = ""
    beneficiary: str = ""


class KeptEvent(Document, frozen=True):
    """An event and its number, which rises in the order in which events are kept."""

    number: int
    event: Event


class Ledger(LedgerView, Partitionings, Protocol):
    """Who holds which device. Every write carries the writer's epoch and is refused if it is not the newest."""

    def lead(self, holder: str, now: Instant, lease: Duration) -> Epoch:
        """Take or renew leadership; a new holder gets a higher epoch. NotLeaderError while another's lease runs.

        `now`: the caller's clock. A ledger that callers reach from several machines goes by its own instead.
        """

    def renew(self, holder: str, now: Instant, lease: Duration) -> bool:
        """Prolong the lease of whoever leads, if that is `holder`, and say whether it is; without effect on any other.

        `now`: as in `lead`.
        """

    def held_by(self, job: JobName) -> Claim | None:
        """What one job holds; None: nothing."""

    def last_attempt(self, job: JobName) -> int:
        """The last attempt number of one job, live or ended; 0: it was never bound."""

    def last_attempts(self, names: Collection[JobName]) -> Mapping[JobName, int]:
        """The same of some jobs; those that were never bound are left out."""

    def asked(self, intent: str) -> Intent | None:
        """The intent of that id, which is no promise; None: it was confirmed, or never asked."""

    def resign(self, epoch: Epoch) -> None:
        """Give leadership up, so that a successor need not wait for the lease to end. Harmless if already lost."""

    def claim(self, epoch: Epoch, claim: Claim, intent: Intent) -> None:
        """All devices of a gang, its attempt number and the start intent, in one transaction or not at all.

        The job must be live, not suspended, and hold nothing, and the attempt be one above its last.
        Raises ClaimRefusedError, StaleEpochError.
        """

    def claim_all(self, epoch: Epoch, wanted: Sequence[tuple[Claim, Intent]]) -> Mapping[JobName, ClaimRefusedError]:
        """As `claim` for one gang after the other, in one write; returns why those were refused that were.

        Raises StaleEpochError.
        """

    def ask(self, epoch: Epoch, intent: Intent) -> None:
        """Record an intent (a stop, or a shrink). Asking for the same id again keeps the first.

        One that `evicts` counts as an eviction. Without effect on an attempt that holds nothing: there is nothing left to
        stop. Raises StaleEpochError.
        """

    def stage(self, epoch: Epoch, intent: Intent) -> None:
        """Put a stop that is further than the one of the same id in its place. Without effect where there is none.

        Raises StaleEpochError.
        """

    def call_off(self, epoch: Epoch, job: JobName, attempt: int) -> None:
        """A stop that has not got to telling the gang to end is no more, and no eviction either: the gang goes on.

        Without effect on one that has. Raises StaleEpochError.
        """

    def nominate(self, epoch: Epoch, intent: Intent) -> None:
        """Promise a job devices for an attempt to come (a nomination), in place of what it was promised before.

        Without effect on a job that has ended, or holds something in that attempt; one that moves holds something in the
        attempt before. A claim of the job ends the promise, and so does its outcome. Raises StaleEpochError.
        """

    def withdraw(self, epoch: Epoch, job: JobName) -> None:
        """Take back what a job was promised. Idempotent. Raises StaleEpochError."""

    def reserve(self, epoch: Epoch, reservation: Reservation) -> None:
        """Keep devices for a waiting gang, in place of what was kept. A claim or a promise of the gang ends it.

        Without effect for a job that has ended or holds something. What a Reservation document keeps has no job
        (`Reservation.is_declared`). Raises StaleEpochError.
        """

    def unreserve(self, epoch: Epoch, holder: JobName) -> None:
        """Nothing is kept for a gang, or by a document, any more. Idempotent. Raises StaleEpochError."""

    def confirm_running(self, epoch: Epoch, job: JobName, attempt: int, at: Instant) -> None:
        """All tasks run: the start intent is done. Idempotent. Raises StaleEpochError."""

    def confirm_running_all(self, epoch: Epoch, seen: Iterable[tuple[JobName, int, Instant]]) -> None:
        """As `confirm_running` for many attempts, in one write. Raises StaleEpochError."""

    def mark(self, epoch: Epoch, job: JobName, attempt: int, marks: Marks) -> None:
        """Remember this of an attempt, in place of what was; no effect on one that holds nothing. Raises StaleEpochError."""

    def grow(self, epoch: Epoch, intent: Intent) -> Claim:
        """All devices of more tasks for a gang that runs, and the intent to start them, in one transaction or not at all.

        Returns the claim as it is then. It must run, and neither be stopping nor grow already. Raises ClaimRefusedError,
        StaleEpochError.
        """

    def restart(self, epoch: Epoch, intent: Intent) -> Claim:
        """The intent to let tasks that the gang has, and that have ended, begin once more where they were: the next growth.

        Returns the claim as it is then. It must run, and neither be stopping nor grow already. Raises ClaimRefusedError,
        StaleEpochError.
        """

    def confirm_grown(self, epoch: Epoch, job: JobName, attempt: int) -> None:
        """All tasks that joined run: the intent is done. Idempotent. Raises StaleEpochError."""

    def confirm_shrunk(self, epoch: Epoch, job: JobName, attempt: int, at: Instant) -> None:
        """Nothing of the tasks that the shrink intent names runs: their devices are free, and the intent is done.

        Those that were still to join do so no more. Idempotent. Raises StaleEpochError.
        """

    def release(self, epoch: Epoch, job: JobName, attempt: int, at: Instant) -> None:
        """Nothing of this attempt runs: its devices are free, its intents done. Idempotent. Raises StaleEpochError.

        `at`: until when it counts as having run, if it ever did.
        """

    def release_all(self, epoch: Epoch, over: Collection[tuple[JobName, int]], at: Instant) -> None:
        """As `release` for many attempts, in one write. Raises StaleEpochError."""

    def evictions(self) -> dict[JobName, tuple[Instant, ...]]:
        """When each live job was evicted, the oldest first; jobs that never were are left out."""

    def served(self) -> dict[JobName, int]:
        """GPU-milliseconds that released attempts of each live job have run, since all their tasks did; 0 may be left out."""

    def history(self) -> tuple[Ended, ...]:
        """How long jobs ran that have an outcome, hold nothing and had GPUs; older ones than HISTORY_JOBS may be left out."""

    def keep_past_use(self, epoch: Epoch, past: PastUse) -> None:
        """Past use instead of what was kept before. Raises StaleEpochError."""

    def past_use(self) -> PastUse:
        """What was kept last; nothing, as of 1970, where nothing was."""

    def keep_clocks(self, epoch: Epoch, clocks: tuple[ConvergenceClock, ...]) -> None:
        """The clocks of limits that are to be kept again, instead of those kept before. Raises StaleEpochError."""

    def clocks(self) -> tuple[ConvergenceClock, ...]:
        """What was kept last; none where nothing was."""


class History(Protocol):
    """What happened: rounds, to be replayed; events, to be read."""

    def record_round(self, epoch: Epoch, record: RoundRecord) -> int:
        """Keep a round; returns its number (the record's own number is ignored). Raises StaleEpochError."""

    def round(self, number: int) -> RoundRecord:
        """One round, whole. Raises KeyError."""

    def rounds(self, limit: int = 20, before: int | None = None) -> tuple[RoundSummary, ...]:
        """The newest rounds, newest first; with `before`, of those with a smaller number."""

    def prune_rounds(self, epoch: Epoch, before: Instant, limit: int = 500) -> int:
        """Delete the oldest rounds of before an instant, at most so many, and never the newest; returns how many.

        Numbers are never used again, and events stay. Raises StaleEpochError.
        """

    def record_event(self, event: Event) -> None:
        """Append an event."""

    def record_events(self, told: Iterable[Event]) -> None:
        """Append events in this order, all or none: in one write, however many they are."""

    def events(self, subject: str, limit: int = 100) -> tuple[Event, ...]:
        """The newest events of a subject, oldest first."""

    def events_before(self, subject: str, before: int | None = None, limit: int = 100) -> tuple[KeptEvent, ...]:
        """The newest events of a subject, oldest first; with `before`, of those with a smaller number."""

    def events_since(self, number: int, subject: str = "", limit: int = 1000) -> tuple[KeptEvent, ...]:
        """The oldest events with a larger number, oldest first; subject "": of all. None is ever added below one that was seen."""

    def newest_event(self) -> int:
        """The number of the newest event; 0 before the first."""
