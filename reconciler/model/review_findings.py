"""What a review finds, as data: the contract of `quorate plan -o json`, and of everything that is printed from it."""

from __future__ import annotations

from typing import Literal

from reconciler.model.problem import Problem
from solver.model.cluster import DeviceId, GpuType, MigInstance, NodeName
from solver.model.document import API_VERSION, Document
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.plan.plan import Certificate
from solver.policy.host_share import Resource

Outcome = Literal["starts", "waits", "inadmissible", "runs", "shrinks", "leaves", "moves"]
"""`runs`, `shrinks`, `leaves` and `moves` are of jobs that run now: those that leave are asked to, for another or by a rule."""

LOST_DECIMALS = 4
"""Of GPU-hours: a third of a GPU-second. Further digits are of no use, and would differ between machines one day."""


class FieldChange(Document, frozen=True, omit_defaults=False):
    """One field that says something else at the head; None: nothing. `origin`: its line, where that is not its document's."""

    field: str
    before: str | None
    after: str | None
    origin: str = ""


class DocumentChange(Document, frozen=True, omit_defaults=False):
    """One document, named as `Kind name`, that is new, gone, or means something else. Fields are sorted by name.

    `origin`: where it stands at the head (`file:line`), at the base where it is gone; "": nowhere, it is all defaults.
    """

    document: str
    change: Literal["added", "removed", "changed"]
    fields: tuple[FieldChange, ...]
    origin: str = ""


class Loss(Document, frozen=True, omit_defaults=False):
    """What a running job gives up, and for which job.

    `at`: when it is asked to: at the snapshot's own time where the next round decides it, later where the rounds to come do.
    `grace`: how long it has from then. `why`: a means or a rule, as in an `evict` step. `by`: the job that gets the room; None:
    a rule makes it leave. `gpus`: what it gives up. `lost_gpu_h`: GPU-hours of work that are thrown away.
    """

    at: Instant
    grace: Duration
    why: str
    gpus: MilliGpu
    lost_gpu_h: float
    by: JobName | None = None
    by_queue: QueueName | None = None


class JobChange(Document, frozen=True, omit_defaults=False):
    """One job under each revision: in the next round, and in the rounds ahead.

    `reasons` are the head's, in words, and so is what `would_help`. `starts_before` and `starts_after` are when it starts in the
    rounds ahead (the snapshot's own time: in the next round); None: not within the horizon, or it runs already. `loss` is
    the head's. `lost_before` says that it would leave or shrink under the base as well.
    """

    job: JobName
    queue: QueueName
    gpus: MilliGpu
    before: Outcome
    after: Outcome
    starts_before: Instant | None = None
    starts_after: Instant | None = None
    loss: Loss | None = None
    lost_before: bool = False
    reasons: tuple[str, ...] = ()
    would_help: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """The revisions decide differently in the next round, or it gives something up ahead under one of them alone."""
        return self.before != self.after or (self.loss is not None) != self.lost_before

    @property
    def delay_ms(self) -> int | None:
        """How much later it starts under the head; negative: earlier; None where one of them does not say when."""
        if self.starts_before is None or self.starts_after is None:
            return None
        return self.starts_after - self.starts_before


class Entitlement(Document, frozen=True, omit_defaults=False):
    """What a queue may have and holds of one GPU type, in milli-GPU. `max` None: no ceiling.

    `used` is after the next round: what runs on and what starts.
    """

    guaranteed: MilliGpu
    fair_share: MilliGpu
    max: MilliGpu | None
    used: MilliGpu


class QueueChange(Document, frozen=True, omit_defaults=False):
    """A queue and GPU type with another entitlement or use. None: it is not there under that revision."""

    queue: QueueName
    gpu_type: GpuType
    before: Entitlement | None
    after: Entitlement | None


class HostEntitlement(Document, frozen=True, omit_defaults=False):
    """What a queue may have and holds of CPU or memory, as its row has it. `max` None: no ceiling.

    `guaranteed` and `fair_share` are for jobs without GPUs. `used` is after the next round, by all jobs.
    """

    guaranteed: str
    fair_share: str
    max: str | None
    used: str


