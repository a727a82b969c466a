"""Why a job can never start under this policy on this cluster: typed, with numbers in fields, as all reasons are."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Literal

from solver.model.amounts import amount_in_words, in_words
from solver.model.cluster import GpuType, Level
from solver.model.document import Document
from solver.model.quantities import Cpu, Memory, MilliGpu
from solver.model.workload import QueueName
from solver.plan.reason import (
    HostResource,
    Reason,
    among,
    at,
    beside_gpus,
    count,
    did_you_mean,
    gpus_each,
    instances,
    some_of,
)
from solver.plan.words import with_article


def _listed(names: tuple[str, ...]) -> str:
    return f"{'is' if len(names) == 1 else 'are'} {', '.join(names)}"


class UnknownName(Reason, frozen=True, tag="unknown-name"):
    """The job names something that does not exist: a queue, a priority class, GPU types none of which is there, a MIG profile,
    data that are nowhere.

    `nearest`: what exists and is near it, or all there is of few. `children`: the leaves of a queue that takes no jobs itself.
    `group` asks for it, `of` a GPU type that has no such profile.
    """

    what: Literal["queue", "priority-class", "gpu-type", "mig-profile", "data"]
    names: tuple[str, ...]
    nearest: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    group: str = ""
    of: str = ""

    def __str__(self) -> str:
        named = ", ".join(self.names)
        if self.what == "gpu-type":
            known = f"the cluster has {', '.join(self.nearest)}" if self.nearest else "the cluster has no GPUs"
            return f"group {self.group} {f'accepts only {named}' if named else 'needs GPUs'}; {known}"
        if self.what == "mig-profile":
            lacks = f"{with_article(self.of)} does not have{did_you_mean(self.nearest)}"
            return f"group {self.group} asks for {with_article(named)}, which {lacks}"
        if self.children:
            return f"queue {named} has queues below it; submit to one of {', '.join(self.children)}"
        is_near = bool(get_close_matches(named, self.nearest))
        instead = did_you_mean(self.nearest) if is_near or not self.nearest else f"; there {_listed(self.nearest)}"
        return f"there is no {self.what.replace('-', ' ')} {named}{instead}"


class ClassNotAllowed(Reason, frozen=True, tag="class-not-allowed"):
    """A queue on the job's path does not take jobs of this priority class; the empty name is a job without one."""

    priority_class: str
    queue: QueueName
    allowed: tuple[str, ...]
    origin: str = ""

    def __str__(self) -> str:
        what = f"priority class {self.priority_class}" if self.priority_class else "jobs without a priority class"
        return f"queue {self.queue} does not take {what}, only {', '.join(self.allowed)}{at(self.origin)}"


class NamespaceNotAllowed(Reason, frozen=True, tag="namespace-not-allowed"):
    """Jobs of a Kubernetes namespace may not be in this queue, or not with this class.

    `why`: other-queues list the namespace, `allowed`; the closed-queue, or one above it, lists other namespaces; no queue lists it,
    which is refused (unlisted); or the queue lists it, for other `classes` alone. The empty class is a job without one.
    """

    namespace: str
    queue: QueueName
    why: Literal["other-queues", "closed-queue", "unlisted", "class"]
    allowed: tuple[QueueName, ...] = ()
    priority_class: str = ""
    classes: tuple[str, ...] = ()
    origin: str = ""

    def __str__(self) -> str:
        return f"{self._said()}{at(self.origin)}"

    def _said(self) -> str:
        match self.why:
            case "other-queues":
                return f"namespace {self.namespace} may not use queue {self.queue}, only {some_of(self.allowed)}"
            case "closed-queue":
                return f"queue {self.queue} is open to listed namespaces alone, and {self.namespace} is not among them"
            case "unlisted":
                return f"no queue lists namespace {self.namespace}, and such namespaces may use none"
            case "class":
                what = (
                    f"priority class {self.priority_class}" if self.priority_class else "jobs without a priority class"
                )
                only = ", ".join(self.classes)
                return f"namespace {self.namespace} may not use queue {self.queue} for {what}, only for {only}"


class NotDivided(Reason, frozen=True, tag="not-divided"):
    """The group asks for a part of a GPU, and the policy divides none of the type for it: by sharing, or by MIG."""

    group: str
    gpu_type: GpuType
    by: Literal["sharing", "mig"]

    def __str__(self) -> str:
        if self.by == "mig":
            return f"group {self.group} asks for a MIG instance; no MigGeometry lets {with_article(self.gpu_type)} be partitioned"
        return (
            f"group {self.group} asks for a part of a GPU; no SharingPolicy lets it share {with_article(self.gpu_type)}"
        )


class GpuTooSmall(Reason, frozen=True, tag="gpu-too-small"):
    """The group asks for more GPU memory than one GPU of the type has. `known` false: the pools do not say how much that is.

    `has`: how much it is; 0: it is not said here. `least`: each of its GPUs is to have as much as is `wanted` altogether, and
    none of a type that it accepts has; `others` are types that it does not accept and that have as much.
    """

    group: str
    gpu_type: GpuType
    wanted: Memory
    known: bool = True
    has: Memory = Memory(0)
    least: bool = False
    others: tuple[GpuType, ...] = ()

    def __str__(self) -> str:
        has = (
            f"has {self.has or 'less'}"
            if self.known
            else "has an unknown amount: its NodePool does not declare gpuMemory"
        )
        asks = f"needs GPUs with at least {self.wanted} each" if self.least else f"asks for {self.wanted} of GPU memory"
        return f"group {self.group} {asks}; {with_article(self.gpu_type)} {has}"


