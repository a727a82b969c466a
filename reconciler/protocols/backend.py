"""The door to whatever runs tasks: `changes(since)` says what is so, `submit` and `partition` ask for something to be so.

Backends are asynchronous: `submit` returning says only that the order was taken, raising says only that it may not have
been, and the outcome is learned by observing. An order names a fact (`start/JOB/ATTEMPT`), so sending it again is harmless.
Every implementation passes tests/contracts/test_backend.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal, NewType, Protocol

from reconciler.model.facts import NodeFacts
from solver.model.cluster import DeviceId, MigInstance, Node, NodeName
from solver.model.document import Document
from solver.model.quantities import Duration, Instant, Memory
from solver.model.workload import JobName, JobSpec, TaskPlacement
from solver.policy.policy import TaskLogs

Epoch = NewType("Epoch", int)
"""Rises with every change of leader; a receiver of orders refuses one older than the newest it has seen."""

Cursor = NewType("Cursor", int)

AttemptKey = tuple[JobName, int]

TaskState = Literal["starting", "running", "succeeded", "failed", "stopped", "lost"]
"""`stopped`: ended because it was told to. `lost`: it is not known how it ended (its node or its supervisor vanished)."""

ENDED: frozenset[TaskState] = frozenset({"succeeded", "failed", "stopped", "lost"})


class StaleEpochError(Exception):
    """The sender is no longer the leader. It must stop acting."""


class BackendUnreachableError(Exception):
    """The order may or may not have arrived. Observe, and send it again if need be."""


class Meeting(Document, frozen=True):
    """Where tasks on several machines meet: the address of each node of the gang, and the port that rank 0 listens on."""

    addresses: dict[NodeName, str]
    port: int


class StartGang(Document, frozen=True, tag_field="order", tag="start"):
    """All tasks of one attempt of a job run on these devices. The attempt number makes it a fact, not an action.

    `watch`: for how long they may do nothing before that matters, so that what they do is watched; None: it is not asked.
    `environment`: what they see beside the job's `env`, and before it. `user`: its submitter. `meeting` None: on one machine.
    `log_max`: what the log of each task may have on disk.
    """

    job: JobName
    attempt: int
    tasks: tuple[TaskPlacement, ...]
    spec: JobSpec
    watch: Duration | None = None
    environment: dict[str, str] = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)
    user: str = ""
    meeting: Meeting | None = None
    log_max: Memory = TaskLogs().max_per_task

    @property
    def id(self) -> str:
        """The name of the fact."""
        return f"start/{self.job}/{self.attempt}"


class StopGang(Document, frozen=True, tag_field="order", tag="stop"):
    """No task of this attempt runs any more: asked to end, and after `grace` made to. An attempt that was stopped never starts."""

    job: JobName
    attempt: int
    grace: Duration

    @property
    def id(self) -> str:
        """The name of the fact."""
        return f"stop/{self.job}/{self.attempt}"


class GrowGang(Document, frozen=True, tag_field="order", tag="grow"):
    """These tasks run too, `beside` the others of an attempt that was started before.

    `growth` counts from 1 within the attempt. A task may have been in it before and have left (StopTasks): with each
    growth that names it, it lives once more.
    """

    job: JobName
    attempt: int
    growth: int
    tasks: tuple[TaskPlacement, ...]
    beside: tuple[TaskPlacement, ...]
    spec: JobSpec
    watch: Duration | None = None
    environment: dict[str, str] = {}  # noqa: RUF012  (as in StartGang)
    user: str = ""
    meeting: Meeting | None = None
    log_max: Memory = TaskLogs().max_per_task

    @property
    def id(self) -> str:
        """The name of the fact."""
        return f"grow/{self.job}/{self.attempt}/{self.growth}"


class StopTasks(Document, frozen=True, tag_field="order", tag="stop-tasks"):
    """These tasks of an attempt don't run any more, as a stop would end them; the others go on.

    What came into the attempt with a growth up to `growth` (0: with its start) ends, or never starts.
    """

    job: JobName
    attempt: int
    growth: int
    tasks: tuple[TaskPlacement, ...]
    grace: Duration

    @property
    def id(self) -> str:
        """The name of the fact."""
        return f"shrink/{self.job}/{self.attempt}/{self.growth}"


TellReason = Literal["checkpoint", "time-limit", "dump"]
"""Save your work; your time is over at `until`; let your supervisor write down what it sees of you."""


class TellGang(Document, frozen=True, tag_field="order", tag="tell"):
    """Every task of an attempt that lives has been told for what reason, and until when, to do something: at most once.

    `number` counts from 1 within the attempt: an order that is older than the newest that came is not done any more.
    It is for the tasks that were ordered before it came, also those that are yet to begin; a task that joins later is not told, and
    of an attempt with its start still to come, none. TaskStatus.told says which have been. `signal`, such as SIGUSR1, is sent too.
    """

    job: JobName
    attempt: int
    number: int
    reason: TellReason
    until: Instant
    signal: str = ""

    @property
    def id(self) -> str:
        """The name of the fact."""
        return f"tell/{self.job}/{self.attempt}/{self.number}"


class Unstartable(Document, frozen=True):
    """Why no task of a job could begin where it would run: `code` for programs, `message` and `fix` for people."""

    code: str
    message: str
    fix: str


class PartitionGpu(Document, frozen=True):
    """GPU `device` has exactly these MIG instances; None: it is whole, and not in MIG mode.

    `attempt` counts from 1 within the GPU: an order that is older than one that was done is not done any more. What a task
    uses is never taken from it: then the order is refused.
    """

    node: NodeName
    device: DeviceId
    attempt: int
    instances: tuple[MigInstance, ...] | None

    @property
    def id(self) -> str:
        """The name of the fact."""
        return f"partition/{self.device}/{self.attempt}"


Order = StartGang | StopGang | GrowGang | StopTasks | TellGang


class Activity(Document, frozen=True):
    """What was seen of a task: it last did something at `active_at`, and is known to have done nothing from then until `seen_at`.

    Nothing is said of the time after that. All are read off one clock. To do something is to use a CPU, or to be typed to
    (`typed_at`); when it wrote to its log, `logged_at`, stands apart. Both None: it is not told, and then writing counts, too.
    """

    active_at: Instant
    seen_at: Instant
    typed_at: Instant | None = None
    logged_at: Instant | None = None


class Progress(Document, frozen=True):
    """What a task says of its own work: the last `step` that it has done, how many it does in a second, and when it said so.

    `flops`, `tokens`: in a second, floating point operations that its model needs, and tokens; 0: it does not say.
    """

    step: int
    rate: float
    at: Instant
    flops: float = 0.0
    tokens: float = 0.0


class MemoryUse(Document, frozen=True):
    """The most memory that a task had at any look, all its processes together; `limit`: what its shape asks for, 0: nothing.

    `exceeded`: it was ended because it had more than that.
    """

    peak: Memory
    limit: Memory = Memory(0)
    exceeded: bool = False


class TaskStatus(Document, frozen=True):
    """How one task of one attempt stands, and has stood since `at`; `growth` with which it came (0: the start).

    A later growth may let a task that has left begin again; nothing else does. `activity` is of a running task whose order
    says that it is watched; None: the backend can't say what it does. `progress` and `memory` are None where nothing is known.
    `told`: the number of the newest TellGang that it was told; 0: none.
    """

    job: JobName
    attempt: int
    group: str
    index: int
    node: NodeName
    state: TaskState
    at: Instant
    exit_code: int | None = None
    detail: str = ""
    growth: int = 0
    activity: Activity | None = None
    progress: Progress | None = None
    memory: MemoryUse | None = None
    told: int = 0


class TaskLeft(Document, frozen=True):
    """A task was told to leave and has: nothing of it runs, nor will, that came with a growth up to `growth`."""

    job: JobName
    attempt: int
    group: str
    index: int
    growth: int
    at: Instant


class AttemptStopped(Document, frozen=True):
    """A stop order is done: none of this attempt's tasks runs or will ever run, whether any had started or not."""

    job: JobName
    attempt: int
    at: Instant