class HostQueueChange(Document, frozen=True, omit_defaults=False):
    """A queue with another entitlement to CPU or memory. None: it is not there, or no queue says anything, under that revision."""

    queue: QueueName
    resource: Resource
    before: HostEntitlement | None
    after: HostEntitlement | None


class Converging(Document, frozen=True, omit_defaults=False):
    """A limit of the head that is below what its queue holds. `kept_at`: when, in the rounds ahead, it is kept again.

    `deadline`: when jobs begin to be evicted for it, by its rule; None where the rule evicts no job. `over`: GPUs above it.
    """

    queue: QueueName
    gpu_type: GpuType
    max: MilliGpu
    over: MilliGpu
    evicts: Literal["none", "preemptible", "all"]
    deadline: Instant | None
    kept_at: Instant | None


class QueueWaits(Document, frozen=True, omit_defaults=False):
    """How long the jobs of a queue that wait now have still to wait, in the rounds ahead.

    Seconds from the snapshot; None where fewer than that part of them starts within the horizon. `pending`: how many wait now.
    `started_before`, `started_after`: how many of them start within the horizon.
    """

    queue: QueueName
    pending: int
    started_before: int
    started_after: int
    p50_before_s: float | None
    p50_after_s: float | None
    p90_before_s: float | None
    p90_after_s: float | None


class Fragments(Document, frozen=True, omit_defaults=False):
    """Free GPUs of a type after the next round, and those of them that the waiting and running shapes can't use, in milli-GPU."""

    gpu_type: GpuType
    free_before: MilliGpu
    free_after: MilliGpu
    unusable_before: MilliGpu
    unusable_after: MilliGpu


class DeviceChange(Document, frozen=True, omit_defaults=False):
    """A GPU with MIG instances that the next round changes under one revision and not, or otherwise, under the other.

    None: it is whole. Both are what it has after the round.
    """

    node: NodeName
    device: DeviceId
    before: tuple[MigInstance, ...] | None
    after: tuple[MigInstance, ...] | None


class RackUse(Document, frozen=True, omit_defaults=False):
    """The GPUs of a rack once the next round has come true, and what jobs hold of them, in milli-GPU. All racks are there.

    `block` and `rack` "": nodes outside any. `comes`, `goes`: jobs that hold more, or less, there under the head.
    """

    block: str
    rack: str
    gpus_before: MilliGpu
    gpus_after: MilliGpu
    held_before: MilliGpu
    held_after: MilliGpu
    comes: tuple[JobName, ...] = ()
    goes: tuple[JobName, ...] = ()

    @property
    def changed(self) -> bool:
        """It has other GPUs, or jobs hold more or less of them."""
        return self.gpus_before != self.gpus_after or bool(self.comes or self.goes)


class Stranded(Document, frozen=True, omit_defaults=False):
    """A job that runs on nodes that the base has and the head has not: it runs on, and what it holds there counts nowhere."""

    job: JobName
    queue: QueueName
    gpus: MilliGpu
    nodes: tuple[NodeName, ...]


class Unrestartable(Document, frozen=True, omit_defaults=False):
    """A job that runs and, once it were evicted or ended, could never start again under the head. `reasons`: why, in words.

    `already`: under the base neither. `would_help`: what would let it.
    """

    job: JobName
    queue: QueueName
    gpus: MilliGpu
    reasons: tuple[str, ...]
    would_help: tuple[str, ...] = ()
    already: bool = False


class Requeued(Document, frozen=True, omit_defaults=False):
    """A job whose pods mean another queue under the head. `called`: how they name it; "": they name none.

    `before`, `after`: the queues; None: none, as its namespace has none by default.
    """

    job: JobName
    namespace: str
    called: str
    gpus: MilliGpu
    before: QueueName | None
    after: QueueName | None


class IdleCatch(Document, frozen=True, omit_defaults=False):
    """A running job that would be warned under the head, if its IdlePolicy were in force by now: its GPUs are idle since then.

    `already`: the base has it warned, too, and says the same of what follows.
    """

    job: JobName
    queue: QueueName
    gpus: MilliGpu
    policy: str
    action: str
    since: Instant
    already: bool = False


