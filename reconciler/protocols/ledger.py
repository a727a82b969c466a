"""Which job holds which device: claims, intents, reservations, and what GPUs are partitioned into.

The conformance suites are tests/contracts/test_ledger*.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from reconciler.model.cluster_clock import KeptTime
from reconciler.model.idle_policy import IdleAction
from reconciler.protocols.backend import Epoch
from solver.model.cluster import DeviceId, GpuType
from solver.model.document import Document
from solver.model.inflight import ConvergenceClock, Ended, Intent, Repartitioning, Reservation, Usage
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName, TaskPlacement


class IdleMark(Document, frozen=True):
    """It was warned at `warned_at` for doing nothing since then, by an IdlePolicy, whose `action` follows at `acts_at`.

    `lent_at`: since when what it holds counts as borrowed; None: it does not.
    """

    policy: str
    origin: str
    action: IdleAction
    since: Instant
    warned_at: Instant
    acts_at: Instant
    lent_at: Instant | None = None


class Marks(Document, frozen=True):
    """What its tasks were told, and since when they stand still. Each instant at which they were told is the number of that.

    `warned_at`: they were told that their time limit is near. `stuck_at`: they were found to be stuck, and told to be dumped;
    None again once they go on. `steps`: what the steps of all tasks together were when they were looked at last, where any
    says so, and `still_since`: since when nothing has changed in that. `restarted_at`: when tasks of it that had ended were
    begun again last, in the same attempt. `idle`: it was warned for doing nothing; None: it was not.
    """

    warned_at: Instant | None = None
    stuck_at: Instant | None = None
    steps: int | None = None
    still_since: Instant | None = None
    restarted_at: Instant | None = None
    idle: IdleMark | None = None

    @property
    def is_lent(self) -> bool:
        """What it holds counts as borrowed."""
        return self.idle is not None and self.idle.lent_at is not None


class Claim(Document, frozen=True):
    """One gang's hold on its devices, from the moment it is decided until its tasks are known to have ended.

    `time_limit` counts from `running_since`. Both limits are fixed with the claim: a later policy does not shorten what runs.
    An elastic gang has other `tasks` when its size changes; `growth` counts how often it grew.
    `marks`: what is remembered of it while it runs. `gpu_types`: that of each task group with GPUs.
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
    gpu_types: tuple[tuple[str, GpuType], ...] = ()

    @property
    def limit_reached_at(self) -> Instant | None:
        """When it will have run for as long as it may; None: never, or it does not run yet."""
        if self.running_since is None or self.time_limit is None:
            return None
        return self.running_since.after(self.time_limit)


class PastUse(Document, frozen=True):
    """What queues have held, decayed, as of an instant."""

    usage: tuple[Usage, ...] = ()
    at: Instant = Instant(0)


class JobHoldings(NamedTuple):
    """What some jobs hold and are promised: as Holdings says it, of these jobs alone."""

    claims: Mapping[JobName, Claim]
    intents: tuple[Intent, ...]
    reservations: tuple[Reservation, ...]
    attempts: Mapping[JobName, int]


class NotLeaderError(Exception):
    """Another control plane leads, until `until`."""

    def __init__(self, holder: str, until: Instant) -> None:
        super().__init__(f"{holder} leads until {until}")
        self.holder = holder
        self.until = until


class ClaimRefusedError(Exception):
    """A device is already held, or too much of it, or the attempt is not the next one. Nothing was changed."""

    def __init__(self, reason: str, devices: tuple[DeviceId, ...] = ()) -> None:
        super().__init__(reason)
        self.devices = devices


StopKind = Literal["", "saves", "leaves", "ends"]
"""What an attempt that holds devices was asked: nothing, to save its work, to end and come back later, to end."""


class JobStanding(NamedTuple):
    """What says in which state a live job is. `promised`: devices are kept for it. `failed`: so did its last attempt."""

    suspended: bool = False
    promised: bool = False
    failed: bool = False
    holds: bool = False
    runs: bool = False
    stop: StopKind = ""


def stop_of(asked: Intent) -> StopKind:
    """What a stop asks of its attempt now."""
    if asked.stage != "ends":
        return "saves"
    return "leaves" if asked.sends_back else "ends"


class LedgerView(Protocol):
    """Which job holds which device, to be read."""

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

    def standings(self) -> dict[JobStanding, int]:
        """How many live jobs stand how. No job is read for it."""


COUNTED_MS: Final = 24 * 3_600_000
"""For how long a change is known. Rounds ask for those of one hour; the rest is for clocks that disagree."""


class Partitionings(Protocol):
    """Changes of GPUs, numbered within each GPU. Claims and changes exclude each other: no job loses what it holds."""

    def begin(self, epoch: Epoch, asked: Repartitioning) -> None:
        """The intent to partition a GPU anew, in place of one that is still in flight, and one change more.

        Its attempt must be one above the GPU's last, and no job hold what would go. Raises ClaimRefusedError, StaleEpochError.
        """

    def end(self, epoch: Epoch, device: DeviceId, attempt: int) -> None:
        """The change is made, or has failed for good: it is not in flight any more. Idempotent. Raises StaleEpochError."""

    def in_flight(self) -> tuple[Repartitioning, ...]:
        """Every change of a GPU that is in flight, sorted by GPU."""

    def last_attempts(self) -> dict[DeviceId, int]:
        """The last attempt of every GPU that was ever to be partitioned anew."""

    def begun_since(self, at: Instant) -> tuple[tuple[DeviceId, Instant], ...]:
        """Which GPUs were asked to be partitioned anew after an instant, and when, the oldest first. Known for COUNTED_MS."""


class Ledger(LedgerView, Protocol):
    """Which job holds which device. Every write carries the writer's epoch and is refused if it is not the newest."""

    @property
    def partitionings(self) -> Partitionings:
        """What GPUs were asked to be partitioned into: of the same state, and written under the same epochs."""

    def lead(self, holder: str, now: Instant, lease: Duration) -> Epoch:
        """Take or renew leadership; a new holder gets a higher epoch. NotLeaderError while another's lease runs.

        `now`: the caller's clock. A ledger that callers reach from several machines goes by its own instead.
        """

    def renew(self, holder: str, now: Instant, lease: Duration) -> bool:
        """Prolong the leader's lease, if that is `holder`, and say whether it is; without effect on any other.

        `now`: as in `lead`.
        """

    def written(self) -> int:
        """Rises with every write to the state that this is part of, by whichever process, but not with those of leases."""

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

    def ask(self, epoch: Epoch, intent: Intent) -> bool:
        """Record an intent (a stop, or a shrink). Asking for the same id again keeps the first.

        One that `evicts` counts as an eviction. Without effect on an attempt that holds nothing, of which False is returned: there
        is nothing left to stop. Raises StaleEpochError.
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

        Returns the claim as it is then, marked with when. It must run, and neither be stopping nor grow already. Raises
        ClaimRefusedError, StaleEpochError.
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

    def keep_time(self, epoch: Epoch, kept: KeptTime) -> None:
        """Where the time of the cluster stands, instead of what was kept before. Raises StaleEpochError."""

    def kept_time(self) -> KeptTime | None:
        """What was kept last; None: nothing was."""

    def keep_clocks(self, epoch: Epoch, clocks: tuple[ConvergenceClock, ...]) -> None:
        """The clocks of limits that are to be kept again, instead of those kept before. Raises StaleEpochError."""

    def clocks(self) -> tuple[ConvergenceClock, ...]:
        """What was kept last; none where nothing was."""
