"""The plan: ordered steps that each state a fact to make true, a verdict per job, and a certificate of the solve."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from solver.model.cluster import DeviceId, MigInstance, NodeName
from solver.model.document import API_VERSION, Document, digest
from solver.model.inflight import declared_name
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.workload import JobName, QueueName, TaskPlacement
from solver.plan.estimates import AnyEstimate
from solver.plan.extent import Extent
from solver.plan.reason import beside_gpus, count, part_of
from solver.plan.reasons import AnyReason
from solver.policy.harm import Means, Rule

Stage = Literal["none", "greedy", "mip"]
"""Which part of the solve decided: nothing to decide, the greedy answer, or the integer program."""

ProofStatus = Literal["proven", "within-gap", "unproven"]


class Bind(Document, frozen=True, tag_field="step", tag="bind"):
    """Gang `job` runs, in its attempt number `attempt`, as exactly these tasks on exactly these devices.

    All run within `deadline`, then for at most `time_limit`, and until they do nothing for `idle_limit` (None: for ever).
    """

    job: JobName
    attempt: int
    tasks: tuple[TaskPlacement, ...]
    deadline: Duration
    time_limit: Duration | None = None
    idle_limit: Duration | None = None


class Release(Document, frozen=True, tag_field="step", tag="release"):
    """A gang that was bound and did not become ready in time holds nothing any more and waits again."""

    job: JobName
    attempt: int


class Repartition(Document, frozen=True, tag_field="step", tag="repartition"):
    """GPU `device` has exactly these MIG instances; None: it is whole, and not in MIG mode.

    `destroys`: those of its instances that go; no task uses them. Binds of the same plan may use what is made.
    """

    node: NodeName
    device: DeviceId
    instances: tuple[MigInstance, ...] | None = None
    destroys: tuple[MigInstance, ...] = ()


EvictedBy = Literal["move", "reclaim", "preempt", "turn", "straddle", "drain", "converge", "return"]
"""By which of the means (quota/victims) or rules (preemption/departures); `move`: the same plan promises it where it goes on."""


class Evict(Document, frozen=True, tag_field="step", tag="evict"):
    """Attempt `attempt` of a running job ends, so that `beneficiary` can have what it holds; within `grace` from being asked.

    There is no beneficiary where a rule wants it: a queue drains, a lowered limit is to be kept, or a gang's reservation is due.
    `lost_gpu_s`: what that throws away, in GPU-seconds: work since the last checkpoint, and starting again. `past`: what forbade
    it, such as a PodDisruptionBudget, and has delayed the beneficiary's guarantee for as long as it may.
    """

    job: JobName
    attempt: int
    means: EvictedBy
    grace: Duration
    gpus: MilliGpu
    lost_gpu_s: float
    beneficiary: JobName | None = None
    past: str = ""


ShrunkBy = Literal["reclaim", "preempt", "turn", "straddle", "converge", "overdue"]
"""As of an eviction; `overdue`: the tasks were to join a running gang, and did not become ready in time."""


class Shrink(Document, frozen=True, tag_field="step", tag="shrink"):
    """A running elastic gang goes on without these of its tasks, which end within `grace` from being asked.

    The rest is no smaller than its minima. Otherwise as an eviction.
    """

    job: JobName
    attempt: int
    tasks: tuple[TaskPlacement, ...]
    means: ShrunkBy
    grace: Duration
    gpus: MilliGpu
    lost_gpu_s: float
    beneficiary: JobName | None = None
    past: str = ""


class Grow(Document, frozen=True, tag_field="step", tag="grow"):
    """A running elastic gang has these tasks as well, which all run within `deadline`; no more than its full size."""

    job: JobName
    attempt: int
    tasks: tuple[TaskPlacement, ...]
    deadline: Duration


class Nominate(Document, frozen=True, tag_field="step", tag="nominate"):
    """A job that waits or moves is promised exactly these devices, until `deadline` from now; bound once they are all free."""

    job: JobName
    attempt: int
    tasks: tuple[TaskPlacement, ...]
    deadline: Duration


class Withdraw(Document, frozen=True, tag_field="step", tag="withdraw"):
    """A promise is taken back: what it named is not to be had any more, or not by this job."""

    job: JobName
    attempt: int


class Reserve(Document, frozen=True, tag_field="step", tag="reserve"):
    """These devices are kept for the waiting gang from `start`, for as long as it may run, and no others are.

    Or by a Reservation document until `until`: then `job` stands for the document (`declared_holder`).
    """

    job: JobName
    tasks: tuple[TaskPlacement, ...]
    start: Instant
    until: Instant | None = None


class Unreserve(Document, frozen=True, tag_field="step", tag="unreserve"):
    """Nothing is kept for the gang, or by the Reservation document, any more."""

    job: JobName


Step = Bind | Release | Repartition | Evict | Shrink | Grow | Nominate | Withdraw | Reserve | Unreserve


class Starts(Document, frozen=True, tag_field="verdict", tag="starts"):
    """This round binds the job. `entitled` of its `gpus` lie inside its queue's guarantee. `extent` None: it has but one task."""

    job: JobName
    queue: QueueName
    gpus: MilliGpu
    entitled: MilliGpu
    extent: Extent | None = None


