"""Jobs: what is asked for (the spec), and where it stands (phase, placement)."""

from __future__ import annotations

from typing import Literal, NewType

from solver.world.cluster import DeviceId, GpuType, Level, NodeName, SpreadLevel
from solver.world.document import Document
from solver.world.quantities import Cpu, Duration, Instant, Memory

JobName = NewType("JobName", str)
QueueName = NewType("QueueName", str)

Phase = Literal["pending", "starting", "running", "stopping"]
"""Only live jobs are in a snapshot. `starting` and `stopping` hold their devices until the backend confirms."""


class Shape(Document, frozen=True):
    """What one task needs. `gpu_types` in order of preference; empty means any type."""

    gpus: int = 0
    gpu_types: tuple[GpuType, ...] = ()
    cpu: Cpu = Cpu(0)
    memory: Memory = Memory(0)


class Bundle(Document, frozen=True):
    """Each `tasks` consecutive tasks of a group, counted from index 0, lie in one domain of a level; the last may be fewer."""

    tasks: int
    within: Level


class Spread(Document, frozen=True):
    """At most `max_per_domain` tasks in each domain of a level; `node` is a host."""

    level: SpreadLevel
    max_per_domain: int


class GroupTopology(Document, frozen=True):
    """What one task group asks for by itself. `required`: all its tasks in one domain; `group`: the same for its bundles."""

    required: Level | None = None
    group: Bundle | None = None
    spread: Spread | None = None


class TaskGroup(Document, frozen=True):
    """Tasks of one role: `replicas` copies of one shape, or as few as `min_replicas`. All of them use one GPU type."""

    name: str
    replicas: int
    shape: Shape
    command: tuple[str, ...] = ()
    min_replicas: int | None = None
    topology: GroupTopology = GroupTopology()

    @property
    def least(self) -> int:
        """Tasks without which the gang does not start."""
        return self.replicas if self.min_replicas is None else self.min_replicas


class TopologyRequest(Document, frozen=True):
    """`required`: all tasks of the job in one domain of that level, or it waits. `preferred`: tried for, never waited for.

    `group`: how the tasks of each group are bundled that does not say it itself. `spread` counts the tasks of all groups.
    """

    required: Level | None = None
    preferred: Level | None = None
    group: Bundle | None = None
    spread: Spread | None = None


class Checkpoint(Document, frozen=True):
    """How often a job saves its work, and how long it needs to save it once more when it is asked to leave."""

    interval: Duration
    grace: Duration | None = None


class JobSpec(Document, frozen=True):
    """The `spec` of a Job document.

    `time_limit`: the longest all of its tasks may run; None: what its class says. `checkpoint` None: it saves nothing.
    """

    queue: QueueName
    task_groups: tuple[TaskGroup, ...]
    priority_class: str = ""
    topology: TopologyRequest = TopologyRequest()
    time_limit: Duration | None = None
    checkpoint: Checkpoint | None = None
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)

    @property
    def gpus(self) -> int:
        """GPUs of the whole gang, an elastic one at its full size."""
        return sum(group.replicas * group.shape.gpus for group in self.task_groups)

    @property
    def least_gpus(self) -> int:
        """GPUs without which the gang does not start."""
        return sum(group.least * group.shape.gpus for group in self.task_groups)

    @property
    def tasks(self) -> int:
        """Tasks of the whole gang, an elastic one at its full size."""
        return sum(group.replicas for group in self.task_groups)

    @property
    def effective_topology(self) -> TopologyRequest:
        """What the topology request demands in fact: a single task is in one domain of any level by itself."""
        return TopologyRequest() if self.tasks == 1 else self.topology

    def bundle_of(self, group: TaskGroup) -> Bundle | None:
        """How the tasks of a group are bundled; None: they are not."""
        if group.topology.required:
            return Bundle(group.replicas, group.topology.required)
        return group.topology.group or self.topology.group


class TaskPlacement(Document, frozen=True):
    """Where one task of a gang runs. `index` counts within its group."""

    group: str
    index: int
    node: NodeName
    devices: tuple[DeviceId, ...] = ()


class Job(Document, frozen=True):
    """A live job in a snapshot. `attempt` counts starts: it rises by one each time the gang is bound.

    `time_limit` is what this attempt was bound under; None: it may run for ever, or is not bound. `evicted_at`: when it
    was evicted, the oldest first.
    `served_gpu_ms`: GPU-milliseconds that its ended attempts have run.
    """

    name: JobName
    submitted_at: Instant
    spec: JobSpec
    user: str = ""
    phase: Phase = "pending"
    attempt: int = 0
    started_at: Instant | None = None
    placement: tuple[TaskPlacement, ...] = ()
    time_limit: Duration | None = None
    evicted_at: tuple[Instant, ...] = ()
    served_gpu_ms: int = 0
