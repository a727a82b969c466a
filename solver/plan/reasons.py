"""Why a job waits or can't be admitted: typed, with numbers in fields; words are made from them at the end.

The codes are stable: programs and alert rules key on them. docs/reasons.md explains each.
"""

from __future__ import annotations

from solver.plan.mig_reasons import MigGeometry, MigHasNoPeers, NotPartitioned, UnknownMigProfile
from solver.plan.reason import Reason, at, did_you_mean
from solver.world.cluster import GpuType, Level
from solver.world.quantities import Cpu, Memory, MilliGpu
from solver.world.workload import JobName, QueueName


class QuotaMax(Reason, frozen=True, tag="quota-max"):
    """A queue on the job's path would go above its max."""

    queue: QueueName
    gpu_type: GpuType
    max: MilliGpu
    used: MilliGpu
    wanted: MilliGpu
    origin: str = ""

    def __str__(self) -> str:
        held = f"holds {self.used} of max {self.max} {self.gpu_type}{at(self.origin)}"
        return f"queue {self.queue} {held}; this job needs {self.wanted}"


class UserMax(Reason, frozen=True, tag="user-max"):
    """The job's user would hold more than one user may, in a queue on the job's path. `used` is that user's use there."""

    user: str
    queue: QueueName
    gpu_type: GpuType
    max: MilliGpu
    used: MilliGpu
    wanted: MilliGpu
    origin: str = ""

    def __str__(self) -> str:
        return (
            f"user {self.user or '(none)'} holds {self.used} of at most {self.max} {self.gpu_type} per user "
            f"in queue {self.queue}{at(self.origin)}; this job needs {self.wanted}"
        )


class Held(Reason, frozen=True, tag="held"):
    """A queue on the job's path starts no more jobs."""

    queue: QueueName
    origin: str = ""

    def __str__(self) -> str:
        return f"queue {self.queue} is on hold{at(self.origin)} and starts no jobs"


class Capacity(Reason, frozen=True, tag="capacity"):
    """Fewer GPUs of the type are free than the gang needs."""

    gpu_type: GpuType
    free: MilliGpu
    wanted: MilliGpu

    def __str__(self) -> str:
        return f"needs {self.wanted} {self.gpu_type}, {self.free} free"


class NoRoom(Reason, frozen=True, tag="no-room"):
    """Enough GPUs are free, but scattered: too few nodes can take a task of this shape."""

    group: str
    gpu_type: GpuType
    tasks: int
    gpus_per_task: MilliGpu
    tasks_that_fit: int

    def __str__(self) -> str:
        return (
            f"group {self.group} needs room for {self.tasks} x {self.gpus_per_task} {self.gpu_type}, "
            f"room for {self.tasks_that_fit}: the free GPUs are scattered"
        )


class HostResources(Reason, frozen=True, tag="host-resources"):
    """GPUs would do, but CPU or memory beside them does not."""

    group: str
    gpu_type: GpuType
    cpu: Cpu
    memory: Memory
    tasks: int
    tasks_that_fit: int

    def __str__(self) -> str:
        return (
            f"group {self.group} needs {self.cpu} cores and {self.memory or 0} memory beside each task's GPUs; "
            f"{self.tasks_that_fit} of {self.tasks} tasks fit on {self.gpu_type or 'CPU-only'} nodes"
        )


class Topology(Reason, frozen=True, tag="topology"):
    """No single domain of the required level has room for the whole gang."""

    level: Level
    wanted: MilliGpu
    best_domain: str
    best_free: MilliGpu

    def __str__(self) -> str:
        return f"needs {self.wanted} GPUs in one {self.level}; the roomiest is {self.best_domain} with {self.best_free} free"


class Outranked(Reason, frozen=True, tag="outranked"):
    """It would fit now, but jobs that come before it start in this round and take the room."""

    ahead: tuple[JobName, ...]
    more: int = 0

    def __str__(self) -> str:
        rest = f" and {self.more} more" if self.more else ""
        return f"jobs that come before it take the room: {', '.join(self.ahead)}{rest}"


class RoundCutShort(Reason, frozen=True, tag="round-cut-short"):
    """It fits and nothing outranks it: the round ran out of its budget before it found the place."""

    stage: str

    def __str__(self) -> str:
        return f"the round was decided by {self.stage} before a place was found; the next round tries again"


class UnknownQueue(Reason, frozen=True, tag="unknown-queue"):
    """The policy has no such queue, or it is not a leaf."""

    queue: QueueName
    nearest: tuple[str, ...] = ()
    children: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.children:
            return f"queue {self.queue} has queues below it; submit to one of {', '.join(self.children)}"
        return f"there is no queue {self.queue}{did_you_mean(self.nearest)}"