class Runs(Document, frozen=True, tag_field="verdict", tag="runs"):
    """The job holds devices and keeps them. `grows`: GPUs that it gets beside them in this round.

    `leaves_at`: when it will be asked to leave, unless it ends before: a Reservation document, `reserved_for` as `declared_holder`
    says it, keeps what it holds from then on.
    """

    job: JobName
    queue: QueueName
    grows: MilliGpu = MilliGpu(0)
    leaves_at: Instant | None = None
    reserved_for: JobName | None = None

    def __str__(self) -> str:
        if self.leaves_at is None or self.reserved_for is None:
            return "holds its devices and keeps them"
        document = declared_name(self.reserved_for)
        return f"holds its devices until it is asked to leave at {self.leaves_at}: Reservation {document} keeps them for others"


class Yields(Document, frozen=True, tag_field="verdict", tag="yields"):
    """The job runs and gives up `gpus` in this round, so that `to` can start.

    Where it `keeps` some it is elastic, and goes on with them; else it waits again afterwards. `cpu`, `memory`: what a job gives
    up that gives up no GPUs. `exceeds`: of one that crosses a line, whether it holds more CPU or memory than its GPUs carry.
    `shared_by`: the queue inside whose guarantee `to` lies, which that shares with those below it; `origin`: where it says so, or
    where the queue says that jobs of one value go by age; `older`: that `to` leaves it behind for that. `below`: the value
    below which the queue of `to` takes back what others borrowed.
    """

    job: JobName
    queue: QueueName
    to: JobName
    to_queue: QueueName
    means: Means
    gpus: MilliGpu
    lost_gpu_s: float
    keeps: MilliGpu = MilliGpu(0)
    cpu: Cpu = Cpu(0)
    memory: Memory = Memory(0)
    exceeds: bool = False
    shared_by: QueueName | None = None
    origin: str = ""
    older: bool = False
    below: int | None = None

    def __str__(self) -> str:
        by = ", by GPUs or by more CPU or memory than they carry" if self.exceeds else ""
        given = beside_gpus(self.cpu, self.memory) if self.cpu or self.memory else part_of(self.gpus, self.keeps)
        stays = f"job {self.to} stays inside that of {self.to_queue}"
        takes, where = f"queue {self.to_queue} takes back its share", f" ({self.origin})" if self.origin else ""
        first = f"is of the same value and was submitted first; preemptWithin{where} is lower-or-newer"
        if self.below is not None:
            takes = f"job {self.to} is of a higher value; reclaimBelow of queue {self.to_queue}{where} is {self.below}"
        if self.shared_by is not None:
            takes = f"queue {self.to_queue} takes back what queue {self.shared_by} shares{where}"
            stays = f"job {self.to} stays inside what queue {self.shared_by} shares with {self.to_queue}{where}"
        why = {
            "reclaim": f"queue {self.queue} had borrowed what it holds, and {takes}",
            "preempt": f"job {self.to} of the same queue {first if self.older else 'has a higher priority'}",
            "turn": f"in queue {self.queue} jobs take turns, and it is that of job {self.to}",
            "straddle": f"it crosses the guarantee of queue {self.queue}{by}, and {stays}",
        }[self.means]
        return f"gives up {given} for {self.to}: {why}; {self.lost_gpu_s / 3600:.1f} GPU-hours are lost"