class GpuPartitioned(Document, frozen=True):
    """An order to partition a GPU is done, or `refused` says why it is not, and will not be.

    `instances`: what the GPU has at `at`. Its node is reported no later than this with what it then has.
    """

    device: DeviceId
    attempt: int
    at: Instant
    instances: tuple[MigInstance, ...] | None
    refused: str = ""


class BackendChanges(Document, frozen=True):
    """What changed after a cursor. From cursor 0: everything the backend knows. May be late, never contradicts itself."""

    cursor: Cursor
    nodes: tuple[Node, ...] = ()
    tasks: tuple[TaskStatus, ...] = ()
    stopped: tuple[AttemptStopped, ...] = ()
    left: tuple[TaskLeft, ...] = ()
    partitioned: tuple[GpuPartitioned, ...] = ()
    facts: tuple[NodeFacts, ...] = ()


class Backend(Protocol):
    """Whatever runs tasks: local processes, agents, Kubernetes, or a simulation."""

    def changes(self, since: Cursor) -> BackendChanges:
        """What changed after `since`. Raises BackendUnreachableError."""

    def submit(self, order: Order, epoch: Epoch) -> None:
        """Ask for a fact. Raises StaleEpochError (refused for good) or BackendUnreachableError (outcome unknown)."""

    def partition(self, order: PartitionGpu, epoch: Epoch) -> None:
        """Ask for a GPU to be partitioned so. Raises StaleEpochError or BackendUnreachableError, as `submit` does."""

    def forget(self, job: JobName, attempt: int, epoch: Epoch) -> None:
        """The control plane has recorded how this attempt ended; `changes` need not report it again. Logs stay."""

    def forget_all(self, over: Collection[AttemptKey], epoch: Epoch) -> Mapping[AttemptKey, str]:
        """The same of many, and waits once for all answers; returns those of which it is not known, and why."""


LOOK_EVERY_MS = 200, 30_000
LOOKS_PER_WATCH = 20
"""A watcher of what tasks do looks so often within the time that matters, with no shorter and no longer rests than these."""


def look_every(watch: Duration) -> Duration:
    """How long to rest between two looks at what a task does: so much later than it should a limit may be noticed."""
    shortest, longest = LOOK_EVERY_MS
    return Duration(max(shortest, min(longest, watch // LOOKS_PER_WATCH)))


def forget_each(
    forget: Callable[[JobName, int, Epoch], None], over: Iterable[AttemptKey], epoch: Epoch
) -> dict[AttemptKey, str]:
    """`forget_all` of a backend that does not wait: one after the other, and what was unreachable is returned."""
    unknown = {}
    for job, attempt in over:
        try:
            forget(job, attempt, epoch)
        except BackendUnreachableError as why:
            unknown[job, attempt] = str(why)
    return unknown