class AboveMax(Reason, frozen=True, tag="above-max"):
    """The gang is larger than a queue on its path may ever hold, `per_user` than one user may, or than others have ever `lent`."""

    queue: QueueName
    gpu_type: GpuType
    max: MilliGpu
    wanted: MilliGpu
    origin: str = ""
    per_user: bool = False
    lent: bool = False

    def __str__(self) -> str:
        cap = f"queue {self.queue} may never hold more than {self.max}{at(self.origin)}"
        if self.per_user:
            cap = f"one user may never hold more than {self.max} in queue {self.queue}{at(self.origin)}"
        elif self.lent:
            cap = f"no more than {self.max} are ever lent, since queue {self.queue} keeps some back{at(self.origin)}"
        return f"needs {self.wanted} {self.gpu_type}; {cap}"


class TooLittleHost(Document, frozen=True):
    """CPU and memory that one task asks for, and that no node has for it even when it is empty.

    `largest_cpu`, `largest_memory`: the most that a node has of each. `lacking`: of which of the two no node has enough; (): of
    neither, but none has both together, and the GPUs.
    """

    cpu: Cpu
    memory: Memory
    largest_cpu: Cpu
    largest_memory: Memory
    lacking: tuple[HostResource, ...] = ()

    @property
    def needs(self) -> str:
        """What a task asks for, of what is lacking."""
        return self._of(self.cpu, self.memory)

    @property
    def largest(self) -> str:
        """The most that a node has, of what is lacking."""
        return self._of(self.largest_cpu, self.largest_memory)

    def found(self, gpu_type: GpuType, node_set: str) -> str:
        """What nodes have, in words."""
        node = f"node that it may be on ({node_set})" if node_set else f"node with {gpu_type}" if gpu_type else "node"
        return f"the largest {node} has {self.largest}" if self.lacking else f"no {node} has all of that"

    def _of(self, cpu: Cpu, memory: Memory) -> str:
        is_meant = self.lacking or ("cpu", "memory")
        return beside_gpus(cpu if "cpu" in is_meant else Cpu(0), memory if "memory" in is_meant else Memory(0))


class TooLittleResource(Document, frozen=True):
    """One of the other resources of nodes, of which no node has as much as one task takes, even when it is empty."""

    name: str
    wanted: int
    largest: int


class NeverFits(Reason, frozen=True, tag="never-fits"):
    """The gang does not fit the cluster even when it is empty. `largest_task`: most GPUs that one node offers a task.

    `profile`: the MIG profile that each task asks for, `devices` times; "": it is no MIG instance, and `devices` are the GPUs of
    which it wants a part. `node_set`: the only nodes that its tasks may be on, if it is limited.
    `host`: where no node has the CPU and memory that one task asks for; `resource`: or not so much of another resource.
    `beside`: the groups with which it has to be together in one domain of the level. `per_bundle`: not all of its tasks have to be
    in one domain of the level, but each so many; 0: no bundle is in the way.
    """

    group: str
    gpu_type: GpuType
    tasks: int
    gpus_per_task: MilliGpu
    tasks_that_fit: int
    largest_task: MilliGpu
    level: Level | None = None
    profile: str = ""
    node_set: str = ""
    nodes_allowed: int = 0
    host: TooLittleHost | None = None
    resource: TooLittleResource | None = None
    beside: tuple[str, ...] = ()
    devices: int = 1
    per_bundle: int = 0

    def __str__(self) -> str:
        there = among(self.node_set, self.nodes_allowed)
        if self.host:
            return f"group {self.group} needs {self.host.needs} for each task; {self.host.found(self.gpu_type, self.node_set)}"
        if self.resource:
            most = f"the most that a node has is {amount_in_words(self.resource.largest)}{there}"
            return (
                f"group {self.group} needs {in_words(self.resource.name, self.resource.wanted)} for each task; {most}"
            )
        each = gpus_each(self.gpus_per_task, self.gpu_type, self.devices)
        wanted = f"{self.tasks} x {each}" if self.gpu_type else count(self.tasks, "task")
        bundle = f" with each {self.per_bundle} in one {self.level}" if self.per_bundle else ""
        where = f"one {self.level} of the empty cluster" if self.level and not bundle else "the empty cluster"
        if self.profile:
            many = f"{self.tasks} x" if self.devices == 1 else f"{count(self.tasks, 'task')} on"
            wanted = f"{many} {instances(self.profile, self.devices)} of {self.gpu_type}"
        elif self.is_task_too_large:
            return f"group {self.group} needs {wanted}; the largest node has {self.largest_task}{there}"
        if self.beside:
            others = f"group{'s' if len(self.beside) > 1 else ''} {' and '.join(self.beside)}"
            room = "none of the empty cluster has room for all"
            return f"group {self.group} needs {wanted} in one {self.level} with {others}; {room}"
        room = f"{where} has room for {count(self.tasks_that_fit, 'such task')}{there}"
        return f"group {self.group} needs {wanted}{bundle}; {room}"

    @property
    def is_task_too_large(self) -> bool:
        """Whether no node has the GPUs of one task: as many whole ones, or as many different ones of which it wants a part."""
        needed = max(self.gpus_per_task, MilliGpu.gpus(self.devices if self.gpus_per_task else 0))
        return not self.profile and needed > self.largest_task