class Moves(Document, frozen=True, tag_field="verdict", tag="moves"):
    """The job runs and moves, so that `to` fits where it was: it leaves, and goes on as large as it is on `nodes`."""

    job: JobName
    queue: QueueName
    to: JobName
    to_queue: QueueName
    gpus: MilliGpu
    leaves: tuple[NodeName, ...]
    nodes: tuple[NodeName, ...]
    lost_gpu_s: float

    def __str__(self) -> str:
        where = f"from {', '.join(self.leaves)} to {', '.join(self.nodes)}"
        if self.leaves == self.nodes:
            where = f"to other devices of {', '.join(self.nodes)}"
        why = f"so that {self.to} of queue {self.to_queue} fits"
        return f"moves with {count(self.gpus.number, 'GPU')} {where}, {why}; {self.lost_gpu_s / 3600:.1f} GPU-hours are lost"


class Departs(Document, frozen=True, tag_field="verdict", tag="departs"):
    """The job runs and gives up `gpus` because a rule of queue `at` says so; it waits again afterwards, unless it `keeps` some.

    `reserved_for`: the gang to which it gives them back, or the Reservation document that keeps them (`declared_holder`).
    """

    job: JobName
    queue: QueueName
    rule: Rule
    at: QueueName
    gpus: MilliGpu
    lost_gpu_s: float
    keeps: MilliGpu = MilliGpu(0)
    reserved_for: JobName | None = None

    def __str__(self) -> str:
        document = declared_name(self.reserved_for) if self.reserved_for is not None else None
        gang = f"they are reserved for {self.reserved_for} of queue {self.at}, which is to start soon"
        why = {
            "return": gang if document is None else f"Reservation {document} keeps them for others",
            "drain": f"queue {self.at} drains (stopPolicy: HoldAndDrain)",
            "converge": f"queue {self.at} holds more than its max, which was to be kept by now",
        }[self.rule]
        given = part_of(self.gpus, self.keeps) if self.gpus or self.keeps else "its CPU and memory"
        return f"gives up {given}: {why}; {self.lost_gpu_s / 3600:.1f} GPU-hours are lost"


class Waits(Document, frozen=True, tag_field="verdict", tag="waits"):
    """The job stays pending, with every constraint that binds it, the most telling first.

    `estimate` says when it could start; None: a queue holds it back, or it is too far down the order to be estimated.
    """

    job: JobName
    queue: QueueName
    reasons: tuple[AnyReason, ...]
    estimate: AnyEstimate | None = None


class Inadmissible(Document, frozen=True, tag_field="verdict", tag="inadmissible"):
    """The job can't run under this policy on this cluster, however long it waits."""

    job: JobName
    queue: QueueName
    reasons: tuple[AnyReason, ...]


Verdict = Starts | Runs | Yields | Moves | Departs | Waits | Inadmissible


class LayerResult(Document, frozen=True, omit_defaults=False):
    """What one layer reached, and the most that any plan could have reached given the layers above it."""

    name: str
    value: float
    bound: float
    status: ProofStatus

    @property
    def gap(self) -> float:
        """Relative distance from the bound; 0 where the bound is reached."""
        return abs(self.bound - self.value) / max(abs(self.bound), 1e-9) if self.bound != self.value else 0.0


class Certificate(Document, frozen=True, omit_defaults=False):
    """How good the plan is, and by what proof. `entitled_unproven`: GPUs by which entitled layers may fall short of their bounds.

    `mode`: as the policy has it. `cut_by_clock`: the optimiser met its time limit, or gave no answer. `cuts`: combinations of
    starts that an exact round forbade its program, because they find no place. `victims_by_program`, `victims_by_search`: the jobs
    that leave, shrink or move so that others are served, by what chose them; unset where none do.
    """

    stage: Stage
    layers: tuple[LayerResult, ...]
    entitled_unproven: float
    solver: str
    seed: int
    columns: int = 0
    rows: int = 0
    mode: Literal["production", "exact"] = "production"
    cut_by_clock: bool = False
    cuts: int = 0
    victims_by_program: tuple[JobName, ...] | UnsetType = UNSET
    victims_by_search: tuple[JobName, ...] | UnsetType = UNSET


class Plan(Document, frozen=True, omit_defaults=False):
    """One round's answer to one snapshot under one policy. Both are named by digest; a plan for another snapshot is stale."""

    snapshot: str
    policy: str
    steps: tuple[Step, ...]
    verdicts: tuple[Verdict, ...]
    certificate: Certificate
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["Plan"] = "Plan"

    @property
    def digest(self) -> str:
        """The plan's name."""
        return digest(self)
