"""Jobs: what is asked for (the spec), and where it stands (phase, placement)."""

from __future__ import annotations

from typing import Literal, NewType

from solver.world.cluster import DeviceId, GpuType, Level, NodeName
from solver.world.document import Document
from solver.world.quantities import Cpu, Duration, Instant, Memory, MilliGpu

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


class TaskGroup(Document, frozen=True):
    """Tasks of one role: `replicas` copies of one shape. All of them use one GPU type."""

    name: str
    replicas: int
    shape: Shape
    command: tuple[str, ...] = ()


class TopologyRequest(Document, frozen=True):
    """`required`: all tasks of the job in one domain of that level, or it waits. `preferred`: tried for, never waited for."""

    required: Level | None = None
    preferred: Level | None = None


class JobSpec(Document, frozen=True):
    """The `spec` of a Job document. `time_limit`: the longest all of its tasks may run; None: what its class says."""

    queue: QueueName
    task_groups: tuple[TaskGroup, ...]
    priority_class: str = ""
    topology: TopologyRequest = TopologyRequest()
    time_limit: Duration | None = None
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)

    @property
    def gpus(self) -> MilliGpu:
        """GPUs of the whole gang."""
        return MilliGpu.gpus(sum(group.replicas * group.shape.gpus for group in self.task_groups))

    @property
    def tasks(self) -> int:
        """Tasks of the whole gang: its world size."""
        return sum(group.replicas for group in self.task_groups)

    @property
    def effective_topology(self) -> TopologyRequest:
        """What the topology request demands in fact: a single task is in one domain of any level by itself."""
        return TopologyRequest() if self.tasks == 1 else self.topology


class TaskPlacement(Document, frozen=True):
    """Where one task of a gang runs. `index` counts within its group."""

    group: str
    index: int
    node: NodeName
    devices: tuple[DeviceId, ...] = ()

    @property
    def gpus(self) -> MilliGpu:
        """GPUs that it holds."""
        return MilliGpu.gpus(len(self.devices))


class Job(Document, frozen=True):
    """A live job in a snapshot. `attempt` counts starts: it rises by one each time the gang is bound.

    `time_limit` is what this attempt was bound under; None: it may run for ever, or is not bound.
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