class UnknownPriorityClass(Reason, frozen=True, tag="unknown-priority-class"):
    """The policy has no such priority class."""

    priority_class: str
    nearest: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"there is no priority class {self.priority_class}{did_you_mean(self.nearest)}"


class ClassNotAllowed(Reason, frozen=True, tag="class-not-allowed"):
    """A queue on the job's path does not take jobs of this priority class; the empty name is a job without one."""

    priority_class: str
    queue: QueueName
    allowed: tuple[str, ...]
    origin: str = ""

    def __str__(self) -> str:
        what = f"priority class {self.priority_class}" if self.priority_class else "jobs without a priority class"
        return f"queue {self.queue} does not take {what}, only {', '.join(self.allowed)}{at(self.origin)}"


class UnknownGpuType(Reason, frozen=True, tag="unknown-gpu-type"):
    """None of the GPU types a task group accepts is in the cluster."""

    group: str
    gpu_types: tuple[GpuType, ...]
    known: tuple[GpuType, ...] = ()

    def __str__(self) -> str:
        known = f"; the cluster has {', '.join(self.known)}" if self.known else ""
        return f"group {self.group} accepts only {', '.join(self.gpu_types)}{known}"


class NotShared(Reason, frozen=True, tag="not-shared"):
    """The group asks for a part of a GPU, and no pool of the type may share its GPUs with a job of this class."""

    group: str
    gpu_type: GpuType

    def __str__(self) -> str:
        return f"group {self.group} asks for a part of a GPU; no SharingPolicy lets it share a {self.gpu_type}"


class GpuTooSmall(Reason, frozen=True, tag="gpu-too-small"):
    """The group asks for more GPU memory than one GPU of the type has. `known` false: the pools do not say how much that is."""

    group: str
    gpu_type: GpuType
    wanted: Memory
    known: bool = True

    def __str__(self) -> str:
        has = "has less" if self.known else "has an unknown amount: its NodePool does not declare gpuMemory"
        return f"group {self.group} asks for {self.wanted} of GPU memory; a {self.gpu_type} {has}"


class AboveMax(Reason, frozen=True, tag="above-max"):
    """The gang is larger than a queue on its path may ever hold."""

    queue: QueueName
    gpu_type: GpuType
    max: MilliGpu
    wanted: MilliGpu
    origin: str = ""

    def __str__(self) -> str:
        return f"needs {self.wanted} {self.gpu_type}; queue {self.queue} may never hold more than {self.max}{at(self.origin)}"


class AboveUserMax(Reason, frozen=True, tag="above-user-max"):
    """The gang is larger than what one user may ever hold in a queue on its path."""

    queue: QueueName
    gpu_type: GpuType
    max: MilliGpu
    wanted: MilliGpu
    origin: str = ""

    def __str__(self) -> str:
        cap = f"one user may never hold more than {self.max} in queue {self.queue}{at(self.origin)}"
        return f"needs {self.wanted} {self.gpu_type}; {cap}"


class NeverFits(Reason, frozen=True, tag="never-fits"):
    """The gang does not fit the cluster even when it is empty. `largest_task`: most GPUs that one node offers a task.

    `profile`: the MIG profile that each task asks for.
    """

    group: str
    gpu_type: GpuType
    tasks: int
    gpus_per_task: MilliGpu
    tasks_that_fit: int
    largest_task: MilliGpu
    level: Level | None = None
    profile: str = ""

    def __str__(self) -> str:
        wanted = f"{self.tasks} x {self.gpus_per_task} {self.gpu_type}" if self.gpu_type else f"{self.tasks} tasks"
        where = f"one {self.level} of the empty cluster" if self.level else "the empty cluster"
        if self.profile:
            wanted = f"{self.tasks} x {self.profile} of {self.gpu_type}"
        elif self.gpus_per_task > self.largest_task:
            return f"group {self.group} needs {wanted}; the largest node has {self.largest_task}"
        return f"group {self.group} needs {wanted}; {where} has room for {self.tasks_that_fit} such tasks"


AnyReason = (
    QuotaMax
    | UserMax
    | Held
    | Capacity
    | NoRoom
    | HostResources
    | Topology
    | Outranked
    | RoundCutShort
    | UnknownQueue
    | UnknownPriorityClass
    | ClassNotAllowed
    | UnknownGpuType
    | NotShared
    | GpuTooSmall
    | NotPartitioned
    | UnknownMigProfile
    | MigHasNoPeers
    | MigGeometry
    | AboveMax
    | AboveUserMax
    | NeverFits
)
