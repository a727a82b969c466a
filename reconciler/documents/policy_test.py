"""PolicyTest documents as data: a cluster, jobs, what happens, and what must come of it under the repository's policy."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from reconciler.model.idle_policy import IdleAction
from solver.model.cluster import GpuType, Level, NodeName
from solver.model.document import Document
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.workload import Checkpoint, JobName, JobType, QueueName, TaskGroup, TopologyRequest
from solver.plan.reasons import AnyReason

REASON_CODES = frozenset(str(reason.__struct_config__.tag) for reason in get_args(AnyReason))
"""What `because` may name."""


class GivenPool(Document, frozen=True):
    """Like nodes, named NAME-1 and so on. `nodes_per_rack` 0: no two of them share a rack; `racks_per_block` 0: nor a block."""

    name: str
    nodes: int
    gpu_type: GpuType = GpuType("")
    gpus_per_node: int = 8
    gpu_memory: Memory | None = None
    cpu: Cpu = Cpu(96_000)
    memory: Memory = Memory(2**40)
    nodes_per_rack: int = 0
    racks_per_block: int = 0
    labels: tuple[str, ...] = ()

    def node_names(self) -> list[NodeName]:
        """The names of its nodes, numbered as those of a NodePool with the prefix `NAME-`."""
        width = len(str(self.nodes))
        return [NodeName(f"{self.name}-{number:0{width}}") for number in range(1, self.nodes + 1)]


class Running(Document, frozen=True):
    """The job runs already, since so long before the test begins. `on`: the nodes it fills, in this order; (): any."""

    since: Duration
    on: tuple[NodeName, ...] = ()


class GivenJob(Document, frozen=True):
    """One job, or `count` alike, named NAME-1 and so on: `replicas` tasks of `gpus` each, or `task_groups` in full.

    `submitted_at` is counted from the beginning; `waited`: it was submitted so long before. `runs_for`: how long it takes;
    None: until its time limit, else for longer than any test. `gpu_activity`: in percent, while it runs; None: it is not known.
    """

    name: JobName
    queue: QueueName
    count: int = 1
    priority_class: str = ""
    user: str = ""
    type: JobType = "gang"
    gpus: int | None = None
    gpu_types: tuple[GpuType, ...] = ()
    replicas: int = 1
    min_replicas: int | None = None
    task_groups: tuple[TaskGroup, ...] = ()
    topology: TopologyRequest = TopologyRequest()
    time_limit: Duration | None = None
    checkpoint: Checkpoint | None = None
    fallback_after: Duration | None = None
    submitted_at: Duration = Duration(0)
    waited: Duration = Duration(0)
    running: Running | None = None
    runs_for: Duration | None = None
    namespace: str = ""
    gpu_activity: float | None = None

    @property
    def names(self) -> tuple[JobName, ...]:
        """The names of all of them."""
        if self.count == 1:
            return (self.name,)
        return tuple(JobName(f"{self.name}-{number}") for number in range(1, self.count + 1))


class PolicyTestSetup(Document, frozen=True):
    """What the test begins with. `pools` (): the repository's own inventory. `begins` None: some instant."""

    jobs: tuple[GivenJob, ...]
    pools: tuple[GivenPool, ...] = ()
    lost: tuple[NodeName, ...] = ()
    cordoned: tuple[NodeName, ...] = ()
    begins: Instant | None = None


class Happening(Document, frozen=True):
    """What happens `at` a time after the beginning: nodes are lost, cordoned or as new again, jobs are cancelled."""

    at: Duration
    lose: tuple[NodeName, ...] = ()
    cordon: tuple[NodeName, ...] = ()
    restore: tuple[NodeName, ...] = ()
    cancel: tuple[JobName, ...] = ()


Must = Literal[
    "start",
    "wait",
    "be-inadmissible",
    "stay",
    "leave",
    "shrink",
    "keep",
    "hold",
    "have-share",
    "be-warned",
    "not-be-warned",
]
Means = Literal["move", "reclaim", "preempt", "turn", "straddle", "drain", "converge", "return"]


class Statement(Document, frozen=True):
    """One thing that must hold: of a job, of all jobs of a queue or class, or (with neither) of all jobs.

    Which of the other fields say something depends on `must`: see DETAILS.
    """

    must: Must
    job: JobName | None = None
    queue: QueueName | None = None
    priority_class: str | None = None
    within: Duration | None = None
    before: JobName | None = None
    gpu_type: GpuType | None = None
    in_one: Level | None = None
    because: str | None = None
    until: Duration | None = None
    by: Means | None = None
    beneficiary: JobName | None = None
    at_least: MilliGpu | None = None
    at_most: MilliGpu | None = None
    share: float | None = None
    after: Duration | None = None
    action: IdleAction | None = None


SUBJECTS = ("job", "queue", "priority_class")
DETAILS: dict[Must, tuple[str, ...]] = {
    "start": ("within", "before", "gpu_type", "in_one"),
    "wait": ("because", "until"),
    "be-inadmissible": ("because",),
    "stay": (),
    "leave": ("within", "by", "beneficiary"),
    "shrink": ("within", "by", "beneficiary"),
    "keep": ("at_least",),
    "be-warned": ("within", "action"),
    "not-be-warned": (),
    "hold": ("gpu_type", "at_least", "at_most", "after"),
    "have-share": ("gpu_type", "share", "after"),
}
"""Which fields go with which `must`, beside its subject."""


class PolicyTest(Document, frozen=True):
    """The `spec` of a PolicyTest document. `lasts` 0: one round is held, else rounds are until so long after the beginning."""

    given: PolicyTestSetup
    then: tuple[Statement, ...]
    why: str
    name: str = ""
    lasts: Duration = msgspec.field(default=Duration(0), name="for")
    events: tuple[Happening, ...] = ()
    origin: str = ""