class Ahead(Document, frozen=True, omit_defaults=False):
    """How far the rounds to come were played. No job arrives in them; what runs ends at its limit, or as earlier jobs did.

    `complete`: until nothing was left to happen or the horizon was reached; else the work limit cut it at `until`.
    `endless`: running jobs of which nothing says when they end.
    """

    until: Instant
    rounds_before: int
    rounds_after: int
    complete: bool
    endless: int


class Breach(Document, frozen=True, omit_defaults=False):
    """A guardrail of the base that the change breaks. `origin` is the line of the head that does, else of the guardrail."""

    guardrail: str
    message: str
    fix: str
    origin: str = ""


class RevisionReviewed(Document, frozen=True, omit_defaults=False):
    """One side of a review: how it was named, its commit, what it says by digest, and how good its plan is.

    `meaning` covers all that its documents say, `policy` what rounds read of it, `inventory` its nodes.
    """

    name: str
    commit: str
    meaning: str
    policy: str
    inventory: str
    certificate: Certificate


class WindowChange(Document, frozen=True, omit_defaults=False):
    """A window of a Reservation, or of a queue's quota, in the week after the snapshot, that is new, gone, or another.

    None: it is not there. `holds`: what it keeps, or which quota holds. `origin`: where it stands at the head, or where it stood.
    """

    window: str
    start_before: Instant | None
    until_before: Instant | None
    holds_before: str | None
    start_after: Instant | None
    until_after: Instant | None
    holds_after: str | None
    origin: str = ""


class Review(Document, frozen=True, omit_defaults=False):
    """The effect of a change. Jobs are all that are pending, and those that give something up, by name.

    `cluster` is the digest of the nodes and of what each job has: unlike the snapshot's own it does not change as time passes.
    """

    base: RevisionReviewed
    head: RevisionReviewed
    snapshot: str
    cluster: str
    time: Instant
    documents: tuple[DocumentChange, ...]
    jobs: tuple[JobChange, ...]
    queues: tuple[QueueChange, ...]
    converging: tuple[Converging, ...]
    waits: tuple[QueueWaits, ...]
    fragments: tuple[Fragments, ...]
    repartitioned: tuple[DeviceChange, ...]
    ahead: Ahead
    breaches: tuple[Breach, ...] = ()
    stranded: tuple[Stranded, ...] = ()
    unrestartable: tuple[Unrestartable, ...] = ()
    racks: tuple[RackUse, ...] = ()
    idle: tuple[IdleCatch, ...] = ()
    requeued: tuple[Requeued, ...] = ()
    host_queues: tuple[HostQueueChange, ...] = ()
    windows: tuple[WindowChange, ...] = ()
    ending: tuple[Problem, ...] = ()
    """Warnings of windows that are over at the head, or soon will be."""
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["Review"] = "Review"

    @property
    def has_changes(self) -> bool:
        """The policy or the inventory means something else, or a job fares differently."""
        return self.base.meaning != self.head.meaning or any(job.changed for job in self.jobs)

    @property
    def evicted_by_change(self) -> tuple[JobChange, ...]:
        """Jobs that give something up under the head and would not under the base, the most work lost first."""
        lost = [job for job in self.jobs if job.loss is not None and not job.lost_before]
        return tuple(sorted(lost, key=lambda job: (-(job.loss.lost_gpu_h if job.loss else 0), job.job)))

    @property
    def newly_broken(self) -> tuple[Converging, ...]:
        """The limits below what their queues hold that the change itself sets, or sets lower."""
        changed = {
            (change.queue, change.gpu_type)
            for change in self.queues
            if change.after and change.after.max is not None
            if change.before is not None and (change.before.max is None or change.after.max < change.before.max)
        }
        return tuple(limit for limit in self.converging if (limit.queue, limit.gpu_type) in changed)

    @property
    def newly_unrestartable(self) -> tuple[Unrestartable, ...]:
        """Running jobs that could start again under the base, and not under the head."""
        return tuple(one for one in self.unrestartable if not one.already)

    @property
    def orphaned(self) -> tuple[QueueChange, ...]:
        """Queues that the head no longer has, and that hold GPUs under the base. Their jobs run on, and count nowhere."""
        removed = {change.document for change in self.documents if change.change == "removed"}
        return tuple(
            change
            for change in self.queues
            if f"Queue {change.queue}" in removed and change.after is None and change.before and change.before.used
        )
