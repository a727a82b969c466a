"""What is in flight: asked for but not confirmed, promised, counted, or ticking.

A round must not contradict its predecessors, and it remembers nothing; so all of this is part of the snapshot.
Nothing else influences a round, which is what makes replay possible.
"""

from __future__ import annotations

from typing import Literal

from solver.model.cluster import DeviceId, GpuType, MigInstance, NodeName
from solver.model.document import Document
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.workload import JobName, QueueName, TaskPlacement

IntentKind = Literal["start", "stop", "nominate", "shrink", "grow"]

StopPurpose = Literal["end", "cull", "stuck", "evict", "suspend", "requeue"]
"""Why a gang is to stop: `end`, and `cull` for having been idle, are for good; `stuck` is a failure.
`evict`: others need what it holds, or a limit says so; `suspend` and `requeue`: a person says so; `requeue` also where what it
runs on is not well."""

StopStage = Literal["waits-to-save", "saves", "ends"]
"""How far a stop is: it waits until its storage can take one more checkpoint, has been told to save its work, or to end."""


class Intent(Document, frozen=True):
    """One thing asked of the backend, with its outcome not known yet.

    The id (`start/JOB/ATTEMPT`) names the fact to make true, so that asking twice is harmless. A `stop` has a `purpose` and a
    `stage`, reached at `staged_at` (None: when it was asked); one that evicts may have a `beneficiary`.
    `nominate` promises a waiting job the devices that evictions free for it, or a job that moves those that it goes on with.
    `shrink` and `grow` are of some `tasks` of a running gang, which leave or join it.
    """

    kind: IntentKind
    job: JobName
    attempt: int
    asked_at: Instant
    deadline: Instant
    tasks: tuple[TaskPlacement, ...] = ()
    beneficiary: JobName | None = None
    purpose: StopPurpose = "end"
    stage: StopStage = "ends"
    staged_at: Instant | None = None

    @property
    def evicts(self) -> bool:
        """It sends a job back to its queue because a round said so."""
        return self.purpose == "evict"

    @property
    def sends_back(self) -> bool:
        """What ends by it has not ended for good: the job goes on later."""
        return self.purpose in ("evict", "suspend", "requeue")

    @property
    def id(self) -> str:
        """The name of the fact this intent makes true."""
        return f"{self.kind}/{self.job}/{self.attempt}"


_DECLARED = "reservation:"
"""No name of a job has a colon."""


def declared_holder(name: str) -> JobName:
    """The holder for which the devices of a Reservation document are kept, as if it were a job."""
    return JobName(f"{_DECLARED}{name}")


def declared_name(holder: JobName) -> str | None:
    """The Reservation document for which something is kept; None: it is kept for a gang."""
    return holder.removeprefix(_DECLARED) if holder.startswith(_DECLARED) else None


class Reservation(Document, frozen=True):
    """The devices kept from `start` for the waiting gang `holder`, for as long as it may run; `until` None: for ever.

    Before `start` others may use them, if they will have ended by then. `holder` may stand for a Reservation document
    (`declared_holder`): then they are kept until `until` from all jobs that may not use them, and its tasks only say where.
    """

    holder: JobName
    tasks: tuple[TaskPlacement, ...]
    start: Instant
    until: Instant | None = None

    @property
    def is_declared(self) -> bool:
        """Whether a document in Git says so."""
        return declared_name(self.holder) is not None

    def is_over(self, now: Instant) -> bool:
        """Whether a document keeps nothing more."""
        return self.is_declared and self.until is not None and self.until <= now


class Repartitioning(Document, frozen=True):
    """A GPU that was asked to have exactly these MIG instances (None: to be whole), and has not confirmed it.

    Numbered by `attempt` within the GPU; a backend executes no order that is older than one it has done. Once the deadline
    is over, it is not known what the GPU is partitioned into, and nothing new is placed on it.
    """

    node: NodeName
    device: DeviceId
    attempt: int
    asked_at: Instant
    deadline: Instant
    instances: tuple[MigInstance, ...] | None = None

    @property
    def id(self) -> str:
        """The name of the fact this makes true."""
        return f"partition/{self.device}/{self.attempt}"


class AgingBand(Document, frozen=True):
    """The band of order a waiting job has reached, and when it entered it."""

    job: JobName
    band: int
    since: Instant


class Usage(Document, frozen=True):
    """Decayed past use of a queue, in GPU-hours of one type. It orders; it never makes anything lawful."""

    queue: QueueName
    gpu_type: GpuType
    gpu_hours: float


class DurationQuantile(Document, frozen=True):
    """How long jobs of a queue and class (as they name it) have run: the `quantile` of history, for those without a time limit."""

    queue: QueueName
    priority_class: str
    quantile: float
    duration: Duration


class Ended(Document, frozen=True):
    """A job that is no more: of which size, in milli-GPU, how long it has run in all its attempts, and the class that it named."""

    queue: QueueName
    gpus: MilliGpu
    submitted_at: Instant
    job: JobName
    ran: Duration
    priority_class: str = ""


class Counter(Document, frozen=True):
    """Something limited per window: `evictions` of a job per day, `mig-changes` of a pool per hour."""

    name: str
    subject: str
    window_start: Instant
    count: int


HostResource = Literal["cpu", "memory"]


class ConvergenceClock(Document, frozen=True):
    """When a `max` that commit `commit` set below what was held must be kept, as far as jobs may be made to leave for it.

    With a `resource` it is one of CPU, in milli-cores, or of memory, in bytes: `amount`; then there is no type, and `limit` is 0.
    """

    commit: str
    queue: QueueName
    gpu_type: GpuType
    limit: MilliGpu
    deadline: Instant
    resource: HostResource | None = None
    amount: int = 0

    @property
    def most(self) -> int:
        """What may be held: milli-GPU, milli-cores or bytes."""
        return int(self.limit) if self.resource is None else self.amount

    @property
    def told(self) -> str:
        """The same, as it is written, and of what."""
        if self.resource is None:
            return f"{self.limit} {self.gpu_type}"
        return f"{Cpu(self.amount)} cores" if self.resource == "cpu" else f"{Memory(self.amount)} of memory"


class InFlight(Document, frozen=True):
    """Everything a round must know beside nodes, jobs and policy. Every tuple is sorted."""

    intents: tuple[Intent, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    aging: tuple[AgingBand, ...] = ()
    usage: tuple[Usage, ...] = ()
    durations: tuple[DurationQuantile, ...] = ()
    history: tuple[Ended, ...] = ()
    counters: tuple[Counter, ...] = ()
    convergence: tuple[ConvergenceClock, ...] = ()
    repartitions: tuple[Repartitioning, ...] = ()

    @property
    def nominations(self) -> tuple[Intent, ...]:
        """What waiting jobs have been promised."""
        return tuple(intent for intent in self.intents if intent.kind == "nominate")

    @property
    def evictions(self) -> tuple[Intent, ...]:
        """Jobs that have been asked to leave, to wait again."""
        return tuple(intent for intent in self.intents if intent.evicts)
